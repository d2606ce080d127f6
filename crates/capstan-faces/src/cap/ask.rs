//! Decodes a body of CAP.

use std::collections::BTreeMap;

use capstan_protocol::{
    ChatMessage, DecodeError, Fault, FaultKind, Profile, RawJson, RawObject, ServiceRequest, v2,
};
use serde::Deserialize;
use serde::de::IgnoredAny;

use capstan_engine::ask::{Ask, Payload, RequestBody, invalid, is_whole};

/// The path of the payload in a v1 body.
const PAYLOAD: &str = "payload.payload";

/// Decodes a body. A body that is valid as v1 gets its answer in v1. Any other is decoded as v2.
pub(super) fn from_cap(body: &RequestBody) -> Result<Ask, Fault> {
    if let Some(request) = body.try_decode() {
        return from_v1(request);
    }
    if let Some(request) = body.try_decode() {
        return from_v2(request);
    }
    // The reason in the default profile helps more, unless the body is plainly meant as v2.
    let reason = match is_v2(body.bytes()) {
        true => body.decode::<v2::ServiceRequest<RawObject>>().err(),
        false => body.decode::<ServiceRequest<RawObject>>().err(),
    };
    Err(reason.unwrap_or_else(|| Fault::new(FaultKind::InvalidRequest)))
}

fn from_v1(request: ServiceRequest<RawObject>) -> Result<Ask, Fault> {
    let text = request.payload.payload;
    let mut payload: Payload<Vec<ChatMessage>> =
        text.decode().map_err(|e| invalid(&e.inside(PAYLOAD)))?;
    let (messages, question) = (payload.messages.take(), question(&payload));
    let extras = payload.into_extras(text);
    let (messages, is_whole) = said(messages, question, !extras.answers.is_empty())?;
    let (key, session) = (request.request_id.to_string(), request.context.session_id.to_string());
    Ok(Ask {
        agent_id: Some(request.context.agent_id),
        is_whole,
        supported_events: request.payload.capabilities.map(|c| c.supported_events),
        extras,
        ..Ask::new(key, session, messages)
    })
}

fn from_v2(request: v2::ServiceRequest<RawObject>) -> Result<Ask, Fault> {
    let v2::AgentRequest { meta, query, files, .. } = request.payload;
    let (text, payload) =
        meta_with(&meta, &query, &files).map_err(|e| invalid(&e.inside("payload.meta")))?;
    let extras = payload.into_extras(text);
    // A request with answers needs no message.
    let is_answer = query.is_empty() && !extras.answers.is_empty();
    let message = (!is_answer).then(|| ChatMessage::user(query));
    let (key, messages) = (request.request_id.to_string(), message.into_iter().collect());
    Ok(Ask { profile: Profile::V2, extras, ..Ask::new(key, request.context.session_id, messages) })
}

/// Builds the payload of v1: v2's `query` and `files`, beside the members of `meta`.
fn meta_with(
    meta: &RawObject,
    query: &str,
    files: &[String],
) -> Result<(RawObject, Payload<IgnoredAny>), DecodeError> {
    let mut members: BTreeMap<String, RawJson> = meta.decode()?;
    members.insert("query".into(), RawJson::from_serialize(&query)?);
    members.insert("files".into(), RawJson::from_serialize(&files)?);
    let text = RawObject::from_serialize(&members)?;
    text.decode().map(|payload| (text, payload))
}

/// Whether a body is plainly meant as v2: its context has a user with an `id`, where v1 has a
/// `user_id`, or its payload has a `query`.
fn is_v2(body: &[u8]) -> bool {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Shape {
        payload: Query,
        context: User,
    }
    #[derive(Default, Deserialize)]
    struct Query {
        query: Option<IgnoredAny>,
    }
    #[derive(Default, Deserialize)]
    struct User {
        user: Option<Id>,
    }
    #[derive(Deserialize)]
    struct Id {
        id: Option<IgnoredAny>,
    }
    let shape: Shape = serde_json::from_slice(body).unwrap_or_default();
    shape.payload.query.is_some() || shape.context.user.is_some_and(|user| user.id.is_some())
}

/// The text of `query`, else of `input`.
fn question<M>(payload: &Payload<M>) -> Option<String> {
    [&payload.query, &payload.input].into_iter().flatten().find_map(|text| text.decode().ok())
}

/// The messages of a request: `messages`, else the question. A request with answers needs neither.
/// True if they are the whole conversation.
fn said(
    messages: Option<Vec<ChatMessage>>,
    question: Option<String>,
    has_answers: bool,
) -> Result<(Vec<ChatMessage>, bool), Fault> {
    match (messages, question) {
        (Some(messages), _) => {
            let is_whole = is_whole(&messages, has_answers, &format!("{PAYLOAD}.messages"))?;
            Ok((messages, is_whole))
        }
        (None, Some(text)) => Ok((vec![ChatMessage::user(text)], false)),
        (None, None) if has_answers => Ok((Vec::new(), false)),
        (None, None) => {
            Err(invalid(&DecodeError::value(PAYLOAD, "needs messages, query, input or resume")))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(payload: Value) -> RequestBody {
        let id = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
        json!({ "request_id": id, "context": { "session_id": id, "agent_id": id,
            "user": { "user_id": "u", "tier": "t", "locale": "en" }, "trace": { "trace_id": id,
            "span_id": id },
            "permissions": [], "created_at": "2026-02-03T10:15:37Z" },
            "payload": { "session_id": id, "payload": payload } })
        .into()
    }

    #[test]
    fn the_last_user_message_is_the_turn_and_what_is_before_it_the_history() {
        let text = |role: &str, text: &str| {
            json!({ "role": role, "parts": [{ "type": "text",
        "content": text }] })
        };
        let ask = from_cap(&request(
            json!({ "messages": [text("user", "a"), text("assistant", "b"), text("user", "c")] }),
        ))
        .unwrap();
        assert!(ask.is_whole);
        assert_eq!(ask.messages.iter().map(ChatMessage::text).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn query_and_input_are_turns_without_history() {
        for name in ["query", "input"] {
            let ask = from_cap(&request(json!({ name: "Hi" }))).unwrap();
            assert_eq!((ask.messages.turn[0].text().as_str(), ask.is_whole), ("Hi", false));
        }
        let fault = from_cap(&request(json!({}))).unwrap_err();
        assert_eq!(fault.message(), "payload.payload: needs messages, query, input or resume");
    }

    #[test]
    fn results_and_answers_alone_are_a_request() {
        let result = json!({ "role": "tool", "parts": [{ "type": "tool_call_response", "id": "c",
        "response": 7 }] });
        let ask = from_cap(&request(json!({ "messages": [result] }))).unwrap();
        assert_eq!((ask.messages.iter().count(), ask.is_whole), (1, false));
        let answer = json!({ "interruptId": "i", "status": "cancelled" });
        let ask = from_cap(&request(json!({ "resume": [answer] }))).unwrap();
        assert_eq!((ask.messages.iter().count(), ask.extras.answers.len()), (0, 1));
        let said = json!({ "role": "assistant", "parts": [] });
        for wrong in [json!([]), json!([said, result])] {
            let fault = from_cap(&request(json!({ "messages": wrong }))).unwrap_err();
            assert!(
                fault.message().starts_with("payload.payload.messages: holds no message"),
                "{fault}"
            );
        }
    }

    #[test]
    fn members_beside_the_messages_are_typed_or_refused() {
        let ask = from_cap(&request(json!({ "query": "Hi", "temperature": 0.5,
        "state": { "n": 1 },
            "tools": [{ "name": "f", "description": "d" }], "context": [{ "description": "d",
            "value": "v" }] })))
        .unwrap()
        .extras;
        assert_eq!(
            (ask.parameters.temperature, ask.tools.len(), ask.context.len()),
            (Some(0.5), 1, 1)
        );
        assert_eq!(ask.state.unwrap().get(), r#"{"n":1}"#);
        assert_eq!(ask.payload.to_map()["query"], "Hi");
        let fault = from_cap(&request(json!({ "query": "Hi", "tools": [{}] }))).unwrap_err();
        assert!(fault.message().starts_with("payload.payload.tools[0]"), "{fault}");
    }

    #[test]
    fn a_body_of_v2_is_read_and_its_mistakes_are_named_in_v2() {
        let id = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
        let body = json!({ "request_id": id, "context": { "session_id": "sess_abc",
        "user": { "id": "u", "name": "n" } }, "payload": { "query": "Hi" } });
        let ask = from_cap(&body.into()).unwrap();
        assert_eq!((ask.profile, ask.session.as_str()), (Profile::V2, "sess_abc"));
        let wrong = json!({ "request_id": id, "context": { "session_id": 7, "user": { "id": "u",
        "name": "n" } }, "payload": { "query": "Hi" } });
        assert!(from_cap(&wrong.into()).unwrap_err().message().starts_with("context.session_id: "));
    }
}
