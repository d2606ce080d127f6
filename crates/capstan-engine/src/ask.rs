//! What a POST asks: the body in any face's words, read into one shape, with the hash by which
//! repeats are known.

mod body_hash;
pub mod body_values;
mod extras;
mod messages;

use capstan_protocol::{ChatMessage, DecodeError, Fault, FaultKind, Profile, Role};
use uuid::Uuid;

pub use body_hash::body_hash;
pub use extras::{Extras, Payload, parameters_of};
pub use messages::Messages;

/// A question, whatever face and profile it came in.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Under which it runs at most once: one space of keys for all faces.
    pub key: String,
    /// The version of CAP in which it is answered.
    pub profile: Profile,
    /// The conversation; an empty one is a conversation of its own, called as its stream is.
    pub session: String,
    /// The chat that it belongs to, in faces that find a run by it.
    pub chat: Option<String>,
    /// The run that it goes on from, where answers of one session form a tree. Then the stored
    /// conversation is the line that leads there.
    pub previous: Option<Uuid>,
    /// Who it is for, by name, if the request says; there must be such an agent.
    pub agent: Option<String>,
    /// Who it is for, by id. One that nobody has counts as none.
    pub agent_id: Option<Uuid>,
    /// What the request tells of the conversation.
    pub messages: Messages,
    /// The messages tell all of it: what is stored does not count.
    pub is_whole: bool,
    /// Event types that the client can show; none means all of them.
    pub supported_events: Option<Vec<String>>,
    /// The version of its protocol that the client declares.
    pub protocol_version: Option<String>,
    /// What stands beside the messages.
    pub extras: Extras,
}

impl Ask {
    /// Messages in a session that go on from what is stored, and nothing beside them.
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
            extras: Extras::default(),
        }
    }
}

/// An id is an entry of an index, and part of every record: longer ones are somebody's attempt to
/// fill them.
pub const LONGEST_ID: usize = 1024;
/// Event types that a client can list, and how long each may be: they are part of every record.
const MOST_EVENTS: usize = 64;
const LONGEST_EVENT: usize = 64;

impl Ask {
    /// What holds for a request of any face.
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

/// Whether an id is short enough to be one.
pub fn check_id(what: &str, id: &str) -> Result<(), Fault> {
    if id.len() <= LONGEST_ID {
        return Ok(());
    }
    Err(invalid(&DecodeError::value(what, format!("has more than {LONGEST_ID} bytes"))))
}

/// What cannot be read, as the client is told.
pub fn invalid(error: &DecodeError) -> Fault {
    Fault::new(FaultKind::InvalidRequest)
        .with_message(error.to_string())
        .with_detail("path", error.path())
}

/// Messages with a user's among them tell the whole conversation. Others can only bring what the
/// session's last run waits for: results of tools, or nothing beside its answers.
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
