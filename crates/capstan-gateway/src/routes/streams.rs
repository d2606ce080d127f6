//! `/v1/streams`: watches, lists, pages and stops streams.

use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use capstan_protocol::{Fault, FaultKind, Profile, sse};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use uuid::Uuid;

use crate::accounted_body;
use crate::answers::{PacketPage, Stream, StreamPage};
use crate::face::last_event_id::resume_point;
use crate::face::post;
use crate::face::reader::ViewerKind;
use crate::face::{FaceContext, Faces, ViewRequest};
use crate::identity::caller::Caller;
use crate::identity::scopes::Operation;
use crate::query::Query;
use crate::refusal::Refusal;
use capstan_engine::{cpu_offload, lookup, purge, stopping};
use capstan_kit::openapi::{self, Answer, Content, Row, Tag, model};

/// The state of these routes.
#[derive(Clone)]
pub(crate) struct Streams {
    pub(crate) cx: FaceContext,
    pub(crate) faces: Faces,
}

/// The most entries of a page.
const PAGE: usize = 1000;
/// The most bytes of a page of packets.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The approximate size of a run in a list.
const RUN_BYTES: usize = 1024;

/// The parameters of a viewer.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WatchParams {
    /// The profile of the packets; v1 by default.
    #[expect(dead_code, reason = "for the description: CAP reads it")]
    profile: Option<Profile>,
    /// Begin after this packet, if there is no `Last-Event-ID`.
    after: Option<u64>,
    /// The protocol of the events; cap by default.
    #[serde(default)]
    #[schemars(schema_with = "capstan_faces::face_names")]
    face: Option<String>,
}

pub(crate) const WATCH: Row = Row {
    tag: &Tag::STREAMS,
    summary: "Watch a stream",
    says: "Server-sent events, replayed from the start or from a cursor, then live until the \
     stream ends. Any number of viewers may watch, also an EventSource, whichever protocol started \
     the run.\n\nThe request only reads: it does not continue a run that waits for its client, and \
     a closed connection does not stop the run.",
    places: &[&openapi::STREAM],
    query: Some(WatchParams::json_schema),
    headers: &[&openapi::CURSOR],
    answers: &[
        Answer {
            headers: &[&openapi::STREAM_ID],
            ..Answer::ok(
                "The packets, an event each. The `id:` of an event is the cursor after it.",
                &[Content::Events(capstan_faces::events_of_any_face)],
            )
        },
        Answer {
            status: 204,
            ..Answer::ok(
                "The cursor is at the end: there is nothing more to come. An EventSource stops.",
                &[],
            )
        },
    ],
    faults: &[
        FaultKind::StreamNotFound,
        FaultKind::StreamExpired,
        FaultKind::StreamLost,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    ..Row::NONE
};

/// `GET /v1/streams/{id}`: any number of viewers, EventSource among them.
pub(crate) async fn watch(
    State(Streams { cx, faces }): State<Streams>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(params): Query<WatchParams>,
    request: Request,
) -> Result<Response, Refusal> {
    let run = lookup::by_stream(&cx.engine, &caller.tenant, &id).await?;
    let (parts, _) = request.into_parts();
    let name = params.face.as_deref().unwrap_or("cap");
    let face = faces.named(name).ok_or_else(|| unknown_face(&faces, name))?;
    let point = resume_point(&parts.headers)?.or_after(params.after);
    let opening =
        ViewRequest { run: &run, point, view: ViewerKind::Get, parts: &parts, posted: None };
    if face.has_all(&cx, &opening).await? {
        // An EventSource does not reconnect after this status.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(post::watch(&cx, &**face, opening).await?)
}

fn unknown_face(faces: &Faces, name: &str) -> Fault {
    let known: Vec<&str> = faces.iter().map(|face| face.name()).collect();
    let message = format!("face: {name:?} is unknown; expected one of {}", known.join(", "));
    Fault::new(FaultKind::InvalidRequest).with_message(message)
}

/// The parameters of a page.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ListParams {
    /// Only streams that began before this one: `next` of the page before.
    before: Option<Uuid>,
    /// The number of streams: 100 by default, 1000 at most.
    limit: Option<usize>,
}

pub(crate) const LIST: Row = Row {
    tag: &Tag::STREAMS,
    summary: "List streams",
    says: "The tenant's own, newest first.",
    query: Some(ListParams::json_schema),
    answers: &[Answer::ok("A page of streams.", &[Content::Json(model::<StreamPage<'_>>)])],
    faults: &[FaultKind::SessionLimitExceeded, FaultKind::JournalUnavailable],
    ..Row::NONE
};

/// `GET /v1/streams`: newest first.
pub(crate) async fn list(
    State(Streams { cx, .. }): State<Streams>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<ListParams>,
) -> Result<Response, Refusal> {
    let limit = params.limit.unwrap_or(100).clamp(1, PAGE);
    let _one = cx.engine.cpu_offload().answer(&caller.tenant).await;
    let runs = cx.engine.store().list(&caller.tenant, params.before, limit).await?;
    let next = runs.last().filter(|_| runs.len() == limit).map(|run| run.stream_id);
    let mut load = cx.engine.reserve(&caller.tenant);
    // Not limited by the tenant's memory: a tenant at its limit must still see which runs to stop.
    load.grow_beyond(runs.len().saturating_mul(RUN_BYTES))?;
    Ok(accounted_body::json(
        &StreamPage { streams: runs.iter().map(Stream::from).collect(), next },
        load,
    )?)
}

/// The parameters of a page.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct PageParams {
    /// Only packets after this one: `next` of the page before.
    after: Option<u64>,
    /// The number of packets: 100 by default, 1000 at most. A page may be shorter, because its size
    /// is limited as well.
    limit: Option<usize>,
}

pub(crate) const PACKETS: Row = Row {
    tag: &Tag::STREAMS,
    summary: "Page through the packets of a stream",
    says: "What is in the journal now, as JSON instead of a stream.",
    places: &[&openapi::STREAM],
    query: Some(PageParams::json_schema),
    answers: &[Answer::ok("A page of packets.", &[Content::Json(model::<PacketPage<'_>>)])],
    faults: &[
        FaultKind::StreamNotFound,
        FaultKind::StreamExpired,
        FaultKind::SessionLimitExceeded,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    ..Row::NONE
};

/// `GET /v1/streams/{id}/packets`: a page of packets as JSON.
pub(crate) async fn packets(
    State(Streams { cx, .. }): State<Streams>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(params): Query<PageParams>,
) -> Result<Response, Refusal> {
    let run = lookup::by_stream(&cx.engine, &caller.tenant, &id).await?;
    let limit = params.limit.unwrap_or(100).clamp(1, PAGE);
    let _one = cx.engine.cpu_offload().answer(&caller.tenant).await;
    let frames =
        cx.engine.store().read(run.stream_id, params.after.unwrap_or(0), limit, PAGE_BYTES).await?;
    let mut load = cx.engine.reserve(&caller.tenant);
    let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
    load.grow(bytes.saturating_mul(3))?;
    let last = frames.last().map(|frame| frame.seq);
    let next = last.filter(|seq| *seq < run.last_seq);
    let answer = || {
        let packets: Vec<_> =
            frames.iter().filter_map(|frame| sse::decode_packet(&frame.bytes)).collect();
        accounted_body::json(&PacketPage { stream: Stream::from(&run), packets, next }, load)
    };
    Ok(cpu_offload::run(bytes, answer)?)
}

/// The parameters of a stop.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct StopParams {
    /// Also erase the stream, for good.
    #[serde(default)]
    purge: bool,
}

pub(crate) const STOP: Row = Row {
    tag: &Tag::STREAMS,
    summary: "Stop a run",
    says: "Answers when the stream is closed as `cancelled`. Later output of the agent is dropped. \
     A run that has ended does not change. `purge=true` also erases its stream and its turn; its \
     key stays in use.",
    places: &[&openapi::STREAM],
    query: Some(StopParams::json_schema),
    answers: &[Answer::ok(
        "The run in its present or last state.",
        &[Content::Json(model::<Stream<'_>>)],
    )],
    faults: &[
        FaultKind::StreamNotFound,
        FaultKind::StreamExpired,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    ..Row::NONE
};

/// `DELETE /v1/streams/{id}`: answers when the CLOSE is in the journal. A finished run does not
/// change. `?purge=true` also erases it.
pub(crate) async fn stop(
    State(Streams { cx, .. }): State<Streams>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(params): Query<StopParams>,
) -> Result<Response, Refusal> {
    if !params.purge {
        let run = lookup::by_stream(&cx.engine, &caller.tenant, &id).await?;
        let run = stopping::stop(&cx.engine, run, &caller).await?;
        return Ok(Json(Stream::from(&run)).into_response());
    }
    caller.check(Operation::Purge)?;
    let run = lookup::by_stream(&cx.engine, &caller.tenant, &id).await?;
    let run = purge::stream(&cx.engine, run, &caller).await?;
    Ok(Json(Stream::from(&run)).into_response())
}
