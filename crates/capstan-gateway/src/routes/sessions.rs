//! `/v1/sessions/{id}`: what a conversation remembers, and how it is forgotten.

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use capstan_protocol::FaultKind;

use crate::access::Caller;
use crate::answers::{PurgedSession, Session, SessionTurn};
use crate::app::App;
use crate::openapi::{self, Answer, Content, Row, Tag, model};
use crate::purge;
use crate::refusal::Refusal;

pub(crate) const TURNS: Row = Row {
    tag: Tag::Sessions,
    summary: "Read a session",
    says: "Its turns, oldest first. A turn is stored when its stream closes; one whose run failed or was stopped is partial, \
        and is not sent to agents.",
    place: Some(&openapi::SESSION),
    answers: &[Answer::ok("The session.", &[Content::Json(model::<Session<'_>>)])],
    faults: &[FaultKind::SessionNotFound, FaultKind::JournalUnavailable],
    ..Row::NONE
};

pub(crate) const PURGE: Row = Row {
    tag: Tag::Sessions,
    summary: "Erase a session",
    says: "Its runs are stopped; its turns and streams are erased for good. The keys of its runs stay taken, so that a duplicate \
        starts no second run.",
    place: Some(&openapi::SESSION),
    answers: &[Answer::ok("It is gone.", &[Content::Json(model::<PurgedSession<'_>>)])],
    faults: &[
        FaultKind::SessionNotFound,
        FaultKind::StreamNotFound,
        FaultKind::StreamExpired,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    ..Row::NONE
};

/// Another tenant's session answers exactly as an unknown one does.
async fn check(app: &App, caller: &Caller, id: &str) -> Result<(), Refusal> {
    let is_known = app.journal.store().has_session(&caller.tenant, id).await?;
    is_known.then_some(()).ok_or_else(|| FaultKind::SessionNotFound.into())
}

/// `GET /v1/sessions/{id}`: its turns, oldest first.
pub(crate) async fn turns(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    check(&app, &caller, &id).await?;
    let turns = app.journal.store().turns(&caller.tenant, &id, 0, usize::MAX).await?;
    let turns = turns.iter().map(SessionTurn::from).collect();
    Ok(Json(Session { session_id: &id, turns }).into_response())
}

/// `DELETE /v1/sessions/{id}`: its runs are stopped, its turns and streams erased.
pub(crate) async fn purge(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    check(&app, &caller, &id).await?;
    let streams = purge::session(&app, &caller.tenant, &id).await?;
    Ok(Json(PurgedSession { session_id: &id, streams }).into_response())
}
