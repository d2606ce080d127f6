//! A body of CAP as a question.

use std::sync::Arc;

use capstan_protocol::{ChatMessage, DecodeError, Fault, Profile, Role, ServiceRequest, decode, v2};
use serde_json::{Map, Value};

use crate::ask::{Ask, invalid};

impl Ask {
    /// One that is valid as v1 is answered in v1, else it is read as v2.
    pub(super) fn from_cap(body: &[u8]) -> Result<Self, Fault> {
        let first = match decode::from_slice::<ServiceRequest>(body) {
            Ok(request) => return Self::from_v1(request),
            Err(error) => error,
        };
        match decode::from_slice::<v2::ServiceRequest>(body) {
            Ok(request) => Ok(Self::from_v2(request)),
            // The default profile's complaint is the more helpful one, unless the body is plainly meant as v2.
            Err(second) => Err(invalid(if is_v2(body) { &second } else { &first })),
        }
    }

    fn from_v1(request: ServiceRequest) -> Result<Self, Fault> {
        let payload = request.payload.payload;
        let (message, history) = turn_of(&payload)?;
        Ok(Self {
            key: request.request_id.to_string(),
            profile: Profile::V1,
            session: request.context.session_id.to_string(),
            agent_id: Some(request.context.agent_id),
            message,
            history,
            capabilities: request.payload.capabilities,
            payload: Arc::new(payload),
        })
    }

    fn from_v2(request: v2::ServiceRequest) -> Self {
        let mut payload = request.payload.meta;
        payload.insert("query".into(), request.payload.query.clone().into());
        payload.insert("files".into(), request.payload.files.into());
        Self {
            key: request.request_id.to_string(),
            profile: Profile::V2,
            session: request.context.session_id,
            agent_id: None,
            message: ChatMessage::user(request.payload.query),
            history: None,
            capabilities: None,
            payload: Arc::new(payload),
        }
    }
}

/// v2's context has a user with an `id`; v1's has a `user_id`.
fn is_v2(body: &[u8]) -> bool {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    value.pointer("/payload/query").is_some() || value.pointer("/context/user/id").is_some()
}

/// The user's turn: the last user message of `messages`, else `query`, else `input`.
fn turn_of(payload: &Map<String, Value>) -> Result<(ChatMessage, Option<Vec<ChatMessage>>), Fault> {
    if let Some(messages) = payload.get("messages") {
        let mut messages: Vec<ChatMessage> =
            decode::from_value(messages).map_err(|e| invalid(&e.inside("payload.payload.messages")))?;
        let last = messages.iter().rposition(|m| m.role == Role::User);
        let Some(last) = last else {
            return Err(invalid(&DecodeError::value(
                "payload.payload.messages",
                "holds no message of role user",
            )));
        };
        let message = messages.remove(last);
        messages.truncate(last);
        return Ok((message, Some(messages)));
    }
    let text = ["query", "input"].into_iter().find_map(|name| payload.get(name)?.as_str());
    match text {
        Some(text) => Ok((ChatMessage::user(text), None)),
        None => Err(invalid(&DecodeError::value("payload.payload", "needs messages, query or input"))),
    }
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
        assert_eq!(ask.message.text(), "c");
        assert_eq!(ask.history.unwrap().iter().map(ChatMessage::text).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn query_and_input_are_turns_without_history() {
        for name in ["query", "input"] {
            let ask = Ask::from_cap(&request(json!({ name: "Hi" }))).unwrap();
            assert_eq!((ask.message.text().as_str(), ask.history.is_none()), ("Hi", true));
        }
        let fault = Ask::from_cap(&request(json!({}))).unwrap_err();
        assert_eq!(fault.message(), "payload.payload: needs messages, query or input");
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
}
