//! A process asks whether it may use a tool: a question for a person, who may answer when the
//! process is long gone.
//!
//! The process is ended and its question becomes an interrupt. The next run starts it anew, and
//! when it asks the same again, the answer is there. So a question's id is made of the tool and its
//! input.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use capstan_agent::{Interrupt, ResumeEntry, ResumeStatus};
use serde_json::{Map, Value, json};

use crate::decode::text;

/// The type of a frame that wants an answer on standard input.
pub(super) const REQUEST: &str = "control_request";
const CAN_USE: &str = "can_use_tool";
/// What a denied tool's caller is told, unless the person said more.
const DENIED: &str = "The user does not allow this.";

/// A frame that wants an answer.
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

    /// The tool that it asks for, if that is what it asks.
    pub(super) fn tool(&self) -> Option<&str> {
        let is_permission = text(&self.request, "subtype") == Some(CAN_USE);
        text(&self.request, "tool_name").filter(|_| is_permission)
    }

    fn input(&self) -> Value {
        self.request.get("input").cloned().unwrap_or_default()
    }

    /// The question for a person.
    pub(super) fn interrupt(&self, tool: &str) -> Interrupt {
        let call = self.request.get("tool_use_id").and_then(Value::as_str);
        question(tool, &self.input(), call, text(&self.request, "decision_reason"))
    }

    /// The answer that a person gave, as the process reads it.
    pub(super) fn answer(&self, answer: &ResumeEntry) -> String {
        let decision = match is_allowed(answer) {
            Ok(()) => json!({ "behavior": "allow", "updatedInput": self.input() }),
            Err(why) => json!({ "behavior": "deny", "message": why }),
        };
        self.reply(&json!({ "subtype": "success", "request_id": self.id, "response": decision }))
    }

    /// What is asked that nobody here can answer.
    pub(super) fn refusal(&self) -> String {
        let error = "This host does not answer such requests.";
        self.reply(&json!({ "subtype": "error", "request_id": self.id, "error": error }))
    }

    fn reply(&self, response: &Value) -> String {
        format!("{}\n", json!({ "type": "control_response", "response": response }))
    }
}

/// Whether a tool may be called with this input.
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

/// The tool comes first in an id, so that an answer can be put into words.
fn id_of(tool: &str, input: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    sorted(input).to_string().hash(&mut hasher);
    format!("{tool}:{:016x}", hasher.finish())
}

/// The same whatever the order of members.
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

/// Whether a person said yes; why not, otherwise. What is no clear yes is a no.
fn is_allowed(answer: &ResumeEntry) -> Result<(), String> {
    let given = answer.payload.as_ref().map(|raw| raw.to_value()).unwrap_or_default();
    let said = given.get("approved").unwrap_or(&given);
    let is_yes = match said {
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

/// An answer in words, for the prompt of the process that goes on.
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
            let said = asked.answer(&answer(ResumeStatus::Resolved, &yes));
            assert!(said.contains(r#""behavior":"allow""#) && said.contains(r#""path":"a""#));
            assert!(said.ends_with('\n'));
        }
        let no = json!({ "approved": false, "message": "Not there." });
        let said = asked.answer(&answer(ResumeStatus::Resolved, &no));
        assert!(said.contains(r#""behavior":"deny""#) && said.contains("Not there."), "{said}");
        for no in [json!(null), json!({}), json!("perhaps"), json!(1)] {
            assert!(asked.answer(&answer(ResumeStatus::Resolved, &no)).contains("deny"), "{no}");
        }
        assert!(asked.answer(&answer(ResumeStatus::Cancelled, &json!(true))).contains("deny"));
        let words = in_words(&answer(ResumeStatus::Resolved, &json!(true)));
        assert_eq!(words, "The user allows Write. Go on.");
    }

    #[test]
    fn what_asks_for_anything_else_is_refused_by_its_own_id() {
        let frame = json!({ "request_id": "r", "request": { "subtype": "hook_callback" } });
        let asked = Request::of(frame.as_object().unwrap());
        assert_eq!(asked.tool(), None);
        let said = asked.refusal();
        assert!(said.contains(r#""subtype":"error""#) && said.contains(r#""request_id":"r""#));
    }
}
