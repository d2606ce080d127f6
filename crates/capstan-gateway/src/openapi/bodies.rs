//! What is posted, and examples of it that work.

use capstan_protocol::agui::RunAgentInput;
use capstan_protocol::{ChatMessage, ServiceRequest, v2};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::{Model, model};

/// What is posted, always as JSON.
pub(crate) struct Body {
    pub(crate) says: &'static str,
    pub(crate) model: Model,
    /// By name; the first is the one of the page. Each is a request that works.
    pub(crate) examples: &'static [Example],
}

/// A name and a body.
pub(crate) type Example = (&'static str, fn() -> Value);

/// Of CAP.
pub(crate) const SERVICE_REQUEST: Body = Body {
    says: "`request_id` is the key under which the run starts at most once. `payload.payload` of profile v1 holds the turn: \
        `messages` (the last one of role user; the earlier ones replace what is stored), else `query`, else `input`.",
    model: service_request,
    examples: &[("v1", v1), ("v2", v2)],
};

/// Of AG-UI.
pub(crate) const RUN_INPUT: Body = Body {
    says: "`runId` is the key under which the run starts at most once, `threadId` the session. The last message of role user is the turn.",
    model: run_input,
    examples: &[("run", agui)],
};

/// Either profile. The models leave open where the turn stands; the gateway does not.
fn service_request(generator: &mut SchemaGenerator) -> Schema {
    let turn = json!({ "anyOf": [
        { "required": ["messages"], "properties": { "messages": of_user(model::<Vec<ChatMessage>>(generator)) } },
        { "required": ["query"], "properties": { "query": { "type": "string" }, "messages": false } },
        { "required": ["input"], "properties": { "input": { "type": "string" }, "messages": false } },
    ] });
    json_schema!({ "anyOf": [
        { "allOf": [model::<ServiceRequest>(generator)],
            "properties": { "payload": { "properties": { "payload": turn } } } },
        model::<v2::ServiceRequest>(generator),
    ] })
}

fn run_input(generator: &mut SchemaGenerator) -> Schema {
    let name = json!({ "minLength": 1, "maxLength": 1024 });
    json_schema!({ "allOf": [model::<RunAgentInput>(generator)],
        "properties": { "runId": name, "threadId": name, "messages": of_user(json_schema!({})) } })
}

/// Messages of which one is a user's.
fn of_user(mut messages: Schema) -> Schema {
    let user = json!({ "required": ["role"], "properties": { "role": { "const": "user" } } });
    messages.insert("contains".into(), user);
    messages
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

fn agui() -> Value {
    json!({
        "threadId": "support-17",
        "runId": "run-1",
        "messages": [{ "id": "m1", "role": "user", "content": "Why is the sky blue?" }],
        "tools": [],
        "context": [],
    })
}
