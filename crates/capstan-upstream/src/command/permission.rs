//! Permissions: a process asks whether it may use a tool, and a person decides, maybe long after
//! the process has ended.
//!
//! The gateway ends the process and turns its question into an interrupt. The next run starts a new
//! process, which asks the same question and gets the stored answer. So a question's id consists of
//! the tool and its input.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use capstan_agent::{Interrupt, ResumeEntry, ResumeStatus};
use serde_json::{Map, Value, json};

use crate::decode::text;

/// The type of a frame that requires an answer on standard input.
pub(super) const REQUEST: &str = "control_request";
const CAN_USE: &str = "can_use_tool";
/// The text for a denied tool, unless the person gave a reason.
const DENIED: &str = "The user does not allow this.";

/// A frame that requires an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    id: String,
    request: Value,
}

impl Request {
    pub(super) fn of(frame: &Map<String, Value>) -> Self {
        let id = frame.get("request_id").and_then(Value::as_str).unwrap_or_default();
        let request = frame.get("request").cloned().unwrap_or_default();
        Self { id: id.to_owned(), request }
    }

    /// The name of the tool, if the request is about a tool.
    pub(super) fn tool(&self) -> Option<&str> {
        let is_permission = text(&self.request, "subtype") == Some(CAN_USE);
        text(&self.request, "tool_name").filter(|_| is_permission)
    }

    fn input(&self) -> Value {
        self.request.get("input").cloned().unwrap_or_default()
    }

    /// The question to a person.
    pub(super) fn interrupt(&self, tool: &str) -> Interrupt {
        let call = self.request.get("tool_use_id").and_then(Value::as_str);
        question(tool, &self.input(), call, text(&self.request, "decision_reason"))
    }

    /// Encodes a person's answer for the process.
    pub(super) fn answer(&self, answer: &ResumeEntry) -> String {
        let decision = match is_allowed(answer) {
            Ok(()) => json!({ "behavior": "allow", "updatedInput": self.input() }),
            Err(why) => json!({ "behavior": "deny", "message": why }),
        };
        self.reply(&json!({ "subtype": "success", "request_id": self.id, "response": decision }))
    }

    /// The reply to a request that the gateway cannot answer.
    pub(super) fn refusal(&self) -> String {
        let error = "This host does not answer such requests.";
        self.reply(&json!({ "subtype": "error", "request_id": self.id, "error": error }))
    }

    fn reply(&self, response: &Value) -> String {
        format!("{}\n", json!({ "type": "control_response", "response": response }))
    }
}

/// Makes the question whether a tool may be called with this input.
pub(super) fn question(
    tool: &str,
    input: &Value,
    call: Option<&str>,
    why: Option<&str>,
) -> Interrupt {
    let why = why.map(|why| format!(" {why}")).unwrap_or_default();
    let mut asked = Interrupt::new(id_of(tool, input), "approval")
        .message(format!("May the agent use {tool}?{why}"))
        .response_schema(json!({ "type": "object", "required": ["approved"], "properties": {
            "approved": { "type": "boolean" }, "message": { "type": "string" } } }));
    asked.tool_call_id = call.map(str::to_owned);
    let metadata = [("tool".to_owned(), tool.into()), ("input".to_owned(), input.clone())];
    asked.metadata = Some(Map::from_iter(metadata));
    asked
}

/// The tool comes first in an id, so that the answer can be turned into a sentence.
fn id_of(tool: &str, input: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    sorted(input).to_string().hash(&mut hasher);
    format!("{tool}:{:016x}", hasher.finish())
}

/// Sorts the members, so that their order does not matter.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            Value::Array(
                members.into_iter().map(|(name, value)| json!([name, sorted(value)])).collect(),
            )
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Whether a person agreed; else the reason. Anything but a clear yes counts as no.
fn is_allowed(answer: &ResumeEntry) -> Result<(), String> {
    let given = answer.payload.as_ref().map(|raw| raw.to_value()).unwrap_or_default();
    let decision = given.get("approved").unwrap_or(&given);
    let is_yes = match decision {
        Value::Bool(is_yes) => *is_yes,
        Value::String(word) => {
            ["yes", "allow", "approve", "approved"].contains(&word.to_lowercase().as_str())
        }
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
    };
    if is_yes && answer.status == ResumeStatus::Resolved {
        return Ok(());
    }
    let word = given.as_str().or_else(|| text(&given, "message"));
    Err(word.filter(|word| !word.is_empty()).unwrap_or(DENIED).to_owned())
}

/// An answer as a sentence, for the prompt of the next process.
pub(super) fn in_words(answer: &ResumeEntry) -> String {
    let id = &answer.interrupt_id;
    let tool = id.rsplit_once(':').map_or(id.as_str(), |(tool, _)| tool);
    match is_allowed(answer) {
        Ok(()) => format!("The user allows {tool}. Go on."),
        Err(why) => format!("The user does not allow {tool}: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(input: Value) -> Request {
        let frame = json!({ "type": REQUEST, "request_id": "r", "request": {
            "subtype": CAN_USE, "tool_name": "Write", "input": input, "tool_use_id": "call_1" } });
        Request::of(frame.as_object().unwrap())
    }

    fn answer(status: ResumeStatus, payload: &Value) -> ResumeEntry {
        let payload = Some(serde_json::from_value(payload.clone()).unwrap());
        ResumeEntry { interrupt_id: "Write:0".into(), status, payload, metadata: None }
    }

    #[test]
    fn the_same_question_has_the_same_id() {
        let id = |input| request(input).interrupt("Write").id;
        let one = id(json!({ "path": "a", "text": "b" }));
        assert!(one.starts_with("Write:"), "{one}");
        assert_eq!(one, id(json!({ "text": "b", "path": "a" })));
        assert_ne!(one, id(json!({ "path": "a", "text": "c" })));
        let asked = request(json!({})).interrupt("Write");
        assert_eq!(asked.tool_call_id.as_deref(), Some("call_1"));
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        let asked = request(json!({ "path": "a" }));
        for yes in [json!(true), json!({ "approved": true }), json!("Yes")] {
            let reply = asked.answer(&answer(ResumeStatus::Resolved, &yes));
            assert!(reply.contains(r#""behavior":"allow""#) && reply.contains(r#""path":"a""#));
            assert!(reply.ends_with('\n'));
        }
        let no = json!({ "approved": false, "message": "Not there." });
        let reply = asked.answer(&answer(ResumeStatus::Resolved, &no));
        assert!(reply.contains(r#""behavior":"deny""#) && reply.contains("Not there."), "{reply}");
        for no in [json!(null), json!({}), json!("perhaps"), json!(1)] {
            assert!(asked.answer(&answer(ResumeStatus::Resolved, &no)).contains("deny"), "{no}");
        }
        assert!(asked.answer(&answer(ResumeStatus::Cancelled, &json!(true))).contains("deny"));
        let words = in_words(&answer(ResumeStatus::Resolved, &json!(true)));
        assert_eq!(words, "The user allows Write. Go on.");
    }

    #[test]
    fn other_requests_of_a_process_are_refused_by_id() {
        let frame = json!({ "request_id": "r", "request": { "subtype": "hook_callback" } });
        let asked = Request::of(frame.as_object().unwrap());
        assert_eq!(asked.tool(), None);
        let reply = asked.refusal();
        assert!(reply.contains(r#""subtype":"error""#) && reply.contains(r#""request_id":"r""#));
    }
}
