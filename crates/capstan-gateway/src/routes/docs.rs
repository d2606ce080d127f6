//! `/openapi.json` and `/docs`: the description of the routes, for machines and for people.

use std::sync::OnceLock;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::{HeaderName, header};
use serde_json::Value;

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

/// Builds the OpenAPI document from all routes.
pub(crate) type Document = fn() -> Value;

/// Neither depends on the settings, so each is built once.
static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
static PAGE_TEXT: OnceLock<Bytes> = OnceLock::new();

const HOUR: (HeaderName, &str) = (header::CACHE_CONTROL, "max-age=3600");

pub(crate) async fn openapi(State(document): State<Document>) -> Response {
    let text = || serde_json::to_vec(&document()).unwrap_or_default().into();
    let text = DOCUMENT.get_or_init(text).clone();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

pub(crate) async fn page(State(document): State<Document>) -> Response {
    let text = || html::text("Capstan: all routes", &openapi::page(&document())).into();
    html::response(PAGE_TEXT.get_or_init(text).clone())
}

pub(crate) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), HOUR], html::STYLE).into_response()
}
