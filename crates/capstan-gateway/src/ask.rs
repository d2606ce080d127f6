//! What a POST asks: the body in any face's words, read into one shape, with the hash by which repeats are known.

mod agui;
mod extras;

use capstan_protocol::{
    ChatMessage, DecodeError, Fault, FaultKind, Profile, RawObject, Role, ServiceRequest, decode, v2,
};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::face;
pub(crate) use extras::Extras;

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
    /// Reads a body in the words of the face that it was posted to.
    pub(crate) fn decode(face: &str, body: &[u8]) -> Result<Self, Fault> {
        if face == face::agui::NAME { Self::from_agui(body) } else { Self::from_cap(body) }
    }

    /// One that is valid as v1 is answered in v1, else it is read as v2.
    fn from_cap(body: &[u8]) -> Result<Self, Fault> {
        let first = match decode::from_slice::<ServiceRequest>(body) {
            Ok(request) => return Self::from_v1(request),
            Err(error) => error,
        };
        match decode::from_slice::<v2::ServiceRequest>(body) {
            Ok(request) => Self::from_v2(request),
            // The default profile's complaint is the more helpful one, unless the body is plainly meant as v2.
            Err(second) => Err(invalid(if is_v2(body) { &second } else { &first })),
        }
    }

    fn from_v1(request: ServiceRequest) -> Result<Self, Fault> {
        let payload = RawObject::from_serialize(&request.payload.payload);
        let extras = payload.and_then(Extras::of_payload).map_err(|e| invalid(&e.inside("payload.payload")))?;
        let (messages, is_whole) = messages_of(&request.payload.payload, !extras.answers.is_empty())?;
        Ok(Self {
            key: request.request_id.to_string(),
            profile: Profile::V1,
            session: request.context.session_id.to_string(),
            agent_id: Some(request.context.agent_id),
            messages,
            is_whole,
            supported_events: request.payload.capabilities.map(|c| c.supported_events),
            extras,
        })
    }

    fn from_v2(request: v2::ServiceRequest) -> Result<Self, Fault> {
        let mut payload = request.payload.meta;
        payload.insert("query".into(), request.payload.query.clone().into());
        payload.insert("files".into(), request.payload.files.into());
        let payload = RawObject::from_serialize(&payload);
        let extras = payload.and_then(Extras::of_payload).map_err(|e| invalid(&e.inside("payload.meta")))?;
        // Who answers has nothing else to say.
        let is_answer = request.payload.query.is_empty() && !extras.answers.is_empty();
        let message = (!is_answer).then(|| ChatMessage::user(request.payload.query));
        Ok(Self {
            key: request.request_id.to_string(),
            profile: Profile::V2,
            session: request.context.session_id,
            agent_id: None,
            messages: message.into_iter().collect(),
            is_whole: false,
            supported_events: None,
            extras,
        })
    }
}

/// What cannot be read, as the client is told.
pub(crate) fn invalid(error: &DecodeError) -> Fault {
    Fault::new(FaultKind::InvalidRequest).with_message(error.to_string()).with_detail("path", error.path())
}

/// v2's context has a user with an `id`; v1's has a `user_id`.
fn is_v2(body: &[u8]) -> bool {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    value.pointer("/payload/query").is_some() || value.pointer("/context/user/id").is_some()
}

/// What the user says: `messages`, else `query`, else `input`; who answers needs none of them. True if it is the whole
/// conversation.
fn messages_of(payload: &Map<String, Value>, has_answers: bool) -> Result<(Vec<ChatMessage>, bool), Fault> {
    if let Some(messages) = payload.get("messages") {
        let place = "payload.payload.messages";
        let messages: Vec<ChatMessage> =
            decode::from_value(messages).map_err(|e| invalid(&e.inside(place)))?;
        let is_whole = is_whole(&messages, has_answers, place)?;
        return Ok((messages, is_whole));
    }
    let text = ["query", "input"].into_iter().find_map(|name| payload.get(name)?.as_str());
    match text {
        Some(text) => Ok((vec![ChatMessage::user(text)], false)),
        None if has_answers => Ok((Vec::new(), false)),
        None => Err(invalid(&DecodeError::value("payload.payload", "needs messages, query, input or resume"))),
    }
}

/// Messages with a user's among them tell the whole conversation. Others can only bring what the session's last run
/// waits for: results of tools, or nothing beside its answers.
fn is_whole(messages: &[ChatMessage], has_answers: bool, place: &str) -> Result<bool, Fault> {
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
    use serde_json::json;

    use super::*;

    fn request(payload: Value) -> Vec<u8> {
        let id = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
        json!({ "request_id": id, "context": { "session_id": id, "agent_id": id,
            "user": { "user_id": "u", "tier": "t", "locale": "en" }, "trace": { "trace_id": id, "span_id": id },
            "permissions": [], "created_at": "2026-02-03T10:15:37Z" },
            "payload": { "session_id": id, "payload": payload } })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn the_last_user_message_is_the_turn_and_what_is_before_it_the_history() {
        let text =
            |role: &str, text: &str| json!({ "role": role, "parts": [{ "type": "text", "content": text }] });
        let ask = Ask::from_cap(&request(
            json!({ "messages": [text("user", "a"), text("assistant", "b"), text("user", "c")] }),
        ))
        .unwrap();
        assert!(ask.is_whole);
        assert_eq!(ask.messages.iter().map(ChatMessage::text).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn query_and_input_are_turns_without_history() {
        for name in ["query", "input"] {
            let ask = Ask::from_cap(&request(json!({ name: "Hi" }))).unwrap();
            assert_eq!((ask.messages[0].text().as_str(), ask.is_whole), ("Hi", false));
        }
        let fault = Ask::from_cap(&request(json!({}))).unwrap_err();
        assert_eq!(fault.message(), "payload.payload: needs messages, query, input or resume");
    }

    #[test]
    fn results_and_answers_alone_are_a_request() {
        let result = json!({ "role": "tool", "parts": [{ "type": "tool_call_response", "id": "c", "response": 7 }] });
        let ask = Ask::from_cap(&request(json!({ "messages": [result] }))).unwrap();
        assert_eq!((ask.messages.len(), ask.is_whole), (1, false));
        let answer = json!({ "interruptId": "i", "status": "cancelled" });
        let ask = Ask::from_cap(&request(json!({ "resume": [answer] }))).unwrap();
        assert_eq!((ask.messages.len(), ask.extras.answers.len()), (0, 1));
        let said = json!({ "role": "assistant", "parts": [] });
        for wrong in [json!([]), json!([said, result])] {
            let fault = Ask::from_cap(&request(json!({ "messages": wrong }))).unwrap_err();
            assert!(fault.message().starts_with("payload.payload.messages: holds no message"), "{fault}");
        }
    }

    #[test]
    fn what_stands_beside_the_messages_is_typed_or_refused() {
        let ask = Ask::from_cap(&request(json!({ "query": "Hi", "temperature": 0.5, "state": { "n": 1 },
            "tools": [{ "name": "f", "description": "d" }], "context": [{ "description": "d", "value": "v" }] })))
        .unwrap()
        .extras;
        assert_eq!((ask.parameters.temperature, ask.tools.len(), ask.context.len()), (Some(0.5), 1, 1));
        assert_eq!(ask.state.unwrap().get(), r#"{"n":1}"#);
        assert_eq!(ask.payload.to_map()["query"], "Hi");
        let fault = Ask::from_cap(&request(json!({ "query": "Hi", "tools": [{}] }))).unwrap_err();
        assert!(fault.message().starts_with("payload.payload.tools[0]"), "{fault}");
    }

    #[test]
    fn a_body_of_v2_is_read_and_its_mistakes_are_named_in_v2() {
        let id = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
        let body = json!({ "request_id": id, "context": { "session_id": "sess_abc", "user": { "id": "u", "name": "n" } }, "payload": { "query": "Hi" } });
        let ask = Ask::from_cap(body.to_string().as_bytes()).unwrap();
        assert_eq!((ask.profile, ask.session.as_str()), (Profile::V2, "sess_abc"));
        let wrong = json!({ "request_id": id, "context": { "session_id": 7, "user": { "id": "u", "name": "n" } }, "payload": { "query": "Hi" } });
        assert!(
            Ask::from_cap(wrong.to_string().as_bytes())
                .unwrap_err()
                .message()
                .starts_with("context.session_id: ")
        );
    }

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
