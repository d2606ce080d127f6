//! Counts the tokens of a request without starting a run. The provider of an `anthropic` agent
//! counts; for other agents the count is an estimate.

use std::sync::Arc;

use axum::extract::{Request as HttpRequest, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use capstan_protocol::{Fault, FaultKind};
use http::request::Parts;
use schemars::JsonSchema;
use serde::Serialize;

use super::errors::REFUSALS;
use super::routes::{TAG, hello, request as request_schema};
use super::{Messages, request};
use crate::face::FaceContext;
use crate::face::post::{self, Posted};
use crate::face::{self, Face, RefusalTarget, count_tokens};
use crate::identity::caller::Caller;
use crate::openapi::{Answer, Body, Content, Row, model};
use crate::refusal::Refusal;
use capstan_engine::cpu_offload;

/// A count.
#[derive(Debug, Serialize, JsonSchema)]
struct Counted {
    input_tokens: u64,
}

pub(super) const COUNT: Row = Row {
    tag: &TAG,
    summary: "Count tokens",
    says: "The number of tokens of a message. The provider of an `anthropic` agent counts. For \
     other agents this is an estimate: a token for four bytes of text, 1600 for a picture.",
    body: Some(&REQUEST),
    answers: &[Answer::ok("The count.", &[Content::Json(model::<Counted>)])],
    faults: &[FaultKind::InvalidRequest, FaultKind::AgentNotFound],
    tells_of_run: true,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};

const REQUEST: Body =
    Body { says: "As for a message.", model: request_schema, examples: &[("count", hello)] };

/// Answers a POST that only counts.
pub(super) async fn count(
    face: Arc<Messages>,
    State(cx): State<FaceContext>,
    Extension(caller): Extension<Caller>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let posted = post::read(&cx, &caller, &*face, &parts, body).await?;
    let counted = counted(&face, &cx, &caller, &parts, &posted).await;
    let refused = |fault| face::refusal(&cx, &*face, fault, RefusalTarget::Undecoded(&parts));
    let input_tokens = counted.map_err(refused)?;
    Ok(Json(Counted { input_tokens }).into_response())
}

async fn counted(
    face: &Messages,
    cx: &FaceContext,
    caller: &Caller,
    parts: &Parts,
    posted: &Posted,
) -> Result<u64, Fault> {
    let _begun = cx.engine.cpu_offload().begin(&caller.tenant, posted.body.size()).await;
    let body = request::with_head(&posted.body, &parts.headers);
    let mut ask = cpu_offload::run(body.size(), || request::from_body(&body))?;
    face.complete(cx, &caller.tenant, parts, &mut ask).await?;
    count_tokens::count(cx, &ask, &body, &["system", "messages", "tools"]).await
}
