//! The facts of a run that its events need besides the packets. They are fixed when the run is
//! claimed.

use capstan_journal::Run;
use capstan_protocol::agui::{AguiEvent, EventBody, RunErrorForm, TextRole};
use serde::Deserialize;
use uuid::Uuid;

use super::NAME;
use super::outgoing::OutgoingEvent;

/// The protocol version that we declare to peers that declare theirs.
const PROTOCOL_VERSION: &str = "1.0";

#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(super) stream: Uuid,
    pub(super) thread: String,
    pub(super) run: String,
    /// When the run was claimed, in milliseconds.
    pub(super) created: i64,
    /// The client that started the run sent a `protocolVersion`: it is of the 1.0 line.
    pub(super) is_v1: bool,
    /// A failure is also sent as a text message.
    pub(super) error_text: bool,
}

impl Facts {
    pub(crate) fn new(run: &Run, declares_version: bool, error_text: bool) -> Self {
        Self {
            stream: run.stream_id,
            thread: run.session.clone(),
            run: run.key.clone(),
            created: run.created_at.as_millis(),
            is_v1: run.face == NAME && declares_version,
            error_text,
        }
    }

    /// Where this peer expects the members of RUN_ERROR.
    pub(super) fn form(&self) -> RunErrorForm {
        form(self.is_v1)
    }

    /// The id of a message says where in the stream it began, so it can be made again without
    /// memory.
    pub(super) fn message_id(&self, seq: u64) -> String {
        format!("{}:{seq}", self.stream)
    }

    pub(super) fn started(&self, t: i64) -> OutgoingEvent {
        let body = EventBody::RunStarted {
            thread_id: self.thread.clone(),
            run_id: self.run.clone(),
            // Older clients do not know the member.
            protocol_version: self.is_v1.then(|| PROTOCOL_VERSION.to_owned()),
            parent_run_id: None,
            input: None,
        };
        OutgoingEvent::event(body, t)
    }

    pub(super) fn text_start(&self, seq: u64, t: i64) -> OutgoingEvent {
        let body = EventBody::TextMessageStart {
            message_id: self.message_id(seq),
            role: TextRole::Assistant,
            name: None,
        };
        OutgoingEvent::event(body, t)
    }

    pub(super) fn text_end(&self, seq: u64, t: i64) -> OutgoingEvent {
        OutgoingEvent::event(EventBody::TextMessageEnd { message_id: self.message_id(seq) }, t)
    }
}

pub(crate) fn form(is_v1: bool) -> RunErrorForm {
    if is_v1 { RunErrorForm::MetadataOnly } else { RunErrorForm::Story }
}

/// Whether a stored body declares a version: clients of the 1.0 line do; older ones and TanStack's
/// do not.
pub(crate) fn declares_version(body: &[u8]) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Declared {
        protocol_version: Option<String>,
    }
    serde_json::from_slice::<Declared>(body).unwrap_or_default().protocol_version.is_some()
}

impl From<AguiEvent> for OutgoingEvent {
    fn from(event: AguiEvent) -> Self {
        Self::Event(Box::new(event))
    }
}
