//! The description of `POST /v1/assist`.

use capstan_protocol::{
    ChatMessage, FaultKind, Profile, ServiceRequest, ServiceResponse, StreamPacket, v2,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answers::{RunMetrics, RunOutput};
use crate::identity::tickets::STREAM as WATCH;
use crate::openapi::{
    self, Answer, Body, Content, Link, Row, Tag, model, of_session, of_stream, of_user,
};

/// The query of a CAP request.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Params {
    /// The profile of the packets. By default that of the body.
    pub(super) profile: Option<Profile>,
    /// Resume after this packet, unless `Last-Event-ID` is set.
    pub(super) after: Option<u64>,
}

pub(super) const POST: Row = Row {
    tag: &Tag::RUNS,
    summary: "Start a run, or attach to it",
    says: "The agent of the path answers, else the one that `context.agent_id` names, else the \
     default one.\n\nThe first request with a `request_id` starts the run. The same request sent \
     again attaches to it in whatever state it is, and never starts a second one. Another body \
     with the same key is a conflict. A closed connection does not stop the run.\n\nThe answer is \
     a stream of packets, or one object with `Accept: application/json`. In a stream, the fault of \
     a run is an ERROR packet. In one object, the fault is the response, so any code of the \
     catalogue is possible; the agent's own codes have status 500.",
    places: &[&openapi::AGENT],
    query: Some(Params::json_schema),
    headers: &[&openapi::CURSOR, &openapi::ALLOW_RESET],
    body: Some(&SERVICE_REQUEST),
    answers: &[Answer {
        headers: &[&openapi::STREAM_ID, &openapi::STREAM_TICKET],
        links: LINKS_OF_RUN,
        ..Answer::ok(
            "The packets of the run, one event each. The `id:` of an event is the cursor after it. \
             Or the whole run in one object.",
            &[Content::Events(packets), Content::Json(whole_run)],
        )
    }],
    faults: &[
        FaultKind::RequestConflict,
        FaultKind::PayloadTooLarge,
        FaultKind::AnswerTooLarge,
        FaultKind::UnsupportedMediaType,
        FaultKind::Timeout,
        FaultKind::AgentNotFound,
        FaultKind::StreamExpired,
        FaultKind::StreamLost,
        FaultKind::RateLimitExceeded,
        FaultKind::SessionLimitExceeded,
        FaultKind::MessageLimitExceeded,
        FaultKind::StorageLimitExceeded,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    tells_of_run: true,
    ..Row::NONE
};

/// Of CAP.
const SERVICE_REQUEST: Body = Body {
    says: "`request_id` is the key: the run starts at most once for it. `payload.payload` of \
     profile v1 has the turn: `messages` (the last one of role user; the earlier ones replace the \
     stored ones), else `query`, else `input`.",
    model: service_request,
    examples: &[("v1", v1), ("v2", v2)],
};

/// A request of either profile. The models allow any form of turn; the gateway requires one of
/// these.
fn service_request(generator: &mut SchemaGenerator) -> Schema {
    let turn = json!({ "anyOf": [
        { "required": ["messages"],
        "properties": { "messages": of_user(model::<Vec<ChatMessage>>(generator)) } },
        { "required": ["query"], "properties": { "query": { "type": "string" },
        "messages": false } },
        { "required": ["input"], "properties": { "input": { "type": "string" },
        "messages": false } },
    ] });
    json_schema!({ "anyOf": [
        { "allOf": [model::<ServiceRequest>(generator)],
            "properties": { "payload": { "properties": { "payload": turn } } } },
        model::<v2::ServiceRequest>(generator),
    ] })
}

fn v1() -> Value {
    let session = "0198b0d5-11aa-7d42-8c3f-90e1b2a3c4d5";
    json!({
        "request_id": "0198b0d5-69f0-7b15-a7c4-5e6f708192a3",
        "context": {
            "session_id": session,
            "agent_id": "00000000-0000-0000-0000-000000000000",
            "user": { "user_id": "ada", "tier": "free", "locale": "en-US" },
            "trace": {
                "trace_id": "0198b0d5-69f1-7a00-8b11-112233445566",
                "span_id": "0198b0d5-69f1-7a00-8b11-665544332211",
            },
            "permissions": [],
            "created_at": "2026-01-31T09:30:00Z",
        },
        "payload": { "session_id": session, "payload": { "query": "Why is the sky blue?" } },
    })
}

fn v2() -> Value {
    json!({
        "request_id": "0198b0d5-7c01-7d22-9a3b-aabbccddeeff",
        "context": { "session_id": "support-17", "user": { "id": "ada", "name": "Ada" } },
        "payload": { "query": "Why is the sky blue?" },
    })
}

/// A packet of either profile.
pub(super) fn packets(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [model::<StreamPacket>(generator),
    model::<v2::StreamPacket>(generator)] })
}

/// A run in one object: the data contract's envelope with our output.
fn whole_run(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "allOf": [model::<ServiceResponse>(generator)], "properties": {
        "output": model::<RunOutput<'_>>(generator),
        "metrics": model::<RunMetrics<'_>>(generator) } })
}

/// Links to a run's stream and session.
const LINKS_OF_RUN: &[Link] = &[
    of_stream("get", WATCH),
    of_stream("get", "/v1/streams/{id}/packets"),
    of_stream("post", "/v1/streams/{id}/ticket"),
    of_stream("delete", WATCH),
    of_session("get", "$request.body#/context/session_id"),
    of_session("delete", "$request.body#/context/session_id"),
];
