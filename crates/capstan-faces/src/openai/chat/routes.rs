//! The description of the route of Chat Completions.

use capstan_protocol::FaultKind;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::super::errors::REFUSALS;
use super::super::models::TAG;
use super::completion::{Chunk, Completion};
use crate::face::repeats::KEY;
use crate::identity::tickets::STREAM as WATCH;
use crate::openapi::{self, Answer, Body, Content, Row, model, of_stream};

pub(super) const POST: Row = Row {
    tag: &TAG,
    summary: "Complete a chat",
    says: "OpenAI's Chat Completions with an agent as the model. The request has the whole \
     conversation; no session stores it.\n\nA stream that fails has a chunk with `error`, and \
     always ends with `[DONE]`.",
    headers: &[&KEY],
    body: Some(&REQUEST),
    answers: &[Answer {
        headers: &[&openapi::STREAM_ID],
        links: &[of_stream("get", WATCH), of_stream("delete", WATCH)],
        ..Answer::ok(
            "The answer, or its chunks if `stream` is true.",
            &[Content::Json(model::<Completion<'_>>), Content::Events(model::<Chunk<'_>>)],
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
    says: "`model` is the name of an agent; without one the default agent answers.",
    model: request,
    examples: &[("chat", chat)],
};

fn request(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["messages"],
        "properties": {
            "model": { "type": "string" },
            "messages": { "type": "array", "minItems": 1, "items": { "type": "object",
            "required": ["role"], "properties": {
                "role": { "type": "string" },
                "content": { "type": ["string", "array", "null"] },
            } } },
            "stream": { "type": ["boolean", "null"] },
            "stream_options": { "type": ["object", "null"],
            "properties": { "include_usage": { "type": ["boolean", "null"] } } },
            "tools": { "type": ["array", "null"] },
            "metadata": { "type": ["object", "null"], "maxProperties": 16,
            "propertyNames": { "maxLength": 64 },
                "additionalProperties": { "type": "string", "maxLength": 512 } },
            "temperature": { "type": ["number", "null"] },
            "max_completion_tokens": { "type": ["integer", "null"] },
            "n": { "enum": [1, null] },
        },
    })
}

fn chat() -> Value {
    json!({ "model": "demo", "messages": [{ "role": "user", "content": "Why is the sky blue?" }] })
}
