//! `POST /v1/responses/input_tokens`: counts the tokens of a request without starting a run.

use std::sync::Arc;

use axum::Json;
use axum::extract::Request as HttpRequest;
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::{DecodeError, Fault, FaultKind};
use http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::errors::REFUSALS;
use super::super::models::TAG;
use super::Responses;
use super::create::REQUEST;
use crate::face::FaceContext;
use crate::face::post::{self, Posted};
use crate::face::{self, Face as _, RefusalTarget, count_tokens};
use crate::identity::caller::Caller;
use crate::openapi::{Answer, Content, Row, model};
use crate::refusal::Refusal;
use capstan_engine::ask::invalid;
use capstan_engine::cpu_offload;

/// A count.
#[derive(Debug, Serialize, JsonSchema)]
struct Counted {
    object: &'static str,
    input_tokens: u64,
}

pub(super) const ROW: Row = Row {
    tag: &TAG,
    summary: "Count tokens",
    says: "The number of tokens of a request. The provider of the agent counts, if it can. For \
     other agents this is an estimate: a token for four bytes of text, 1600 for a picture. Stored \
     parts of a conversation are not counted, so the request must have all of its input.",
    body: Some(&REQUEST),
    answers: &[Answer::ok("The count.", &[Content::Json(model::<Counted>)])],
    faults: &[FaultKind::InvalidRequest, FaultKind::AgentNotFound],
    tells_of_run: true,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};

/// Answers a POST with the count.
pub(super) async fn count(
    face: Arc<Responses>,
    cx: FaceContext,
    caller: Caller,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let posted = post::read(&cx, &caller, &*face, &parts, body).await?;
    let counted = counted(&face, &cx, &caller, &parts, &posted).await;
    let refused = |fault| face::refusal(&cx, &*face, fault, RefusalTarget::Undecoded(&parts));
    let input_tokens = counted.map_err(refused)?;
    Ok(Json(Counted { object: "response.input_tokens", input_tokens }).into_response())
}

async fn counted(
    face: &Responses,
    cx: &FaceContext,
    caller: &Caller,
    parts: &Parts,
    posted: &Posted,
) -> Result<u64, Fault> {
    let _begun = cx.engine.cpu_offload().begin(&caller.tenant, posted.body.size()).await;
    let mut ask = cpu_offload::run(posted.body.size(), || face.decode(&posted.body))?;
    for (name, is_there) in [
        ("previous_response_id", ask.previous.is_some()),
        ("conversation", !ask.session.is_empty()),
    ] {
        if is_there {
            let wrong = DecodeError::value(name, "is not counted: send all of the input");
            return Err(invalid(&wrong));
        }
    }
    face.complete(cx, &caller.tenant, parts, &mut ask).await?;
    let members = ["instructions", "input", "tools", "text"];
    count_tokens::count(cx, &ask, &posted.body, &members).await
}
