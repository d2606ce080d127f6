//! A conversation, as its user saw it.

use axum::extract::{Path, State};
use axum::response::Response;
use capstan_journal::{NameKind, Named, StoredTurn, TurnRange};
use capstan_protocol::FaultKind;
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::runs::check_session;
use crate::Console;
use crate::answers::RunRow;
use crate::visitor::{Act, Look, Visitor};
use capstan_engine::purge as erase;
use capstan_kit::accounted_body;
use capstan_kit::answers::SessionTurn;
use capstan_kit::openapi::{self, Answer, Content, Row, Tag, model};
use capstan_kit::query::Query;
use capstan_kit::refusal::Refusal;

/// Turns and runs of a page.
const PAGE: usize = 100;
/// Bytes of a page's turns.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A conversation, oldest turn first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Conversation {
    pub(crate) turns: Vec<NumberedTurn>,
    /// Its runs, newest first, including failed and open ones.
    pub(crate) runs: Vec<RunRow>,
    /// The usage of the runs of this page, added up.
    pub(crate) usage: Map<String, Value>,
    /// `from` of the next page, if there are more turns.
    pub(crate) next: Option<u64>,
}

/// A turn, and its place.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NumberedTurn {
    pub(crate) n: u64,
    #[serde(flatten)]
    pub(crate) turn: SessionTurn,
}

/// The parameters of a page.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct TurnParams {
    /// The turn that the page follows: `next` of the page before.
    from: Option<u64>,
}

pub(crate) const READ: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Read a conversation",
    says: "Its turns, and its runs, 100 of each. It needs the right `content`, and \
     leaves an audit line.",
    places: &[&openapi::TENANT, &openapi::SESSION],
    query: Some(TurnParams::json_schema),
    answers: &[Answer::ok("The conversation.", &[Content::Json(model::<Conversation>)])],
    faults: &[
        FaultKind::RouteNotFound,
        FaultKind::SessionNotFound,
        FaultKind::SessionLimitExceeded,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    ..Row::NONE
};

pub(crate) async fn read(
    State(console): State<Console>,
    visitor: Visitor,
    Path((tenant, session)): Path<(String, String)>,
    Query(params): Query<TurnParams>,
) -> Result<Response, Refusal> {
    check_session(&console, &visitor, &tenant, &session).await?;
    visitor.look(&console, Look::Session, &tenant, None)?;
    let (store, after) = (console.engine.store(), params.from.unwrap_or(0));
    let _one = console.engine.cpu_offload().answer(&visitor.payer()).await;
    let page = store
        .turns(TurnRange {
            tenant: &tenant,
            session: &session,
            from: after.saturating_add(1),
            limit: PAGE,
            max_bytes: PAGE_BYTES,
        })
        .await?;
    let bytes: usize = page.iter().map(StoredTurn::said_bytes).sum();
    let mut load = console.engine.reserve(&tenant);
    load.grow(bytes.saturating_mul(3))?;
    let last = page.last().map_or(after, |turn| turn.number);
    let has_more = !store
        .turns(TurnRange {
            from: last.saturating_add(1),
            limit: 1,
            ..TurnRange::all(&tenant, &session)
        })
        .await?
        .is_empty();
    let mut turns = Vec::new();
    for turn in page {
        turns.push(NumberedTurn {
            n: turn.number,
            turn: SessionTurn::of(&console.engine, turn).await?,
        });
    }
    let runs = store
        .named(Named { limit: PAGE, ..Named::all(&tenant, NameKind::Session, &session) })
        .await?;
    let mut usage = Map::new();
    runs.iter().filter_map(|run| run.usage.as_ref()).for_each(|used| add(&mut usage, used));
    let runs = runs.iter().map(|run| RunRow::new(&console, &visitor, run)).collect();
    let next = Some(last).filter(|_| has_more);
    Ok(accounted_body::json(&Conversation { turns, runs, usage, next }, load)?)
}

/// Adds up the numbers of the same name.
fn add(sum: &mut Map<String, Value>, used: &Map<String, Value>) {
    for (name, value) in used {
        if let Some(more) = value.as_u64() {
            let before = sum.get(name).and_then(Value::as_u64).unwrap_or(0);
            sum.insert(name.clone(), before.saturating_add(more).into());
        }
    }
}

pub(crate) const PURGE: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Erase a conversation",
    says: "Stops its runs, and erases its turns and streams for good. It needs the right `act`, \
     and leaves an audit line.",
    places: &[&openapi::TENANT, &openapi::SESSION],
    answers: &[Answer { status: 204, ..Answer::ok("The session is erased.", &[]) }],
    faults: &[
        FaultKind::RouteNotFound,
        FaultKind::SessionNotFound,
        FaultKind::StreamExpired,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    ..Row::NONE
};

pub(crate) async fn purge(
    State(console): State<Console>,
    visitor: Visitor,
    Path((tenant, session)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    check_session(&console, &visitor, &tenant, &session).await?;
    visitor.check_act(&console, Act::Purge, &tenant)?;
    erase::session(&console.engine, &tenant, &session, &visitor.requester(&console)).await?;
    Ok(StatusCode::NO_CONTENT)
}
