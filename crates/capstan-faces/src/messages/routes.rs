//! The OpenAPI rows of the routes of Messages.

use capstan_protocol::FaultKind;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::errors::REFUSALS;
use super::event::Event;
use crate::face::repeats::KEY;
use crate::identity::tickets::STREAM as WATCH;
use crate::openapi::{self, Answer, Body, Content, Header, Row, Tag, model, of_stream};

pub(super) const TAG: Tag = Tag { name: "Anthropic", says: "The same runs in Anthropic's API." };

const VERSION: Header = Header {
    name: "anthropic-version",
    says: "Passed on to an `anthropic` agent, as is `anthropic-beta`. With it `/v1/models` answers \
     in Anthropic's words.",
    schema: || json!({ "type": "string" }),
};

pub(super) const SESSION: Header = Header {
    name: "X-Claude-Code-Session-Id",
    says: "The session of a client that sends its request again after a cut. Within a session a \
     repeat attaches to the run that it repeats, unless that was read to its end.",
    schema: || json!({ "type": "string" }),
};

pub(super) const POST: Row = Row {
    tag: &TAG,
    summary: "Create a message",
    says: "Anthropic's Messages with an agent as the model. The request tells the whole \
     conversation; no session remembers it.\n\n\
        A stream that fails says so in an `error` event, and has no `message_stop`.",
    headers: &[&KEY, &VERSION, &SESSION],
    body: Some(&REQUEST),
    answers: &[Answer {
        headers: &[&openapi::STREAM_ID],
        links: &[of_stream("get", WATCH), of_stream("delete", WATCH)],
        ..Answer::ok(
            "The message, or its events if `stream` is true.",
            &[Content::Json(message), Content::Events(model::<Event<'_>>)],
        )
    }],
    faults: &[
        FaultKind::InvalidRequest,
        FaultKind::AgentNotFound,
        FaultKind::RequestConflict,
        FaultKind::PayloadTooLarge,
        FaultKind::UnsupportedMediaType,
    ],
    tells_of_run: true,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};

const REQUEST: Body = Body {
    says: "`model` is the name of an agent; the first agent answers for names that begin with \
     `claude` and that no agent has. An `anthropic` agent gets all members as they came.",
    model: request,
    examples: &[("message", hello)],
};

pub(super) fn request(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["messages"],
        "properties": {
            "model": { "type": ["string", "null"] },
            "messages": { "type": "array", "minItems": 1, "items": { "type": "object",
            "required": ["role", "content"], "properties": {
                "role": { "enum": ["user", "assistant", "system"] },
                "content": { "type": ["string", "array"] },
            } } },
            "system": { "type": ["string", "array", "null"] },
            "max_tokens": { "type": ["integer", "null"], "minimum": 0 },
            "stream": { "type": ["boolean", "null"] },
            "tools": { "type": ["array", "null"] },
            "tool_choice": { "type": ["object", "null"] },
            "temperature": { "type": ["number", "null"] },
            "top_p": { "type": ["number", "null"] },
            "stop_sequences": { "type": ["array", "null"], "items": { "type": "string" } },
        },
    })
}

pub(super) fn hello() -> Value {
    json!({ "model": "demo", "max_tokens": 1024,
        "messages": [{ "role": "user", "content": "Why is the sky blue?" }] })
}

fn message(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["id", "type", "role", "model", "content", "stop_reason", "usage"],
        "properties": {
            "id": { "type": "string" },
            "type": { "const": "message" },
            "role": { "const": "assistant" },
            "model": { "type": "string" },
            "content": { "type": "array", "items": { "type": "object", "required": ["type"] } },
            "stop_reason": { "type": ["string", "null"] },
            "stop_sequence": { "type": ["string", "null"] },
            "usage": { "type": "object" },
        },
    })
}
