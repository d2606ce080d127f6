//! Runs: find, list, show, stop and erase them.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use capstan_journal::{Query as RunQuery, Run, RunPage, RunState, Status};
use capstan_protocol::{Fault, FaultKind, Payload, Timestamp, sse};
use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::numbers::{HOUR, before};
use crate::Console;
use crate::answers::{Findings, Marks, RunDetails, RunRow, RunRows, StoppedRun};
use crate::marks::Span;
use crate::visitor::{Act, Look, Visitor};
use crate::{find as search, frames as telling, marks as packets};
use capstan_engine::faults::journal_fault;
use capstan_engine::{purge as erase, stopping};
use capstan_kit::openapi::{self, Answer, Content, Row, Tag, model};
use capstan_kit::query::Query;
use capstan_kit::refusal::Refusal;

/// The possible faults of a request about one run.
const OF_ONE: &[FaultKind] = &[
    FaultKind::RouteNotFound,
    FaultKind::StreamNotFound,
    FaultKind::StreamExpired,
    FaultKind::StreamLost,
    FaultKind::ServiceUnavailable,
    FaultKind::JournalUnavailable,
];

/// The id to find.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct FindParams {
    /// A stream's id or its first eight digits or more, a cursor, a run's key, an X-Request-ID, a
    /// session, the trace id of its `traceparent`.
    q: String,
}

pub(crate) const FIND: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Find runs by an id",
    says: "The id must be exact, or the beginning of a stream's id. The answer says what was \
     searched, and how far back.",
    query: Some(FindParams::json_schema),
    answers: &[Answer::ok("What was found.", &[Content::Json(model::<Findings>)])],
    faults: &[FaultKind::RouteNotFound, FaultKind::JournalUnavailable],
    ..Row::NONE
};

pub(crate) async fn find(
    State(console): State<Console>,
    visitor: Visitor,
    Query(params): Query<FindParams>,
) -> Result<Json<Findings>, Refusal> {
    let _one = console.engine.cpu_offload().answer(&visitor.payer()).await;
    Ok(Json(search::find(&console, &visitor, &params.q).await?))
}

/// The filters of a list.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ListParams {
    /// The tenant.
    tenant: Option<String>,
    /// The agent.
    agent: Option<String>,
    /// `running`, `waiting`, `failed`, `stopped`, `done` or `healed`.
    #[serde(default)]
    #[schemars(schema_with = "states")]
    state: Option<String>,
    /// A fault with which an attempt of the run ended.
    fault: Option<String>,
    /// The session.
    session: Option<String>,
    /// The earliest start.
    since: Option<Timestamp>,
    /// Only runs that began before this time.
    until: Option<Timestamp>,
    /// Only runs that began before this stream: `next` of the previous page.
    before: Option<Uuid>,
    /// The number of runs: 50 by default, 200 at most.
    limit: Option<usize>,
}

fn states(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let words = Status::ALL.map(Status::word);
    schemars::json_schema!({ "type": "string", "enum": words })
}

pub(crate) const LIST: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "List runs",
    says: "Newest first, in pages. A page examines 5,000 records at most, and says how far back it \
     came. A page without runs that is not `complete` proves nothing: continue with `next`.",
    query: Some(ListParams::json_schema),
    answers: &[Answer::ok("A page of runs.", &[Content::Json(model::<RunRows>)])],
    faults: &[FaultKind::RouteNotFound, FaultKind::JournalUnavailable],
    ..Row::NONE
};

const PAGE: usize = 50;

pub(crate) async fn list(
    State(console): State<Console>,
    visitor: Visitor,
    Query(params): Query<ListParams>,
) -> Result<Json<RunRows>, Refusal> {
    let by_session = params.session.is_some();
    let _one = console.engine.cpu_offload().answer(&visitor.payer()).await;
    let page = match query_of(&visitor, params)? {
        Some(query) => console.engine.store().page(query).await?,
        None => RunPage::default(),
    };
    // Sessions whose names are not visible cannot be searched either.
    let is_told = |run: &&Run| !by_session || visitor.sees_sessions_of(&console, &run.tenant);
    Ok(Json(RunRows {
        runs: page
            .runs
            .iter()
            .filter(is_told)
            .map(|run| RunRow::new(&console, &visitor, run))
            .collect(),
        next: page.next,
        looked_back_to: page.looked_back_to,
        complete: page.next.is_none(),
    }))
}

/// The query, limited to runs that the visitor may see. `None` if there can be none.
fn query_of(visitor: &Visitor, params: ListParams) -> Result<Option<RunQuery>, Fault> {
    let unknown = |word: &str| {
        let words = Status::ALL.map(Status::word).join(", ");
        let message = format!("state: {word:?} is unknown; expected one of {words}");
        Fault::new(FaultKind::InvalidRequest).with_message(message)
    };
    let status = params.state.filter(|word| !word.is_empty());
    let status =
        status.map(|word| Status::of_word(&word).ok_or_else(|| unknown(&word))).transpose()?;
    let some = |word: Option<String>| word.filter(|word| !word.is_empty());
    let tenants = match some(params.tenant) {
        Some(tenant) if visitor.sees(&tenant) => Some(vec![tenant]),
        Some(_) => return Ok(None),
        None => visitor.names(),
    };
    let until = params.until.map(RunQuery::first_id_at);
    Ok(Some(RunQuery {
        tenants,
        agent: some(params.agent),
        status,
        fault: some(params.fault),
        session: some(params.session),
        from: params.since.map(RunQuery::first_id_at),
        before: [params.before, until].into_iter().flatten().min(),
        limit: params.limit.unwrap_or(PAGE).clamp(1, RunQuery::MOST),
        ..RunQuery::default()
    }))
}

pub(crate) const DETAILS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Read why a run failed",
    says: "All attempts, the fault with its meaning and remedy, ids and times: everything except \
     content.",
    places: &[&openapi::STREAM],
    answers: &[Answer::ok("The run.", &[Content::Json(model::<RunDetails>)])],
    faults: OF_ONE,
    ..Row::NONE
};

pub(crate) async fn details(
    State(console): State<Console>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Json<RunDetails>, Refusal> {
    let run = visitor.run(&console, &id).await?;
    let run = Run { owner: owner_of(&console, &visitor, &run).await?, ..run };
    let mut details = RunDetails::new(&console, &visitor, &run);
    if let Some(fault) = &mut details.fault {
        fault.others_last_hour = others(&console, &visitor, &run, &fault.code).await?;
    }
    if let Some(fault) = &mut details.fault
        && details.may.content
    {
        let seq = run.attempts.iter().rev().find_map(|attempt| attempt.fault_seq);
        fault.details = match seq {
            Some(seq) => details_at(&console, &run, seq).await,
            None => None,
        };
    }
    Ok(Json(details))
}

/// The gateway that owns a run, if it may be another one.
async fn owner_of(
    console: &Console,
    visitor: &Visitor,
    run: &Run,
) -> Result<Option<String>, Refusal> {
    let store = console.engine.store();
    if !(store.is_shared() && visitor.sees_server() && run.state == RunState::Running) {
        return Ok(None);
    }
    let next = Uuid::from_u128(run.stream_id.as_u128().saturating_add(1));
    let (from, before, status) = (Some(run.stream_id), Some(next), Some(Status::Running));
    let page =
        store.page(RunQuery { from, before, status, limit: 1, ..RunQuery::default() }).await?;
    Ok(page.runs.into_iter().next().and_then(|run| run.owner))
}

/// The count stops here. The list has all of them.
const MOST_OTHERS: usize = 100;

/// The number of other runs with this fault in the last hour, as their list has it.
async fn others(
    console: &Console,
    visitor: &Visitor,
    run: &Run,
    code: &str,
) -> Result<u64, Refusal> {
    let from = Some(RunQuery::first_id_at(before(console.engine.now(), HOUR)));
    let (tenants, fault) = (visitor.names(), Some(code.to_owned()));
    // One more, because the run itself may be among them.
    let query = RunQuery { tenants, fault, from, limit: MOST_OTHERS + 1, ..RunQuery::default() };
    let _one = console.engine.cpu_offload().answer(&visitor.payer()).await;
    let page = console.engine.store().page(query).await?;
    let others = page.runs.iter().filter(|other| other.stream_id != run.stream_id);
    Ok(others.take(MOST_OTHERS).count() as u64)
}

/// The message of a run's error packet. `None` if it cannot be read.
async fn details_at(console: &Console, run: &Run, seq: u64) -> Option<Value> {
    let frames =
        console.engine.store().read(run.stream_id, seq.saturating_sub(1), 1, 1).await.ok()?;
    let packet = sse::decode_packet(&frames.first().filter(|frame| frame.seq == seq)?.bytes)?;
    let Payload::Error(error) = packet.payload else { return None };
    serde_json::to_value(error).ok()
}

/// The range of packets.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct MarkParams {
    /// The first packet; 1 by default.
    from: Option<u64>,
    /// The last packet; by default the last of the stream.
    to: Option<u64>,
    /// The number of samples of a long stream; 800 by default.
    columns: Option<u64>,
}

pub(crate) const MARKS: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "List the packets of a run without content",
    says: "For each its seq, the milliseconds since the run's request, its op, the type of an \
     event, and its length. All of them up to \
        20,000; of more some stand for all. 16 MiB are read at most; `read_to` says how far that \
        was.",
    places: &[&openapi::STREAM],
    query: Some(MarkParams::json_schema),
    answers: &[Answer::ok("The marks.", &[Content::Json(model::<Marks>)])],
    faults: OF_ONE,
    ..Row::NONE
};

pub(crate) async fn marks(
    State(console): State<Console>,
    visitor: Visitor,
    Path(id): Path<String>,
    Query(params): Query<MarkParams>,
) -> Result<Json<Marks>, Refusal> {
    let run = visitor.run(&console, &id).await?;
    let span = Span {
        from: params.from.unwrap_or(1),
        to: params.to.unwrap_or(u64::MAX),
        columns: params.columns.unwrap_or(800),
    };
    let _one = console.engine.cpu_offload().answer(&visitor.payer()).await;
    Ok(Json(packets::of(&console, &run, span).await?))
}

/// The range of frames.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct FrameParams {
    /// The first packet; 1 by default.
    from: Option<u64>,
    /// The last packet; by default the last of the stream.
    to: Option<u64>,
    /// The protocol of the frames: `cap`, `cap-v2` or `ag-ui`; cap by default.
    #[serde(default)]
    #[schemars(schema_with = "faces")]
    face: Option<String>,
}

fn faces(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "enum": ["cap", "cap-v2", "ag-ui"] })
}

pub(crate) const FRAMES: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Read the frames of a run",
    says: "The events that `GET /v1/streams/{id}` sends, up to the last existing packet, without \
     waiting for more. `capstan replay` can serve the events of a closed run again. Needs the \
     right `content`, and writes an audit line.",
    places: &[&openapi::STREAM],
    query: Some(FrameParams::json_schema),
    answers: &[Answer {
        headers: &[&openapi::STREAM_ID],
        ..Answer::ok("The frames.", &[Content::Text("text/event-stream")])
    }],
    faults: OF_ONE,
    ..Row::NONE
};

pub(crate) async fn frames(
    State(console): State<Console>,
    visitor: Visitor,
    Path(id): Path<String>,
    Query(params): Query<FrameParams>,
) -> Result<Response, Refusal> {
    let run = visitor.run(&console, &id).await?;
    visitor.look(&console, Look::Frames, &run.tenant, Some(run.stream_id))?;
    let face = telling::face_of(&console, params.face.as_deref())?;
    let span = (params.from.unwrap_or(1), params.to.unwrap_or(u64::MAX));
    Ok(telling::respond(&console, run, face, span).await?)
}

pub(crate) const BODY: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Read the body of a run's request",
    says: "The body of the request. Headers are not stored. Needs the right `content`, and writes \
     an audit line.",
    places: &[&openapi::STREAM],
    answers: &[Answer::ok("The body.", &[Content::Json(model::<Value>)])],
    faults: OF_ONE,
    ..Row::NONE
};

pub(crate) async fn body(
    State(console): State<Console>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let run = visitor.run(&console, &id).await?;
    visitor.look(&console, Look::Body, &run.tenant, Some(run.stream_id))?;
    let body = console.engine.store().body(run.stream_id).await?.ok_or(FaultKind::StreamExpired)?;
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

pub(crate) const STOP: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Stop a run",
    says: "Answers when the CLOSE is in the journal. A run that has ended does not change. Needs \
     the right `act`, and writes an audit line.",
    places: &[&openapi::STREAM],
    answers: &[Answer::ok("The state of the run.", &[Content::Json(model::<StoppedRun>)])],
    faults: OF_ONE,
    ..Row::NONE
};

pub(crate) async fn stop(
    State(console): State<Console>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<Json<StoppedRun>, Refusal> {
    let run = visitor.run(&console, &id).await?;
    visitor.check_act(&console, Act::Stop, &run.tenant)?;
    let run = stopping::stop(&console.engine, run, &visitor.requester(&console)).await?;
    Ok(Json(StoppedRun { state: Status::of(&run), reason: run.reason }))
}

pub(crate) const PURGE: Row = Row {
    tag: &Tag::CONSOLE,
    summary: "Erase a run",
    says: "Stops the run, then erases its packets, its body, its record and its turn for good. Its \
     key stays taken. It needs the right `act`, and leaves an audit line.",
    places: &[&openapi::STREAM],
    answers: &[Answer { status: 204, ..Answer::ok("The run is erased.", &[]) }],
    faults: OF_ONE,
    ..Row::NONE
};

pub(crate) async fn purge(
    State(console): State<Console>,
    visitor: Visitor,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    let run = visitor.run(&console, &id).await?;
    visitor.check_act(&console, Act::Purge, &run.tenant)?;
    erase::stream(&console.engine, run, &visitor.requester(&console)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks that a session of this tenant is visible. The error is the same whoever owns it.
pub(super) async fn check_session(
    console: &Console,
    visitor: &Visitor,
    tenant: &str,
    session: &str,
) -> Result<(), Fault> {
    let is_known = visitor.sees_sessions_of(console, tenant)
        && console.engine.store().has_session(tenant, session).await.map_err(journal_fault)?;
    is_known.then_some(()).ok_or_else(|| Fault::new(FaultKind::SessionNotFound))
}
