//! The events of a tool call: what they say, and how they are made anew.

use capstan_protocol::{Event, RawObject, event};
use serde_json::{Map, Value, json};

/// How the types of a tool call's events begin.
pub(super) const TOOL_CALL: &str = "TOOL_CALL_";

/// What an event says of a tool call.
pub(super) enum Said {
    Start,
    Arguments(String),
    End,
    Result,
}

impl Said {
    /// Reads an event of a tool call: which one, and what of it.
    pub(super) fn of(event: &Event) -> Option<(String, Self)> {
        let text = |name: &str| event.data.get(name).and_then(Value::as_str).map(str::to_owned);
        let said = match event.kind.as_deref()? {
            "TOOL_CALL_START" => Self::Start,
            "TOOL_CALL_ARGS" => Self::Arguments(text("delta").unwrap_or_default()),
            "TOOL_CALL_END" => Self::End,
            "TOOL_CALL_RESULT" => Self::Result,
            _ => return None,
        };
        Some((text("toolCallId")?, said))
    }
}

/// The tool that a call's first event names.
pub(super) fn name_of(event: &Event) -> String {
    event.data.get("toolCallName").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A piece of the arguments of a call; nothing if it is empty.
pub(super) fn arguments(id: &str, delta: &str) -> Option<RawObject> {
    let data = json!({ "toolCallId": id, "delta": delta });
    let made = (!delta.is_empty()).then(|| event::envelope("TOOL_CALL_ARGS", &data).ok());
    made.flatten()
}

/// The event with another call's id; ids that were made of it change with it.
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
