//! `/openapi.json` for machines, `/docs` for people: the same description of the routes.

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderName, header};

use crate::html;
use capstan_kit::openapi::{self, Answer, Content, Row, Tag, model};

pub(crate) const OPENAPI: Row = Row {
    tag: &Tag::SERVER,
    summary: "This description, for machines",
    says: "OpenAPI 3.1, made from the same rows and models that serve.",
    answers: &[Answer::ok(
        "The document.",
        &[Content::Json(model::<serde_json::Map<String, serde_json::Value>>)],
    )],
    ..Row::NONE
};

pub(crate) const PAGE: Row = Row {
    tag: &Tag::SERVER,
    summary: "This description, for people",
    says: "A page that loads nothing from elsewhere.",
    answers: &[Answer::ok("The page.", &[Content::Text("text/html")])],
    ..Row::NONE
};

pub(crate) const STYLE: Row = Row {
    tag: &Tag::SERVER,
    summary: "The style of the plain pages",
    says: "A file of its own, since the pages allow no style inside them.",
    answers: &[Answer::ok("The style.", &[Content::Text("text/css")])],
    ..Row::NONE
};

/// Neither depends on the settings, so each is made once.
static DOCUMENT: LazyLock<Bytes> =
    LazyLock::new(|| serde_json::to_vec(&crate::openapi()).unwrap_or_default().into());
static PAGE_TEXT: LazyLock<Bytes> =
    LazyLock::new(|| html::text("Capstan: all routes", &openapi::page(&crate::openapi())).into());

const HOUR: (HeaderName, &str) = (header::CACHE_CONTROL, "max-age=3600");

pub(crate) async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.clone()).into_response()
}

pub(crate) async fn page() -> Response {
    html::response(PAGE_TEXT.clone())
}

pub(crate) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), HOUR], html::STYLE).into_response()
}
