//! The content of a POST. A face decodes its body into an `Ask`, the same type for every protocol.
//! A hash of the body identifies repeated requests.

mod body;
mod canonical;
mod extras;
mod messages;

use capstan_protocol::{ChatMessage, DecodeError, Fault, FaultKind, Profile, Role};
use uuid::Uuid;

pub use body::RequestBody;
pub use canonical::Canonical;
pub use extras::{Extras, Payload, parameters_of};
pub use messages::Messages;

/// A request for a run, independent of the face and the version of its protocol.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The idempotency key. All faces share one key space.
    pub key: String,
    /// The version of CAP of the answer.
    pub profile: Profile,
    /// The session. If it is empty, the run gets a new session named after its stream.
    pub session: String,
    /// The id of the chat, for faces that find a run by its chat.
    pub chat: Option<String>,
    /// The run that this one continues, for faces whose sessions are trees of answers. The history
    /// then contains only the ancestors of this run.
    pub previous: Option<Uuid>,
    /// The agent by name, if the request names one. An unknown name is an error.
    pub agent: Option<String>,
    /// The agent by id. An unknown id is ignored.
    pub agent_id: Option<Uuid>,
    /// The messages of the request.
    pub messages: Messages,
    /// `messages` is the whole conversation: the engine ignores the stored history.
    pub is_whole: bool,
    /// Event types that the client can show; none means all of them.
    pub supported_events: Option<Vec<String>>,
    /// The version of its protocol that the client declares.
    pub protocol_version: Option<String>,
    /// How the client wants the answer, for faces whose bodies say so.
    pub wants: Wants,
    /// Everything else in the request: tools, context, state, parameters.
    pub extras: Extras,
}

/// How a client wants its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wants {
    /// As a stream.
    pub stream: bool,
    /// Not over this connection.
    pub background: bool,
    /// With the usage at the end of the stream.
    pub usage: bool,
}

impl Wants {
    /// Whether the client waits for one object at the end, and sees nothing of the run before.
    pub fn is_collected(self) -> bool {
        !self.stream && !self.background
    }
}

impl Ask {
    /// Creates a request that continues a stored session and has no extras.
    pub fn new(key: String, session: String, messages: Vec<ChatMessage>) -> Self {
        Self {
            key,
            profile: Profile::V1,
            session,
            chat: None,
            previous: None,
            agent: None,
            agent_id: None,
            messages: messages.into(),
            is_whole: false,
            supported_events: None,
            protocol_version: None,
            wants: Wants::default(),
            extras: Extras::default(),
        }
    }
}

/// The longest id. Ids are index entries and part of every record, so longer ones would fill the
/// store.
pub const LONGEST_ID: usize = 1024;
/// The most event types that a client can list, and the longest name: they are part of every
/// record.
const MOST_EVENTS: usize = 64;
const LONGEST_EVENT: usize = 64;

impl Ask {
    /// Checks the limits that hold for every face.
    pub fn check(&self) -> Result<(), Fault> {
        check_id("the request's id", &self.key)?;
        check_id("the session's id", &self.session)?;
        let events = self.supported_events.as_deref().unwrap_or_default();
        if events.len() > MOST_EVENTS || events.iter().any(|name| name.len() > LONGEST_EVENT) {
            let wrong = format!(
                "lists more than {MOST_EVENTS} names, or one of more than {LONGEST_EVENT} bytes"
            );
            return Err(invalid(&DecodeError::value("supported_events", wrong)));
        }
        Ok(())
    }
}

/// Checks the length of an id.
pub fn check_id(what: &str, id: &str) -> Result<(), Fault> {
    if id.len() <= LONGEST_ID {
        return Ok(());
    }
    Err(invalid(&DecodeError::value(what, format!("has more than {LONGEST_ID} bytes"))))
}

/// The fault for a request that cannot be decoded.
pub fn invalid(error: &DecodeError) -> Fault {
    Fault::new(FaultKind::InvalidRequest)
        .with_message(error.to_string())
        .with_detail("path", error.path())
}

/// Whether the messages are the whole conversation, which a user message shows. Without one, a
/// request may bring only what the session's last run waits for: tool results or answers.
pub fn is_whole(messages: &[ChatMessage], has_answers: bool, place: &str) -> Result<bool, Fault> {
    if messages.iter().any(|message| message.role == Role::User) {
        return Ok(true);
    }
    let is_results = messages.iter().all(|message| message.role == Role::Tool);
    if is_results && (has_answers || !messages.is_empty()) {
        return Ok(false);
    }
    Err(invalid(&DecodeError::value(
        place,
        "holds no message of role user, nor results of tools alone",
    )))
}
