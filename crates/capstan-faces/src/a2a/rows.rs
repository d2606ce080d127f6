//! The descriptions of A2A's routes.

use capstan_protocol::FaultKind;
use capstan_protocol::fault::Entry;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::methods::METHODS;
use crate::identity::scopes::Operation;
use crate::openapi::{self, Answer, Body, Content, Does, PathParameter, Refusals, Row, Tag, model};

const TAG: Tag = Tag { name: "A2A", says: "The same runs as tasks, for A2A clients." };

/// An event of a stream.
#[derive(JsonSchema)]
#[schemars(rename = "A2aStreamEvent", rename_all = "camelCase")]
#[expect(dead_code, reason = "for the schema only: the gateway writes events member by member")]
pub(super) struct StreamEvent {
    /// The task, which is the first event.
    #[schemars(skip_serializing_if = "Option::is_none")]
    task: Option<Value>,
    /// A piece of the artifact, appended to it or replacing it.
    #[schemars(skip_serializing_if = "Option::is_none")]
    artifact_update: Option<Value>,
    /// The status of the task. The last event has a final state.
    #[schemars(skip_serializing_if = "Option::is_none")]
    status_update: Option<Value>,
}

/// The response events of a JSON-RPC call.
#[derive(JsonSchema)]
#[schemars(rename = "A2aStreamResult")]
#[expect(dead_code, reason = "for the schema only: the gateway writes events member by member")]
struct StreamResult {
    jsonrpc: String,
    /// The id of the call.
    id: Value,
    /// An event in the form of the requested version.
    #[schemars(skip_serializing_if = "Option::is_none")]
    result: Option<Value>,
    /// The error that ends the stream.
    #[schemars(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

const REFUSALS: Refusals = Refusals { status: status_of, content: Content::Json(error) };
const REFUSALS_OF_CALLS: Refusals =
    Refusals { status: status_of, content: Content::Json(error_of_call) };

fn status_of(entry: &Entry) -> u16 {
    #[allow(clippy::wildcard_enum_match_arm)] // The others have the catalogue's.
    match entry.kind {
        FaultKind::StreamExpired => 404,
        FaultKind::RequestConflict | FaultKind::InterruptNotOpen => 400,
        _ => entry.status,
    }
}

fn error_of_call(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "required": ["error"], "properties": { "error": reason() } })
}

/// An error: in the member `error` in 1.0, at the top level in 0.3.
fn error(_: &mut SchemaGenerator) -> Schema {
    let wrapped =
        json!({ "type": "object", "required": ["error"], "properties": { "error": reason() } });
    json_schema!({ "anyOf": [wrapped, reason()] })
}

fn reason() -> Value {
    json!({ "type": "object", "required": ["code", "message"], "properties": {
        "code": { "type": "integer" }, "message": { "type": "string" } } })
}

const TASK: PathParameter = PathParameter {
    says: "The task's id. `:cancel` or `:subscribe` after it is the operation.",
    schema: || json!({ "type": "string", "minLength": 1 }),
    example: "0198b0d5-6a2e-7c31-9f4e-2f1d3c5b7a90",
};

/// The same parameter, for operations that return no task.
const TASK_TO_ACT_ON: PathParameter =
    PathParameter { example: "0198b0d5-6a2e-7c31-9f4e-2f1d3c5b7a90:subscribe", ..TASK };

const EVENTS: Content = Content::Events(model::<StreamEvent>);
const STARTING: &[FaultKind] = &[
    FaultKind::PayloadTooLarge,
    FaultKind::UnsupportedMediaType,
    FaultKind::Timeout,
    FaultKind::AgentNotFound,
    FaultKind::StreamNotFound,
    FaultKind::InterruptNotOpen,
    FaultKind::RateLimitExceeded,
    FaultKind::ServiceUnavailable,
    FaultKind::JournalUnavailable,
];
const LOOKING: &[FaultKind] =
    &[FaultKind::StreamNotFound, FaultKind::ServiceUnavailable, FaultKind::JournalUnavailable];

pub(super) const RPC: Row = Row {
    tag: &TAG,
    summary: "Call a method of A2A",
    says: "JSON-RPC of 1.0 and 0.3: send a message, stream one, get, list, cancel and subscribe to \
     tasks. The message's id is the key: it starts its task at most once. Its context is the \
     session. Errors have status 200, except 401, 403, 429 and 503.",
    headers: &[&openapi::CURSOR],
    body: Some(&CALL),
    answers: &[Answer::ok(
        "The result or the error of the call. Streaming calls get a stream of results.",
        &[Content::Json(result), Content::Events(model::<StreamResult>)],
    )],
    faults: STARTING,
    refusals: Some(&REFUSALS_OF_CALLS),
    does: Does::AsRequested,
    ..Row::NONE
};
pub(super) const RPC_OF_AGENT: Row = Row { places: &[&openapi::AGENT], ..RPC };

pub(super) const SEND: Row = Row {
    tag: &TAG,
    summary: "Send a message",
    says: "Returns the task when it has ended or needs input. With \
     `configuration.returnImmediately`, returns its present state.",
    body: Some(&MESSAGE),
    answers: &[Answer {
        headers: &[&openapi::STREAM_ID],
        ..Answer::ok("The task.", &[Content::Json(result)])
    }],
    faults: STARTING,
    tells_of_run: true,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
pub(super) const SEND_TO_AGENT: Row = Row { places: &[&openapi::AGENT], ..SEND };

pub(super) const STREAM: Row = Row {
    summary: "Send a message and stream its task",
    says: "The task first, then its updates until it ends or needs input.",
    headers: &[&openapi::CURSOR],
    answers: &[Answer {
        headers: &[&openapi::STREAM_ID],
        ..Answer::ok("The events of the task.", &[EVENTS])
    }],
    tells_of_run: false,
    ..SEND
};
pub(super) const STREAM_OF_AGENT: Row = Row { places: &[&openapi::AGENT], ..STREAM };

pub(super) const LIST: Row = Row {
    tag: &TAG,
    summary: "List tasks",
    says: "The tenant's tasks that were started in A2A, newest first, without their output.",
    query: Some(list_params),
    answers: &[Answer::ok("A page of tasks.", &[Content::Json(result)])],
    faults: &[FaultKind::JournalUnavailable],
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
pub(super) const LIST_OF_AGENT: Row = Row { places: &[&openapi::AGENT], ..LIST };

pub(super) const GET: Row = Row {
    tag: &TAG,
    summary: "Get a task",
    says: "The task with all of its output. With `:subscribe` after the id: the task, then its \
        updates.",
    places: &[&TASK],
    headers: &[&openapi::CURSOR],
    answers: &[Answer::ok("The task, or its events.", &[Content::Json(result), EVENTS])],
    faults: LOOKING,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
pub(super) const GET_OF_AGENT: Row = Row { places: &[&openapi::AGENT, &TASK], ..GET };

pub(super) const ACT: Row = Row {
    summary: "Cancel a task, or subscribe to it",
    says: "`:cancel` ends the task and answers when it has ended. `:subscribe` works as with GET. \
     With `Last-Event-ID` it resumes right after that event.",
    does: Does::AsRequested,
    places: &[&TASK_TO_ACT_ON],
    ..GET
};
pub(super) const ACT_OF_AGENT: Row = Row { places: &[&openapi::AGENT, &TASK_TO_ACT_ON], ..ACT };

pub(super) const PUSH_SET: Row = Row {
    tag: &TAG,
    summary: "Create a push notification config",
    says: "The gateway posts the task's status to `url` when the task needs input and when it has \
     ended. It retries until the receiver accepts. `token` is sent as `X-A2A-Notification-Token`.",
    does: Does::This(Operation::Notify),
    places: &[&TASK],
    body: Some(&PUSH),
    answers: &[Answer::ok("The config, with its id.", &[Content::Json(result)])],
    faults: STARTING,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
pub(super) const PUSH_SET_OF_AGENT: Row = Row { places: &[&openapi::AGENT, &TASK], ..PUSH_SET };

pub(super) const PUSH_LIST: Row = Row {
    tag: &TAG,
    summary: "List push notification configs",
    says: "The configs of a task, newest first.",
    places: &[&TASK],
    answers: &[Answer::ok("The config, or the list.", &[Content::Json(result)])],
    faults: LOOKING,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
pub(super) const PUSH_LIST_OF_AGENT: Row = Row { places: &[&openapi::AGENT, &TASK], ..PUSH_LIST };

pub(super) const PUSH_GET: Row = Row {
    summary: "Get a push notification config",
    says: "One config of a task.",
    places: &[&TASK, &CONFIG],
    ..PUSH_LIST
};
pub(super) const PUSH_GET_OF_AGENT: Row =
    Row { places: &[&openapi::AGENT, &TASK, &CONFIG], ..PUSH_GET };

pub(super) const PUSH_DELETE: Row = Row {
    summary: "Delete a push notification config",
    says: "Notifications that were not delivered yet are dropped.",
    does: Does::This(Operation::StopNotifying),
    ..PUSH_GET
};
pub(super) const PUSH_DELETE_OF_AGENT: Row =
    Row { places: &[&openapi::AGENT, &TASK, &CONFIG], ..PUSH_DELETE };

const CONFIG: PathParameter = PathParameter {
    says: "The id of the config.",
    schema: || json!({ "type": "string", "minLength": 1 }),
    example: "c-1",
};

const PUSH: Body = Body {
    says: "The address, and the credentials for \
        it.",
    model: push,
    examples: &[("push", push_example)],
};

fn push(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "required": ["url"], "properties": {
        "id": { "type": "string", "maxLength": 1024 },
        "url": { "type": "string", "format": "uri", "maxLength": 2048 },
        "token": { "type": "string", "maxLength": 1024 },
        "authentication": { "type": "object", "properties": {
            "scheme": { "type": "string" }, "credentials": { "type": "string" } } } } })
}

fn push_example() -> Value {
    json!({ "id": "c-1", "url": "https://app.example/a2a", "token": "of-mine" })
}

pub(super) const CARD: Row = Row {
    tag: &TAG,
    summary: "The card of the default agent",
    says: "The agent's abilities and address. No key is needed. Addresses are those of \
     `public_url`, else of the request's Host.",
    answers: &[Answer::ok("The card.", &[Content::Json(result)])],
    faults: &[FaultKind::AgentNotFound],
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
pub(super) const CARD_OF_AGENT: Row =
    Row { summary: "The card of an agent", places: &[&openapi::AGENT], ..CARD };

pub(super) const EXTENDED_CARD: Row = Row {
    summary: "The extended card of the default agent",
    says: "It also names the other agents of this server, and the addresses of their cards.",
    ..CARD
};
pub(super) const EXTENDED_CARD_OF_AGENT: Row =
    Row { summary: "The extended card of an agent", places: &[&openapi::AGENT], ..EXTENDED_CARD };

fn list_params(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "properties": {
        "contextId": { "type": "string", "description": "Only tasks of this context." },
        "pageSize": { "type": "integer", "minimum": 1, "maximum": 100,
        "description": "The number of tasks; 50 by default." },
        "pageToken": { "type": "string", "description": "`nextPageToken` of the previous \
         page." } } })
}

fn result(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": true })
}

const CALL: Body = Body {
    says: "A call. `params` of calls that send a message has `message`; `params` of other calls \
        has `id`.",
    model: call,
    examples: &[("stream", stream_call)],
};

fn call(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "required": ["jsonrpc", "method"], "properties": {
        "jsonrpc": { "const": "2.0" },
        "id": { "type": ["string", "integer", "null"] },
        "method": { "enum": METHODS.map(|(name, ..)| name) },
        "params": { "type": "object" } } })
}

fn stream_call() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage",
    "params": message_example() })
}

const MESSAGE: Body = Body {
    says: "`message.messageId` is the key: the task starts at most once for it. \
     `message.contextId` is the session.",
    model: message,
    examples: &[("message", message_example)],
};

fn message(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "required": ["message"], "properties": {
        "message": { "type": "object", "required": ["messageId", "role", "parts"], "properties": {
            "messageId": { "type": "string", "minLength": 1, "maxLength": 1024 },
            "contextId": { "type": "string" },
            "taskId": { "type": "string" },
            "role": { "enum": ["ROLE_USER", "user"] },
            "parts": { "type": "array", "minItems": 1, "items": { "type": "object",
                "properties": { "text": { "type": "string" } }, "required": ["text"] } } } },
        "configuration": { "type": "object",
        "properties": { "returnImmediately": { "type": "boolean" } } } } })
}

fn message_example() -> Value {
    json!({ "message": { "messageId": "m-1", "role": "ROLE_USER",
    "parts": [{ "text": "Why is the sky blue?" }] } })
}
