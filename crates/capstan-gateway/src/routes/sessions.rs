//! `/v1/sessions/{id}`: what a conversation remembers, and how it is forgotten.

use axum::extract::{Path, State};
use axum::{Extension, Json};
use capstan_journal::Turn;
use capstan_protocol::FaultKind;
use serde_json::{Value, json};

use crate::access::Caller;
use crate::app::App;
use crate::purge;
use crate::refusal::Refusal;

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
) -> Result<Json<Value>, Refusal> {
    check(&app, &caller, &id).await?;
    let turns = app.journal.store().turns(&caller.tenant, &id).await?;
    Ok(Json(json!({ "session_id": id, "turns": turns.iter().map(told).collect::<Vec<_>>() })))
}

fn told(turn: &Turn) -> Value {
    json!({ "stream_id": turn.stream_id, "user": turn.user, "assistant": turn.assistant,
        "partial": turn.is_partial, "closed_at": turn.closed_at })
}

/// `DELETE /v1/sessions/{id}`: its runs are stopped, its turns and streams erased.
pub(crate) async fn purge(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    check(&app, &caller, &id).await?;
    let streams = purge::session(&app, &caller.tenant, &id).await?;
    Ok(Json(json!({ "session_id": id, "streams": streams })))
}
