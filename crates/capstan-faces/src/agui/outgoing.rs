//! An event to send.

use capstan_protocol::agui::{AguiEvent, EventBody};
use capstan_protocol::{Cursor, sse};
use serde_json::{Value, json};

/// An event to send. Snapshots contain the client's own messages unchanged, with members that only
/// the client knows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OutgoingEvent {
    Event(Box<AguiEvent>),
    Messages(Vec<Value>, i64),
}

/// The type of [`OutgoingEvent::Messages`].
const MESSAGES: &str = "MESSAGES_SNAPSHOT";
/// The event name that readers may use without decoding the data.
const RUN_ERROR: &str = "RUN_ERROR";

impl OutgoingEvent {
    pub(super) fn event(body: EventBody, t: i64) -> Self {
        AguiEvent { timestamp: Some(t), ..AguiEvent::from(body) }.into()
    }

    pub(super) fn custom(name: &str, value: Value, t: i64) -> Self {
        Self::event(EventBody::Custom { name: name.to_owned(), value }, t)
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Event(event) => event.kind(),
            Self::Messages(..) => MESSAGES,
        }
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Event(event) if event.is_terminal())
    }

    /// The code of a RUN_ERROR.
    pub(crate) fn error_code(&self) -> Option<&str> {
        let Self::Event(event) = self else { return None };
        if let EventBody::RunError { code, .. } = &event.body { code.as_deref() } else { None }
    }

    pub(super) fn to_json(&self) -> String {
        match self {
            Self::Event(event) => serde_json::to_string(event).unwrap_or_default(),
            Self::Messages(messages, t) => {
                json!({ "type": MESSAGES, "messages": messages, "timestamp": t }).to_string()
            }
        }
    }

    /// Appends the event's frame.
    pub(crate) fn encode(&self, id: Option<&Cursor>, out: &mut Vec<u8>) {
        let name = Some(self.kind()).filter(|kind| *kind == RUN_ERROR);
        sse::encode_json(id, name, &self.to_json(), out);
    }
}
