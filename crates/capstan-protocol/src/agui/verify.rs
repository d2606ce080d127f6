//! AG-UI's rules of sequence, as the published clients enforce them (the union of 1.0.0's and
//! 0.0.59's).
//!
//! It judges JSON, not typed events: what is wrong may be what the types would hide.

use std::collections::BTreeSet;

use serde_json::Value;

/// Watches one response. Every event goes through [`Self::check`].
#[derive(Debug, Default)]
pub struct Verifier {
    is_started: bool,
    end: Option<String>,
    messages: BTreeSet<String>,
    calls: BTreeSet<String>,
    steps: BTreeSet<String>,
    spans: BTreeSet<String>,
    reasoning: BTreeSet<String>,
}

impl Verifier {
    /// Checks the next event. The error names the place. An event of a type without rules may be
    /// anywhere within a run.
    pub fn check(&mut self, event: &Value) -> Result<(), String> {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default();
        if let Some(end) = &self.end {
            return Err(format!("{kind} after {end}"));
        }
        if !self.is_started && kind != "RUN_STARTED" && kind != "RUN_ERROR" {
            return Err(format!("{kind} comes first"));
        }
        let text =
            |name: &str| event.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        match kind {
            "RUN_STARTED" if self.is_started => return Err("started twice".into()),
            "RUN_STARTED" => self.is_started = true,
            "TEXT_MESSAGE_START" => open(&mut self.messages, kind, text("messageId"))?,
            "TEXT_MESSAGE_CONTENT" => {
                piece(&self.messages, kind, &text("messageId"), &text("delta"))?
            }
            "TEXT_MESSAGE_END" => close(&mut self.messages, kind, &text("messageId"))?,
            "TOOL_CALL_START" => open(&mut self.calls, kind, text("toolCallId"))?,
            "TOOL_CALL_ARGS" => piece(&self.calls, kind, &text("toolCallId"), "args may be empty")?,
            "TOOL_CALL_END" => close(&mut self.calls, kind, &text("toolCallId"))?,
            "STEP_STARTED" => open(&mut self.steps, kind, text("stepName"))?,
            "STEP_FINISHED" => close(&mut self.steps, kind, &text("stepName"))?,
            "REASONING_START" => open(&mut self.spans, kind, text("messageId"))?,
            "REASONING_MESSAGE_START" => open(&mut self.reasoning, kind, text("messageId"))?,
            "REASONING_MESSAGE_CONTENT" => {
                piece(&self.reasoning, kind, &text("messageId"), &text("delta"))?;
            }
            "REASONING_MESSAGE_END" => close(&mut self.reasoning, kind, &text("messageId"))?,
            "REASONING_END" => close(&mut self.spans, kind, &text("messageId"))?,
            "RUN_FINISHED" => {
                let all = [&self.messages, &self.calls, &self.steps, &self.spans, &self.reasoning];
                if let Some(left) = all.iter().find_map(|set| set.first()) {
                    return Err(format!("RUN_FINISHED while {left} is open"));
                }
                self.end = Some(kind.to_owned());
            }
            "RUN_ERROR" => self.end = Some(kind.to_owned()),
            _ => {}
        }
        Ok(())
    }

    /// Whether a terminal event came.
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }
}

/// Finds a null member, which the published clients refuse. Free-form values may be null.
pub fn null_member(event: &Value) -> Option<&str> {
    const OPEN: [&str; 3] = ["value", "snapshot", "event"];
    let mut members = event.as_object()?.iter();
    members
        .find(|(name, value)| value.is_null() && !OPEN.contains(&name.as_str()))
        .map(|(name, _)| name.as_str())
}

fn open(set: &mut BTreeSet<String>, kind: &str, id: String) -> Result<(), String> {
    let message = format!("{kind}: {id} is open already");
    set.insert(id).then_some(()).ok_or(message)
}

fn close(set: &mut BTreeSet<String>, kind: &str, id: &str) -> Result<(), String> {
    set.remove(id).then_some(()).ok_or_else(|| format!("{kind}: {id} is not open"))
}

fn piece(set: &BTreeSet<String>, kind: &str, id: &str, delta: &str) -> Result<(), String> {
    let is_fine = set.contains(id) && !delta.is_empty();
    is_fine.then_some(()).ok_or_else(|| format!("{kind}: {id} is not open, or the piece is empty"))
}

#[cfg(test)]
#[test]
fn the_verifier_refuses_what_the_clients_refuse() {
    use serde_json::json;
    let start = json!({ "type": "RUN_STARTED" });
    let end = json!({ "type": "RUN_FINISHED" });
    let open = json!({ "type": "TEXT_MESSAGE_START", "messageId": "m" });
    for wrong in [
        vec![open.clone()],
        vec![start.clone(), start.clone()],
        vec![start.clone(), open.clone(), open.clone()],
        vec![start.clone(), open, end.clone()],
        vec![start.clone(), end.clone(), end.clone()],
        vec![start.clone(), json!({ "type": "RUN_ERROR" }), end],
        vec![start.clone(), json!({ "type": "STEP_FINISHED", "stepName": "s" })],
        vec![start, json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x" })],
    ] {
        let mut verifier = Verifier::default();
        assert!(wrong.iter().any(|event| verifier.check(event).is_err()), "{wrong:?}");
    }
}
