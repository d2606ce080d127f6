//! `/v1/sessions/{id}`: reads and erases the stored turns of a conversation.

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use capstan_journal::{StoredTurn, TurnRange};
use capstan_protocol::{Fault, FaultKind};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::accounted_body;
use crate::answers::{PurgedSession, Session, SessionTurn};
use crate::face::FaceContext;
use crate::identity::caller::Caller;
use crate::identity::scopes::Operation;
use crate::query::Query;
use crate::refusal::Refusal;
use capstan_engine::ask::check_id;
use capstan_engine::{Engine, purge};
use capstan_kit::openapi::{self, Answer, Content, Does, Row, Tag, model};

/// The most turns of a page.
const PAGE: usize = 1000;
/// The most bytes of a page, unless a single turn is larger.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

pub(crate) const TURNS: Row = Row {
    tag: &Tag::SESSIONS,
    summary: "Read a session",
    says: "Its turns, oldest first: the messages that each run added, and its questions without an \
     answer. A turn is stored when its stream closes. The turn of a run that failed or was stopped \
     is partial, and agents do not get it.",
    places: &[&openapi::SESSION],
    query: Some(TurnParams::json_schema),
    answers: &[Answer::ok("The session.", &[Content::Json(model::<Session<'_>>)])],
    faults: &[
        FaultKind::SessionNotFound,
        FaultKind::SessionLimitExceeded,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    ..Row::NONE
};

pub(crate) const PURGE: Row = Row {
    tag: &Tag::SESSIONS,
    summary: "Erase a session",
    says: "Its runs are stopped; its turns and streams are erased for good. The keys of its runs \
     stay taken, so that a duplicate \
        starts no second run.",
    places: &[&openapi::SESSION],
    answers: &[Answer::ok("It is gone.", &[Content::Json(model::<PurgedSession<'_>>)])],
    faults: &[
        FaultKind::SessionNotFound,
        FaultKind::StreamExpired,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    does: Does::This(Operation::Purge),
    ..Row::NONE
};

/// Another tenant's session gives the same answer as an unknown one.
async fn check(engine: &Engine, caller: &Caller, id: &str) -> Result<(), Refusal> {
    check_id("the session's id", id)?;
    let is_known = engine.store().has_session(&caller.tenant, id).await?;
    is_known.then_some(()).ok_or_else(|| FaultKind::SessionNotFound.into())
}

/// The parameters of a page.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TurnParams {
    /// The turn that the page follows: `next` of the page before.
    from: Option<u64>,
    /// The number of turns: 100 by default, 1000 at most. A page may be shorter, because its size
    /// is limited as well.
    limit: Option<usize>,
}

/// `GET /v1/sessions/{id}`: its turns, oldest first.
pub(crate) async fn turns(
    State(cx): State<FaceContext>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(params): Query<TurnParams>,
) -> Result<Response, Refusal> {
    check(&cx.engine, &caller, &id).await?;
    let (after, limit) = (params.from.unwrap_or(0), params.limit.unwrap_or(100).clamp(1, PAGE));
    let store = cx.engine.store();
    // Taken before anything is read, so that parallel requests do not hold a page each.
    let _one = cx.engine.cpu_offload().answer(&caller.tenant).await;
    let page = store
        .turns(TurnRange {
            tenant: &caller.tenant,
            session: &id,
            from: after.saturating_add(1),
            limit,
            max_bytes: PAGE_BYTES,
        })
        .await?;
    let bytes: usize = page.iter().map(StoredTurn::said_bytes).sum();
    let mut load = cx.engine.reserve(&caller.tenant);
    load.grow(bytes.saturating_mul(3))?;
    let last = page.last().map_or(after, |turn| turn.number);
    let has_more = !store
        .turns(TurnRange {
            from: last.saturating_add(1),
            limit: 1,
            ..TurnRange::all(&caller.tenant, &id)
        })
        .await?
        .is_empty();
    let next = Some(last).filter(|_| has_more);
    let mut turns = Vec::new();
    for turn in page {
        turns.push(SessionTurn::of(&cx.engine, turn).await?);
    }
    Ok(accounted_body::json(&Session { session_id: &id, turns, next }, load)?)
}

/// `DELETE /v1/sessions/{id}`: stops its runs, and erases its turns and streams.
pub(crate) async fn purge(
    State(cx): State<FaceContext>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    check_id("the session's id", &id)?;
    if let Err(unknown) = check(&cx.engine, &caller, &id).await {
        let is_erased = cx.engine.is_erased(&caller.tenant, &id);
        let fault = Fault::new(FaultKind::StreamExpired)
            .with_message("The session was erased a moment ago.");
        return Err(if is_erased { fault.into() } else { unknown });
    }
    let streams = purge::session(&cx.engine, &caller.tenant, &id, &caller).await?;
    Ok(Json(PurgedSession { session_id: &id, streams }).into_response())
}
