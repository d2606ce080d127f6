//! `/v1/errors` and `/errors/<slug>`: the fault catalogue, for machines and for people.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use capstan_protocol::fault::Entry;
use capstan_protocol::{CATALOGUE, FaultKind};
use http::header::CONTENT_TYPE;

use crate::html;
use crate::refusal::Refusal;
use capstan_kit::openapi::{self, Answer, Content, Row, Tag, model};

pub(crate) const LIST: Row = Row {
    tag: &Tag::FAULTS,
    summary: "Read the catalogue",
    says: "Every kind of fault: codes, status, meaning and remedy.",
    answers: &[Answer::ok("The kinds of fault.", &[Content::Json(model::<Vec<Entry>>)])],
    ..Row::NONE
};

pub(crate) const PAGE: Row = Row {
    tag: &Tag::FAULTS,
    summary: "Read of one kind of fault",
    says: "What the `type` of a problem points to: a page for people.",
    places: &[&openapi::SLUG],
    answers: &[Answer::ok("The page.", &[Content::Text("text/html")])],
    faults: &[FaultKind::RouteNotFound],
    ..Row::NONE
};

/// Encoded once, because every client may request it.
static TEXT: LazyLock<Bytes> =
    LazyLock::new(|| serde_json::to_vec(CATALOGUE).unwrap_or_default().into());

/// The whole catalogue.
pub(crate) async fn list() -> Response {
    ([(CONTENT_TYPE, "application/json")], TEXT.clone()).into_response()
}

/// One kind of fault, as a page.
pub(crate) async fn page(Path(slug): Path<String>) -> Result<Response, Refusal> {
    let entry =
        CATALOGUE.iter().find(|entry| entry.slug == slug).ok_or(FaultKind::RouteNotFound)?;
    let retry = match (entry.retryable, entry.retry_after) {
        (true, Some(seconds)) => format!("yes, after {seconds} s"),
        (true, None) => "yes".to_owned(),
        (false, _) => "no".to_owned(),
    };
    let Entry { title, code, agui, status, severity, .. } = entry;
    let (heading, meaning, remedy) =
        (html::escape(title), html::inline(entry.meaning), html::inline(entry.remedy));
    let body = format!(
        "<main><h1>{heading}</h1><p>{meaning}</p><p><strong>What to do:</strong> {remedy}</p>\
         <dl><dt>Code</dt><dd><code>{code}</code></dd><dt>AG-UI \
         code</dt><dd><code>{agui}</code></dd>\
         <dt>HTTP status</dt><dd>{status}</dd><dt>Severity</dt><dd>{severity}</dd>\
         <dt>Retry</dt><dd>{retry}</dd></dl>\
         <p><a href=/docs>All routes</a></p></main>"
    );
    Ok(html::page(title, &body))
}
