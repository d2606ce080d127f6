//! The request path of both APIs. The body says whether the answer is streamed, never `Accept`. The
//! key of a request is in a header.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use http::request::Parts;
use serde_json::json;

use crate::face::Face;
use crate::face::FaceContext;
use crate::face::post::{self, Posted};
use crate::face::repeats::ReaderGuardSlot;
use crate::identity::caller::Caller;
use crate::openapi::Header;
use crate::refusal::Refusal;

/// Answers a POST that starts a run.
pub(super) async fn start(
    face: Arc<dyn Face>,
    State(cx): State<FaceContext>,
    Extension(caller): Extension<Caller>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let posted = post::read(&cx, &caller, &*face, &parts, body).await?;
    answer(face, cx, caller, parts, posted).await
}

/// Answers a POST whose body is read.
pub(super) async fn answer(
    face: Arc<dyn Face>,
    cx: FaceContext,
    caller: Caller,
    mut parts: Parts,
    posted: Posted,
) -> Result<Response, Refusal> {
    if parts.extensions.get::<ReaderGuardSlot>().is_none() {
        parts.extensions.insert(ReaderGuardSlot::default());
    }
    post::answer(&cx, &caller, &*face, None, &parts, posted).await
}

pub(super) const EVENTS: Header = Header {
    name: "X-Capstan-Events",
    says: "`all`: the response also has events that OpenAI does not have: `capstan.event`, \
     `capstan.warning` and `capstan.attempt`. Not every SDK can read them.",
    schema: || json!({ "type": "string" }),
};

/// Whether the client wants events that OpenAI has no word for.
pub(super) fn wants_all_events(parts: &Parts) -> bool {
    post::header_lists(&parts.headers, EVENTS.name, "all")
}

/// Headers of the SDKs. Pages of other origins may send them.
pub(super) const REQUEST_HEADERS: &[&str] = &[
    "idempotency-key",
    "x-capstan-events",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "x-stainless-arch",
    "x-stainless-helper-method",
    "x-stainless-lang",
    "x-stainless-os",
    "x-stainless-package-version",
    "x-stainless-retry-count",
    "x-stainless-runtime",
    "x-stainless-runtime-version",
    "x-stainless-timeout",
];
