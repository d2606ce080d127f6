//! `/v1/streams`: watch, list, page through, stop.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use capstan_journal::{Run, RunState};
use capstan_protocol::{Fault, FaultKind, Profile};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::agui;
use super::assist::{Params, place_of};
use crate::access::Caller;
use crate::app::App;
use crate::face::{Cap, Face};
use crate::reader::{self, View};
use crate::refusal::{Refusal, journal_fault};
use crate::{purge, relay, runs};

/// A page holds at most this many entries.
const PAGE: usize = 1000;
/// A page of packets holds at most this many bytes.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// Another tenant's stream answers exactly as an unknown one does.
pub(super) async fn own_run(app: &App, caller: &Caller, id: &str) -> Result<Run, Fault> {
    let unknown = || Fault::new(FaultKind::StreamNotFound);
    let stream: Uuid = id.parse().map_err(|_| unknown())?;
    let store = app.journal.store();
    let run = store.run(stream).await.map_err(journal_fault)?;
    if let Some(run) = run.filter(|run| run.tenant == caller.tenant) {
        return Ok(run);
    }
    let is_expired = store.is_expired(&caller.tenant, stream).await.map_err(journal_fault)?;
    Err(if is_expired { Fault::new(FaultKind::StreamExpired) } else { unknown() })
}

/// `GET /v1/streams/{id}`: any number of viewers, EventSource among them.
pub(crate) async fn watch(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(params): Query<Params>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let run = own_run(&app, &caller, &id).await?;
    let place = place_of(&app, &headers, &params)?;
    if params.is_agui()? {
        return agui::watch(&app, &caller, &run, place).await;
    }
    let after = place.in_run(&run)?;
    if run.state == RunState::Closed && after >= run.last_seq {
        // An EventSource stops at this.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let face = Face::Cap(Cap(params.profile()?.unwrap_or(Profile::V1)));
    let slot = app.limiter.take_reader(&caller.tenant, &app.settings.limits)?;
    Ok(reader::respond(&app, &run, after, face, View::Get, slot))
}

#[derive(Debug, Deserialize)]
pub(crate) struct ListParams {
    before: Option<Uuid>,
    limit: Option<usize>,
}

/// `GET /v1/streams`: newest first.
pub(crate) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<ListParams>,
) -> Result<Json<Value>, Refusal> {
    let limit = params.limit.unwrap_or(100).clamp(1, PAGE);
    let runs = app.journal.store().list(&caller.tenant, params.before, limit).await?;
    let next = runs.last().filter(|_| runs.len() == limit).map(|run| run.stream_id);
    Ok(Json(json!({ "streams": runs.iter().map(summary).collect::<Vec<_>>(), "next": next })))
}

/// What may be said of a run: not its body, not its hash.
fn summary(run: &Run) -> Value {
    json!({
        "stream_id": run.stream_id, "request_id": run.key, "agent": run.agent, "session_id": run.session,
        "state": run.state, "attempt": run.attempt, "max_attempts": run.max_attempts, "packets": run.last_seq,
        "bytes": run.bytes, "created_at": run.created_at, "updated_at": run.updated_at, "closed_at": run.closed_at,
        "not_before": run.not_before, "fault": run.fault, "reason": run.reason, "model": run.model, "usage": run.usage,
    })
}

/// `GET /v1/streams/{id}/packets`: a page of packets as JSON.
pub(crate) async fn packets(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(params): Query<PageParams>,
) -> Result<Json<Value>, Refusal> {
    let run = own_run(&app, &caller, &id).await?;
    let limit = params.limit.unwrap_or(100).clamp(1, PAGE);
    let frames =
        app.journal.store().read(run.stream_id, params.after.unwrap_or(0), limit, PAGE_BYTES).await?;
    let packets: Vec<_> = frames.iter().filter_map(|frame| relay::packet_of(&frame.bytes)).collect();
    let last = frames.last().map(|frame| frame.seq);
    let next = last.filter(|seq| *seq < run.last_seq);
    Ok(Json(json!({ "stream": summary(&run), "packets": packets, "next": next })))
}

#[derive(Debug, Deserialize)]
pub(crate) struct PageParams {
    after: Option<u64>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StopParams {
    #[serde(default)]
    purge: bool,
}

/// `DELETE /v1/streams/{id}`: answers when the CLOSE is journalled; a finished run is unchanged. With `?purge=true` it
/// is erased as well.
pub(crate) async fn stop(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(params): Query<StopParams>,
) -> Result<Json<Value>, Refusal> {
    let run = own_run(&app, &caller, &id).await?;
    let run = if params.purge { purge::stream(&app, run).await? } else { runs::stop(&app, run).await? };
    Ok(Json(summary(&run)))
}
