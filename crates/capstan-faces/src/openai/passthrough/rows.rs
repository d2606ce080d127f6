//! The routes that agents can pass on, and their descriptions.

use axum::Extension;
use axum::extract::{Request, State};
use capstan_protocol::FaultKind;
use serde_json::json;

use super::super::errors::REFUSALS;
use super::super::models::TAG;
use crate::face::FaceContext;
use crate::identity::caller::Caller;
use crate::identity::scopes::Operation;
use crate::openapi::{Answer, Content, Does, PathParameter, Routes, Row};

const ID: PathParameter = PathParameter {
    says: "The provider's id.",
    schema: || json!({ "type": "string" }),
    example: "file-abc123",
};

/// Each request may cost money, so it needs the scope to start runs.
const fn row(summary: &'static str, places: &'static [&'static PathParameter]) -> Row {
    Row {
        tag: &TAG,
        summary,
        says: "The request goes unchanged to the provider of the agent whose table has \
         `passthrough` for it, and the answer comes back unchanged. A `model` that names the agent \
         becomes the agent's model. Nothing is stored.",
        places,
        answers: ANSWERS,
        faults: &[
            FaultKind::RouteNotFound,
            FaultKind::AgentNotFound,
            FaultKind::InvalidRequest,
            FaultKind::PayloadTooLarge,
            FaultKind::RateLimitExceeded,
            FaultKind::ServiceUnavailable,
            FaultKind::Timeout,
            FaultKind::UpstreamTimeout,
            FaultKind::UpstreamUnreachable,
            FaultKind::UpstreamAuth,
        ],
        refusals: Some(&REFUSALS),
        does: Does::This(Operation::Start),
        ..Row::NONE
    }
}

const ANSWERS: &[Answer] = &[Answer::ok("The provider's answer.", &[Content::Text("*/*")])];
const NONE: &[&PathParameter] = &[];
const OF_ID: &[&PathParameter] = &[&ID];

static EMBED: Row = row("Embed text", NONE);
static MODERATE: Row = row("Classify text or pictures", NONE);
static COMPLETE: Row = row("Complete a text", NONE);
static LIST_FILES: Row = row("List the provider's files", NONE);
static UPLOAD: Row = row("Upload a file", NONE);
static FILE: Row = row("Look up a file", OF_ID);
static DELETE_FILE: Row = row("Delete a file", OF_ID);
static FILE_CONTENT: Row = row("Download a file", OF_ID);
static GENERATE_IMAGE: Row = row("Generate pictures", NONE);
static EDIT_IMAGE: Row = row("Edit a picture", NONE);
static VARY_IMAGE: Row = row("Vary a picture", NONE);
static SPEAK: Row = row("Speak a text", NONE);
static TRANSCRIBE: Row = row("Transcribe speech", NONE);
static TRANSLATE: Row = row("Translate speech", NONE);

pub(in super::super) fn routes() -> Routes<FaceContext> {
    let to = |group: &'static str| {
        async move |cx: State<FaceContext>, caller: Extension<Caller>, request: Request| {
            super::pass(cx, caller, group, request).await
        }
    };
    Routes::default()
        .post("/v1/embeddings", to("embeddings"), &EMBED)
        .post("/v1/moderations", to("moderations"), &MODERATE)
        .post("/v1/completions", to("completions"), &COMPLETE)
        .get("/v1/files", to("files"), &LIST_FILES)
        .post("/v1/files", to("files"), &UPLOAD)
        .get("/v1/files/{id}", to("files"), &FILE)
        .delete("/v1/files/{id}", to("files"), &DELETE_FILE)
        .get("/v1/files/{id}/content", to("files"), &FILE_CONTENT)
        .post("/v1/images/generations", to("images"), &GENERATE_IMAGE)
        .post("/v1/images/edits", to("images"), &EDIT_IMAGE)
        .post("/v1/images/variations", to("images"), &VARY_IMAGE)
        .post("/v1/audio/speech", to("audio"), &SPEAK)
        .post("/v1/audio/transcriptions", to("audio"), &TRANSCRIBE)
        .post("/v1/audio/translations", to("audio"), &TRANSLATE)
}
