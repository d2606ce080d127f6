//! Reads and creates the events of tool calls.

use capstan_protocol::{Event, RawObject, event};
use serde_json::{Map, Value, json};

/// The prefix of the types of tool call events.
pub(super) const TOOL_CALL: &str = "TOOL_CALL_";

/// The step of a tool call that an event reports.
pub(super) enum CallStep {
    Start,
    Arguments(String),
    End,
    Result,
}

impl CallStep {
    /// Reads the id and the step of a tool call from an event.
    pub(super) fn of(event: &Event) -> Option<(String, Self)> {
        let text = |name: &str| event.data.get(name).and_then(Value::as_str).map(str::to_owned);
        let step = match event.kind.as_deref()? {
            "TOOL_CALL_START" => Self::Start,
            "TOOL_CALL_ARGS" => Self::Arguments(text("delta").unwrap_or_default()),
            "TOOL_CALL_END" => Self::End,
            "TOOL_CALL_RESULT" => Self::Result,
            _ => return None,
        };
        Some((text("toolCallId")?, step))
    }
}

/// The tool's name in the first event of a call.
pub(super) fn name_of(event: &Event) -> String {
    event.data.get("toolCallName").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Creates an event with a piece of arguments; nothing for an empty piece.
pub(super) fn arguments(id: &str, delta: &str) -> Option<RawObject> {
    let data = json!({ "toolCallId": id, "delta": delta });
    let made = (!delta.is_empty()).then(|| event::envelope("TOOL_CALL_ARGS", &data).ok());
    made.flatten()
}

/// Replaces the id of the call in an event, also in ids that begin with it.
pub(super) fn renamed(raw: &RawObject, from: &str, to: &str) -> RawObject {
    if from == to {
        return raw.clone();
    }
    let rename = |data: &mut Map<String, Value>| {
        for name in ["toolCallId", "messageId"] {
            if let Some(Value::String(id)) = data.get_mut(name)
                && let Some(rest) = id.strip_prefix(from)
            {
                *id = format!("{to}{rest}");
            }
        }
    };
    let mut event = raw.to_map();
    if let Some(Value::Object(data)) = event.get_mut("data") {
        rename(data);
    }
    RawObject::from_serialize(&event).unwrap_or_else(|_| raw.clone())
}
