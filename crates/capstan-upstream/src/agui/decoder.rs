//! Decodes the events of an AG-UI run.

use capstan_agent::Output;
use capstan_protocol::agui::{AguiEvent, AguiMessage, EventBody, Outcome, RunError, TokenUsage};
use capstan_protocol::{
    Close, ErrorSeverity, Fault, FaultKind, PresentationEventType, ProgressStatus, ProgressUpdate,
    StreamError, event,
};
use serde_json::{Map, Value, json};

use crate::decode::{Decode, Step, malformed, object};
use crate::thoughts::{Thoughts, make};

/// Decodes one run.
#[derive(Debug, Default)]
pub struct Decoder {
    is_finished: bool,
    thoughts: Thoughts,
    /// The text messages of this run in their order, with their text so far.
    texts: Vec<(String, String)>,
    /// The tool call to which chunks belong.
    chunked_call: Option<String>,
}

impl Decoder {
    fn event(
        &mut self,
        event: AguiEvent,
        raw: Map<String, Value>,
        out: &mut Vec<Output>,
    ) -> Result<Step, Fault> {
        let run_error = RunError::from_event(&event);
        match event.body {
            EventBody::TextMessageContent { message_id, delta } => {
                self.text(&message_id, &delta, out)
            }
            EventBody::TextMessageChunk { message_id, delta, .. } => {
                let id = message_id
                    .or_else(|| self.texts.last().map(|(id, _)| id.clone()))
                    .unwrap_or_default();
                self.text(&id, &delta.unwrap_or_default(), out);
            }
            EventBody::ReasoningMessageContent { delta, .. } => self.thoughts.push(&delta, out),
            EventBody::ReasoningMessageChunk { delta, .. } => {
                self.thoughts.push(&delta.unwrap_or_default(), out)
            }
            EventBody::ReasoningMessageEnd { .. } | EventBody::ReasoningEnd { .. } => {
                self.thoughts.flush(out)
            }
            EventBody::StepStarted { step_name } => {
                out.extend(step(step_name, ProgressStatus::Running))
            }
            EventBody::StepFinished { step_name } => {
                out.extend(step(step_name, ProgressStatus::Complete))
            }
            EventBody::ToolCallChunk { tool_call_id, tool_call_name, delta, .. } => {
                self.call_chunk(tool_call_id, tool_call_name, delta, out);
            }
            EventBody::MessagesSnapshot { messages } => self.snapshot(&messages, out),
            EventBody::Custom { name, value } => custom(&name, value, out),
            EventBody::SubagentError { message, .. } => {
                let fault = Fault::new(FaultKind::AgentExecutionError).with_message(message);
                let warning = fault.with_severity(ErrorSeverity::Warning);
                out.push(Output::Warning(Box::new(warning.to_stream_error(Default::default()))));
            }
            EventBody::RunFinished { outcome, usage, .. } => {
                self.finish(outcome, usage, out);
                return Ok(Step::Done);
            }
            EventBody::RunError { .. } => {
                let fault =
                    run_error.map_or_else(|| Fault::new(FaultKind::UpstreamError), Fault::from);
                return Err(fault);
            }
            // CAP has events with the same names for tool calls, state and activities.
            EventBody::ToolCallStart { .. }
            | EventBody::ToolCallArgs { .. }
            | EventBody::ToolCallEnd { .. }
            | EventBody::ToolCallResult { .. }
            | EventBody::StateSnapshot { .. }
            | EventBody::StateDelta { .. }
            | EventBody::ActivitySnapshot { .. }
            | EventBody::ActivityDelta { .. } => out.extend(pass(raw)),
            EventBody::RunStarted { .. }
            | EventBody::TextMessageStart { .. }
            | EventBody::TextMessageEnd { .. }
            | EventBody::ReasoningStart { .. }
            | EventBody::ReasoningMessageStart { .. }
            | EventBody::ReasoningEncryptedValue { .. }
            | EventBody::Raw { .. }
            | EventBody::SubagentStarted { .. }
            | EventBody::SubagentFinished { .. } => return Ok(Step::Quiet),
        }
        Ok(Step::Heard)
    }

    fn text(&mut self, id: &str, delta: &str, out: &mut Vec<Output>) {
        self.thoughts.flush(out);
        self.end_call(out);
        if delta.is_empty() {
            return;
        }
        match self.texts.iter_mut().rev().find(|(known, _)| known == id) {
            Some((_, text)) => text.push_str(delta),
            None => self.texts.push((id.to_owned(), delta.to_owned())),
        }
        out.push(Output::Delta(delta.to_owned()));
    }

    fn call_chunk(
        &mut self,
        id: Option<String>,
        name: Option<String>,
        delta: Option<String>,
        out: &mut Vec<Output>,
    ) {
        let is_new = id.is_some() && id != self.chunked_call;
        if is_new {
            self.end_call(out);
            self.chunked_call = id;
            let start = json!({ "toolCallId": self.chunked_call,
            "toolCallName": name.unwrap_or_default() });
            out.extend(make("TOOL_CALL_START", &start));
        }
        if let Some(delta) = delta {
            out.extend(make(
                "TOOL_CALL_ARGS",
                &json!({ "toolCallId": self.chunked_call, "delta": delta }),
            ));
        }
    }

    fn end_call(&mut self, out: &mut Vec<Output>) {
        if let Some(id) = self.chunked_call.take() {
            out.extend(make("TOOL_CALL_END", &json!({ "toolCallId": id })));
        }
    }

    /// Compares a snapshot of the messages with the messages of this run, and sends what changed.
    /// Other messages are ignored.
    fn snapshot(&mut self, messages: &[AguiMessage], out: &mut Vec<Output>) {
        let restated = |id: &str| {
            messages.iter().find_map(|message| {
                let AguiMessage::Assistant { id: known, content, .. } = message else {
                    return None;
                };
                (known == id).then(|| content.clone().unwrap_or_default())
            })
        };
        let mut keep = 0;
        let mut is_changed = false;
        let mut rest = String::new();
        for (id, text) in &mut self.texts {
            if let Some(now) = restated(id).filter(|now| now != text) {
                is_changed = true;
                *text = now;
            }
            if is_changed {
                rest.push_str(text);
            } else {
                keep += text.len();
            }
        }
        if is_changed {
            out.push(Output::Again { keep });
            out.push(Output::Delta(rest));
        }
    }

    fn finish(
        &mut self,
        outcome: Option<Outcome>,
        usage: Option<Vec<TokenUsage>>,
        out: &mut Vec<Output>,
    ) {
        self.thoughts.flush(out);
        self.end_call(out);
        self.is_finished = true;
        match outcome {
            Some(Outcome::Cancelled) => out.push(Output::Reason(Close::CANCELLED.into())),
            Some(Outcome::Interrupt { interrupts }) => {
                out.extend(interrupts.into_iter().map(|asked| Output::Interrupt(Box::new(asked))));
            }
            Some(Outcome::Success { .. }) | None => {}
        }
        for usage in usage.into_iter().flatten() {
            out.extend(usage.model.clone().map(Output::Model));
            let counts = [
                ("input_tokens", usage.input_tokens),
                ("output_tokens", usage.output_tokens),
                ("total_tokens", usage.total_tokens),
                ("reasoning_tokens", usage.reasoning_tokens),
                ("cached_input_tokens", usage.cached_input_tokens),
            ];
            let counts =
                counts.into_iter().filter_map(|(name, n)| Some((name.to_owned(), n?.into())));
            out.push(Output::Usage(counts.collect()));
        }
    }
}

impl Decode for Decoder {
    fn frame(&mut self, _event: &str, data: &str, out: &mut Vec<Output>) -> Result<Step, Fault> {
        let raw = object(data)?;
        let kind = raw.get("type").and_then(Value::as_str).unwrap_or_default();
        // An unknown type is skipped. A known type that is malformed is an error.
        if !EventBody::KINDS.contains(&kind) {
            return Ok(Step::Quiet);
        }
        let event = serde_json::from_value(Value::Object(raw.clone()));
        let event = event.map_err(|e| malformed(format!("{kind}: {e}")))?;
        self.event(event, raw, out)
    }

    fn is_complete(&self) -> bool {
        self.is_finished
    }
}

fn step(label: String, status: ProgressStatus) -> Option<Output> {
    let update = ProgressUpdate { label, status, progress_percent: None };
    make(PresentationEventType::ProgressIndicator.as_str(), &update)
}

/// Makes an event with the same name. Its members are the data.
fn pass(mut raw: Map<String, Value>) -> Option<Output> {
    let kind = raw.get_mut("type")?.take();
    raw.retain(|name, _| !["type", "timestamp", "rawEvent", "metadata"].contains(&name.as_str()));
    make(kind.as_str()?, &raw)
}

/// CUSTOM events of a Capstan gateway become the original events. Others keep their names, unless
/// the name belongs to an event that has an effect.
fn custom(name: &str, value: Value, out: &mut Vec<Output>) {
    match name {
        "capstan.warning" | "capstan.attempt_failed" => {
            let error = serde_json::from_value::<StreamError>(value).ok();
            let warning =
                error.map(|error| StreamError { severity: ErrorSeverity::Warning, ..error });
            out.extend(warning.map(|warning| Output::Warning(Box::new(warning))));
        }
        _ if name.starts_with("capstan.") && value.get("type").is_some_and(Value::is_string) => {
            let kind = value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
            if kind != event::STREAM_RESET {
                out.extend(make(&kind, value.get("data").unwrap_or(&Value::Null)));
            }
        }
        _ => {
            let data = if value.is_object() { value } else { json!({ "value": value }) };
            let kind = if matches!(name, event::STREAM_RESET | event::USER_ERROR) {
                "CUSTOM"
            } else {
                name
            };
            out.extend(make(kind, &data));
        }
    }
}
