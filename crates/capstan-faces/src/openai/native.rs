//! What only a provider of Chat Completions understands of an answer. It is told as it came, so
//! that the client can bring it back.

use capstan_protocol::{Dialect, Event, NATIVE, NativeEvent, RawObject};
use serde_json::{Map, Value};

/// Under which name members of calls are kept, by the ids of the calls.
const CALLS: &str = "calls";
/// Under which names servers send their thoughts. These are told under one name for all.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];

/// Members of an answer and of its calls.
#[derive(Debug, Default)]
pub(super) struct Native(Map<String, Value>);

impl Native {
    /// Takes an event, if it brings them.
    pub(super) fn take(&mut self, raw: &RawObject) {
        let part = event_of(raw).and_then(|event| event.part);
        if let Some(Value::Object(members)) = part.map(|part| part.to_value()) {
            self.0 = members;
        }
    }

    /// Those of the message.
    pub(super) fn of_message(&self) -> Map<String, Value> {
        let is_ours = |name: &str| name == CALLS || THOUGHTS.contains(&name);
        let members = self.0.iter().filter(|(name, _)| !is_ours(name));
        members.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// Those of a call.
    pub(super) fn of_call(&self, id: &str) -> Map<String, Value> {
        let members = self.0.get(CALLS).and_then(|calls| calls.get(id)).and_then(Value::as_object);
        members.cloned().unwrap_or_default()
    }
}

/// What a piece of a streamed answer holds that only the provider understands.
pub(super) fn delta_of(raw: &RawObject) -> Option<Map<String, Value>> {
    let event = event_of(raw)?.event?.to_value();
    event.get("delta")?.as_object().cloned()
}

fn event_of(raw: &RawObject) -> Option<NativeEvent> {
    if !raw.get().contains(NATIVE) {
        return None;
    }
    let event: NativeEvent = serde_json::from_value(Event::of(raw).data).ok()?;
    Some(event).filter(|event| event.origin.dialect == Dialect::OpenaiChat)
}
