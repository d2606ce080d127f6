//! A body of CAP as a question.

use capstan_protocol::{ChatMessage, DecodeError, Fault, Profile, RawObject, ServiceRequest, decode, v2};
use serde_json::{Map, Value};

use crate::ask::{Ask, Extras, invalid, is_whole};

impl Ask {
    /// One that is valid as v1 is answered in v1, else it is read as v2.
    pub(super) fn from_cap(body: &[u8]) -> Result<Self, Fault> {
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
        let extras =
            payload.and_then(Extras::of_payload).map_err(|e| invalid(&e.inside("payload.payload")))?;
        let (messages, is_whole) = messages_of(&request.payload.payload, !extras.answers.is_empty())?;
        let (key, session) = (request.request_id.to_string(), request.context.session_id.to_string());
        Ok(Self {
            agent_id: Some(request.context.agent_id),
            is_whole,
            supported_events: request.payload.capabilities.map(|c| c.supported_events),
            extras,
            ..Self::new(key, session, messages)
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
        let (key, messages) = (request.request_id.to_string(), message.into_iter().collect());
        Ok(Self { profile: Profile::V2, extras, ..Self::new(key, request.context.session_id, messages) })
    }
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
        None => {
            Err(invalid(&DecodeError::value("payload.payload", "needs messages, query, input or resume")))
        }
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
        let result =
            json!({ "role": "tool", "parts": [{ "type": "tool_call_response", "id": "c", "response": 7 }] });
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
}
