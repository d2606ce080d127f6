//! `POST /v1/responses/compact`: refused, because no agent has a compaction of its own.

use std::sync::Arc;

use axum::extract::Request as HttpRequest;
use axum::response::Response;
use capstan_protocol::{DecodeError, FaultKind};

use super::super::errors::{CODE, ErrorBody, REFUSALS};
use super::super::models::TAG;
use super::Responses;
use super::create::body;
use crate::face::FaceContext;
use crate::face::{self, RefusalTarget, post};
use crate::identity::caller::Caller;
use crate::openapi::{Answer, Body, Content, Row, model};
use crate::refusal::Refusal;
use capstan_engine::ask::invalid;

/// Refuses a compaction. Clients then ask the agent for a summary.
pub(super) async fn refuse(
    face: Arc<Responses>,
    cx: FaceContext,
    caller: Caller,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    post::read(&cx, &caller, &*face, &parts, body).await?;
    let wrong = DecodeError::value("model", "has no compaction: ask it for a summary");
    let fault = invalid(&wrong).with_detail(CODE, "compaction_not_supported");
    Err(face::refusal(&cx, &*face, fault, RefusalTarget::Undecoded(&parts)))
}

const BODY: Body = Body { says: "As for a response.", model: body, examples: &[] };

pub(super) const ROW: Row = Row {
    tag: &TAG,
    summary: "Compact a conversation",
    says: "Refused, because no agent has a compaction. Ask the agent for a summary.",
    body: Some(&BODY),
    answers: &[Answer {
        status: 400,
        says: "`compaction_not_supported`.",
        ..Answer::ok("", &[Content::Json(model::<ErrorBody>)])
    }],
    faults: &[FaultKind::InvalidRequest],
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
