//! What both APIs have in common on the way in: whether the answer is streamed stands in the body,
//! never in `Accept`; the key of a request stands in a header.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use capstan_journal::ArmedBy;
use capstan_protocol::decode;
use http::request::Parts;
use serde::Deserialize;
use serde_json::json;

use super::members::{self, Member};
use crate::face::FaceContext;
use crate::face::post::{self, Posted};
use crate::face::repeats::{KEY, ReaderGuardSlot};
use crate::face::{self, Face, RefusalTarget};
use crate::identity::caller::Caller;
use crate::openapi::Header;
use crate::refusal::Refusal;
use capstan_engine::ask::invalid;

/// How an answer is wanted. It travels in the extensions of the request's head.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Wants {
    #[serde(default, deserialize_with = "flag")]
    pub(super) stream: bool,
    #[serde(default, deserialize_with = "flag")]
    pub(super) background: bool,
}

/// Null is no.
fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::<bool>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl Wants {
    pub(super) fn of(parts: &Parts) -> Self {
        parts.extensions.get().copied().unwrap_or_default()
    }

    /// Whether whoever asks waits for the whole run and sees nothing of it before.
    pub(super) fn is_whole(self) -> bool {
        !self.stream && !self.background
    }
}

/// Answers a POST that starts a run.
pub(super) async fn start(
    face: Arc<dyn Face>,
    own: &[Member],
    State(cx): State<FaceContext>,
    Extension(caller): Extension<Caller>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let posted = post::read(&cx, &caller, &*face, &parts, body).await?;
    answer(face, own, cx, caller, parts, posted).await
}

/// Answers one whose body is read.
pub(super) async fn answer(
    face: Arc<dyn Face>,
    own: &[Member],
    cx: FaceContext,
    caller: Caller,
    mut parts: Parts,
    posted: Posted,
) -> Result<Response, Refusal> {
    let wants: Result<Wants, _> = decode::from_slice(&posted.body);
    let wants = wants.and_then(|wants| members::check(&posted.body, own).map(|()| wants)).map_err(
        |error| face::refusal(&cx, &*face, invalid(&error), RefusalTarget::Undecoded(&parts)),
    )?;
    parts.extensions.insert(wants);
    if parts.extensions.get::<ReaderGuardSlot>().is_none() {
        parts.extensions.insert(ReaderGuardSlot::default());
    }
    post::answer(&cx, &caller, &*face, None, &parts, posted).await
}

pub(super) const EVENTS: Header = Header {
    name: "X-Capstan-Events",
    says: "`all`: events that OpenAI has no word for are told as well, as `capstan.event`, \
     `capstan.warning` and `capstan.attempt`. Not every SDK can \
        read them.",
    schema: || json!({ "type": "string" }),
};

/// Whether events of our own are wanted.
pub(super) fn wants_all_events(parts: &Parts) -> bool {
    post::header_lists(&parts.headers, EVENTS.name, "all")
}

/// An SDK sends a request again that has a key and whose answer was to be whole, so it arms. Nobody
/// comes back for any other run: there the gateway goes on by itself.
pub(super) fn armed_by(parts: &Parts) -> ArmedBy {
    let has_key = parts.headers.contains_key(KEY.name);
    if has_key && Wants::of(parts).is_whole() { ArmedBy::Client } else { ArmedBy::Gateway }
}

/// What the SDKs send from pages beside what every client does.
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
