//! What a POST asks: the body in any face's words, read into one shape, with the hash by which repeats are known.

mod extras;

use capstan_protocol::{ChatMessage, DecodeError, Fault, FaultKind, Profile, Role};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub(crate) use extras::{Extras, parameters_of};

/// A question, whatever face and profile it came in.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// Under which it runs at most once: one space of keys for all faces.
    pub(crate) key: String,
    pub(crate) profile: Profile,
    pub(crate) session: String,
    /// Who it is for, if the request says.
    pub(crate) agent_id: Option<Uuid>,
    /// What the request tells of the conversation, oldest first.
    pub(crate) messages: Vec<ChatMessage>,
    /// The messages tell all of it: what is stored does not count.
    pub(crate) is_whole: bool,
    /// Event types that the client can show; none means all of them.
    pub(crate) supported_events: Option<Vec<String>>,
    pub(crate) extras: Extras,
}

impl Ask {
    /// Messages in a session that go on from what is stored, and nothing beside them.
    pub(crate) fn new(key: String, session: String, messages: Vec<ChatMessage>) -> Self {
        Self {
            key,
            profile: Profile::V1,
            session,
            agent_id: None,
            messages,
            is_whole: false,
            supported_events: None,
            extras: Extras::default(),
        }
    }
}

/// What cannot be read, as the client is told.
pub(crate) fn invalid(error: &DecodeError) -> Fault {
    Fault::new(FaultKind::InvalidRequest).with_message(error.to_string()).with_detail("path", error.path())
}

/// Messages with a user's among them tell the whole conversation. Others can only bring what the session's last run
/// waits for: results of tools, or nothing beside its answers.
pub(crate) fn is_whole(messages: &[ChatMessage], has_answers: bool, place: &str) -> Result<bool, Fault> {
    if messages.iter().any(|message| message.role == Role::User) {
        return Ok(true);
    }
    let is_results = messages.iter().all(|message| message.role == Role::Tool);
    if is_results && (has_answers || !messages.is_empty()) {
        return Ok(false);
    }
    Err(invalid(&DecodeError::value(place, "holds no message of role user, nor results of tools alone")))
}

/// The hash by which a repeat is known: the JSON value, the agent of the path and the face; not headers, not spacing.
pub(crate) fn body_hash(body: &[u8], agent: Option<&str>, face: &str) -> [u8; 32] {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut hash = Sha256::new();
    hash_value(&mut hash, &value);
    for part in [agent.unwrap_or_default(), face] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Members in order of name, each value behind a mark of its type, so that different values differ.
fn hash_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(b) => hash.update(if *b { b"t" } else { b"f" }),
        Value::Number(n) => hash_text(hash, b'#', &n.to_string()),
        Value::String(s) => hash_text(hash, b'"', s),
        Value::Array(items) => {
            hash.update(b"[");
            hash.update((items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| hash_value(hash, item));
        }
        Value::Object(members) => {
            hash.update(b"{");
            hash.update((members.len() as u64).to_be_bytes());
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            for name in names {
                hash_text(hash, b':', name);
                hash_value(hash, members.get(name).unwrap_or(&Value::Null));
            }
        }
    }
}

fn hash_text(hash: &mut Sha256, mark: u8, text: &str) {
    hash.update([mark]);
    hash.update((text.len() as u64).to_be_bytes());
    hash.update(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_equal_hashes_whatever_their_spacing_and_order() {
        let hash = |text: &str| body_hash(text.as_bytes(), None, "cap");
        assert_eq!(hash(r#"{"a":1,"b":[1,2]}"#), hash("{ \"b\": [1, 2],\n \"a\": 1 }"));
        for other in [r#"{"a":1,"b":[2,1]}"#, r#"{"a":"1","b":[1,2]}"#, r#"{"a":1,"b":[1,2],"c":null}"#] {
            assert_ne!(hash(r#"{"a":1,"b":[1,2]}"#), hash(other));
        }
        assert_ne!(body_hash(b"{}", Some("x"), "cap"), body_hash(b"{}", None, "cap"));
        assert_ne!(body_hash(b"{}", None, "ag-ui"), body_hash(b"{}", None, "cap"));
    }
}
