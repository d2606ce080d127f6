//! `POST /v1/responses`: starts a response, and describes the request.

use std::sync::Arc;

use axum::response::Response;
use http::HeaderMap;
use http::request::Parts;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::super::request;
use super::resume::Question;
use super::{Responses, references, resume};
use crate::face::FaceContext;
use crate::face::post;
use crate::face::repeats::{self, ReaderGuardSlot};
use crate::face::{self, RefusalTarget};
use crate::head_members::items;
use crate::identity::caller::Caller;
use crate::openapi::Body;
use crate::refusal::Refusal;
use capstan_engine::ask::RequestBody;

/// Answers a request for a response, posted or from a WebSocket.
pub(super) async fn answer(
    face: Arc<Responses>,
    cx: FaceContext,
    caller: Caller,
    mut parts: Parts,
    body: axum::body::Body,
) -> Result<Response, Refusal> {
    let mut read = post::read(&cx, &caller, &*face, &parts, body).await?;
    parts.extensions.insert(ReaderGuardSlot::default());
    let found = match Question::read(&parts, &read.body) {
        Some(question) => Some(resume::find(&face, &cx, &caller, &parts, question).await),
        None => None,
    };
    let (hash, resumed) = found.unzip();
    if let Some(resumed) = resumed.flatten() {
        (read.body, read.hash) = (resumed.body, Some(resumed.hash));
        parts.extensions.insert(resumed.place);
        return request::answer(face, cx, caller, parts, read).await;
    }
    let key = repeats::key_of(&parts);
    read.hash = hash;
    read.body = with_head(&read.body, &parts.headers);
    let resolved = async { references::resolve(&cx, &caller.tenant, key?, read).await }.await;
    let resolved = resolved
        .map_err(|fault| face::refusal(&cx, &*face, fault, RefusalTarget::Undecoded(&parts)))?;
    request::answer(face, cx, caller, parts, resolved).await
}

/// Copies the header `openai-beta` into the body.
fn with_head(body: &RequestBody, headers: &HeaderMap) -> RequestBody {
    let betas = items(headers, "openai-beta");
    let members = (!betas.is_empty()).then(|| ("openai_beta".to_owned(), json!(betas)));
    body.with_members(members.into_iter().collect())
}

/// The body of such a request.
pub(super) const REQUEST: Body = Body {
    says: "`model` is the name of an agent; without one the default agent answers. `conversation` \
     is the session; `previous_response_id` goes on from \
        one answer of it.",
    model: body,
    examples: &[("response", response)],
};

/// Its schema.
pub(super) fn body(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "required": ["input"],
        "properties": {
            "model": { "type": ["string", "null"] },
            "input": { "type": ["string", "array"], "minItems": 1 },
            "instructions": { "type": ["string", "null"] },
            "previous_response_id": { "type": ["string", "null"] },
            "conversation": { "type": ["string", "object", "null"] },
            "tools": { "type": ["array", "null"] },
            "stream": { "type": ["boolean", "null"] },
            "background": { "type": ["boolean", "null"] },
            "store": { "type": ["boolean", "null"] },
            "metadata": { "type": ["object", "null"], "maxProperties": 16,
            "propertyNames": { "maxLength": 64 },
                "additionalProperties": { "type": "string", "maxLength": 512 } },
            "temperature": { "type": ["number", "null"], "minimum": 0, "maximum": 2 },
            "max_output_tokens": { "type": ["integer", "null"], "minimum": 1 },
            "truncation": { "enum": ["auto", "disabled", null] },
        },
    })
}

fn response() -> Value {
    json!({ "model": "demo", "input": "Why is the sky blue?" })
}
