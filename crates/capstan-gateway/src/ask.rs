//! What a POST asks: the body in any face's words, read into one shape, with the hash by which repeats are known.

use std::sync::Arc;

use capstan_protocol::{ChatMessage, ClientCapabilities, DecodeError, Fault, FaultKind, Profile};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// A question, whatever face and profile it came in.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// Under which it runs at most once: one space of keys for all faces.
    pub(crate) key: String,
    pub(crate) profile: Profile,
    pub(crate) session: String,
    /// Who it is for, if the request says.
    pub(crate) agent_id: Option<Uuid>,
    pub(crate) message: ChatMessage,
    /// The conversation as the request tells it; it replaces what is stored.
    pub(crate) history: Option<Vec<ChatMessage>>,
    pub(crate) capabilities: Option<ClientCapabilities>,
    pub(crate) payload: Arc<Map<String, Value>>,
}

impl Ask {
    /// Event types that the client can show; none means all of them.
    pub(crate) fn supported_events(&self) -> Option<Vec<String>> {
        self.capabilities.as_ref().map(|c| c.supported_events.clone())
    }
}

pub(crate) fn invalid(error: &DecodeError) -> Fault {
    Fault::new(FaultKind::InvalidRequest).with_message(error.to_string()).with_detail("path", error.path())
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
