//! `/v1/ag-ui`: AG-UI's run input starts a run or attaches to it, and a GET joins one. What cannot be read is refused
//! as HTTP; whatever else stands in the way is told in AG-UI's own words.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use capstan_agent::TraceParent;
use capstan_journal::{Found, Run};
use capstan_protocol::agui::AguiEvent;
use capstan_protocol::{Cursor, Fault, FaultKind, LastEventId};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::assist::{check_content_type, last_event_id, read_body, resume_point};
use crate::access::Caller;
use crate::app::App;
use crate::ask::Ask;
use crate::face::Face;
use crate::face::agui::{self, Agui, Begin, Facts};
use crate::openapi::{self, Answer, Content, Row, Tag, model};
use crate::query::Query;
use crate::reader::{self, View};
use crate::refusal::{self, Refusal, journal_fault};
use crate::runs::{self, ResumePoint, Start};
use crate::traces;

/// The answer to everything that could be read.
const EVENTS: Answer = Answer {
    headers: &[&openapi::STREAM_ID],
    ..Answer::ok(
        "AG-UI's events, with ids by which a client can read on. Whatever else stands in the way (a limit, an unknown agent, a conflict, \
         a run that is gone) is a stream, too, whose only event is RUN_ERROR: the published clients can read nothing else.",
        &[Content::Events(model::<AguiEvent>)],
    )
};

pub(crate) const POST: Row = Row {
    tag: Tag::Agui,
    summary: "Start a run in AG-UI, or attach to it",
    says: "As `POST /v1/assist` does, from AG-UI's run input: `runId` is the key. The same input sent again, with `Last-Event-ID` or without, attaches \
        and never starts a second run.",
    place: Some(&openapi::AGENT),
    headers: &[&openapi::CURSOR],
    body: Some(&openapi::RUN_INPUT),
    answers: &[Answer { links: openapi::LINKS_OF_INPUT, ..EVENTS }],
    faults: &[FaultKind::PayloadTooLarge, FaultKind::UnsupportedMediaType, FaultKind::Timeout],
    ..Row::NONE
};

pub(crate) const JOIN: Row = Row {
    tag: Tag::Agui,
    summary: "Join a run in AG-UI",
    says: "Whoever comes without a cursor gets a snapshot of what was said, then the live events. It only looks: a run that waits for its client is not armed.",
    place: Some(&openapi::AGENT),
    query: Some(JoinParams::json_schema),
    headers: &[&openapi::CURSOR],
    answers: &[EVENTS],
    ..Row::NONE
};

/// For the default agent.
pub(crate) async fn post(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Refusal> {
    run(&app, &caller, None, request).await
}

/// For the agent in the path.
pub(crate) async fn post_to(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    run(&app, &caller, Some(&agent), request).await
}

async fn run(app: &App, caller: &Caller, agent: Option<&str>, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    check_content_type(&parts.headers)?;
    let place = resume_point(app, last_event_id(&parts.headers)?, None);
    let body = read_body(app, body).await?;
    let ask = Arc::new(Ask::decode(agui::NAME, &body)?);
    let trace = traces::context_of(&parts.headers);
    let started = start(app, caller, agent, &ask, body.clone(), place, trace).await;
    let form = agui::form(agui::declares_version(&body));
    Ok(started.unwrap_or_else(|fault| refusal::run_error(app, &fault, form)))
}

async fn start(
    app: &App,
    caller: &Caller,
    agent: Option<&str>,
    ask: &Arc<Ask>,
    body: Bytes,
    place: ResumePoint,
    trace: Option<TraceParent>,
) -> Result<Response, Fault> {
    let slot = app.limiter.take_reader(&caller.tenant, &app.settings.limits)?;
    let start = Start {
        tenant: &caller.tenant,
        ask,
        body: body.clone(),
        agent,
        face: agui::NAME,
        // A reset becomes MESSAGES_SNAPSHOT, which every client knows.
        accepts_reset: true,
        place,
        trace,
    };
    let run = runs::start_or_attach(app, start).await?;
    place.in_run(&run)?;
    let facts = Facts::new(&run, Some(&body), &app.settings);
    let face = open(app, &run, facts, place.cursor.map(LastEventId::cursor)).await?;
    Ok(reader::respond(app, &run, face.base(), Face::Agui(Box::new(face)), View::Post, slot))
}

/// Without a cursor, whoever comes to a stream that has begun may hold some of it already.
async fn open(app: &App, run: &Run, facts: Facts, cursor: Option<Cursor>) -> Result<Agui, Fault> {
    let begin = match cursor {
        Some(cursor) => Begin::After(cursor),
        None if run.last_seq == 0 => Begin::After(Cursor::start(run.stream_id)),
        None => Begin::Join,
    };
    Agui::open(app, run, facts, begin).await.map_err(journal_fault)
}

/// What a GET may say.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct JoinParams {
    /// The key of the run.
    #[serde(rename = "runId")]
    #[schemars(example = "run-1")]
    run: String,
    /// `-1` for all events from the start, else a cursor. `Last-Event-ID` beats it.
    offset: Option<String>,
}

impl JoinParams {
    fn wants_all(&self) -> bool {
        self.offset.as_deref() == Some("-1")
    }

    fn cursor(&self) -> Result<Option<LastEventId>, Fault> {
        let offset = self.offset.as_deref().filter(|offset| *offset != "-1");
        let wrong = |e| Fault::new(FaultKind::InvalidRequest).with_message(format!("offset: {e}, or -1"));
        offset.map(|offset| offset.parse().map_err(wrong)).transpose()
    }
}

/// `GET /v1/ag-ui?runId=…&offset=…`: TanStack's join. It only looks: a run that waits is not armed.
pub(crate) async fn join(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<JoinParams>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    join_run(&app, &caller, None, &params, &headers).await
}

/// The same for the agent in the path.
pub(crate) async fn join_of(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    Query(params): Query<JoinParams>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    join_run(&app, &caller, Some(&agent), &params, &headers).await
}

async fn join_run(
    app: &App,
    caller: &Caller,
    agent: Option<&str>,
    params: &JoinParams,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    // A reconnecting client repeats its URL, so the header is the newer word.
    let place = resume_point(app, last_event_id(headers)?.or(params.cursor()?), None);
    let joined = async {
        let run = find(app, caller, agent, &params.run).await?;
        place.in_run(&run)?;
        let all = params.wants_all().then(|| Cursor::start(run.stream_id));
        let facts = facts(app, &run).await?;
        let slot = app.limiter.take_reader(&caller.tenant, &app.settings.limits)?;
        let face = open(app, &run, facts, place.cursor.map(LastEventId::cursor).or(all)).await?;
        Ok(reader::respond(app, &run, face.base(), Face::Agui(Box::new(face)), View::Get, slot))
    };
    let form = agui::form(false);
    Ok(joined.await.unwrap_or_else(|fault: Fault| refusal::run_error(app, &fault, form)))
}

async fn find(app: &App, caller: &Caller, agent: Option<&str>, key: &str) -> Result<Run, Fault> {
    let found = app.journal.store().find(&caller.tenant, key).await.map_err(journal_fault)?;
    match found {
        Some(Found::Run(run)) if agent.is_none_or(|agent| run.agent == agent) => Ok(run),
        Some(Found::Expired) => Err(Fault::new(FaultKind::StreamExpired)),
        Some(Found::Run(_)) | None => Err(Fault::new(FaultKind::StreamNotFound)),
    }
}

/// Whoever looks gets what the client that started the run gets.
async fn facts(app: &App, run: &Run) -> Result<Facts, Fault> {
    let body = app.journal.store().body(run.stream_id).await.map_err(journal_fault)?;
    Ok(Facts::new(run, body.as_ref(), &app.settings))
}

/// `GET /v1/streams/{id}?face=ag-ui`: any stream, whichever face it was started through.
pub(crate) async fn watch(
    app: &App,
    caller: &Caller,
    run: &Run,
    place: ResumePoint,
) -> Result<Response, Refusal> {
    place.in_run(run)?;
    let facts = facts(app, run).await?;
    let after = place.after.map(|seq| Cursor::new(run.stream_id, seq));
    let cursor = place.cursor.map(LastEventId::cursor).or(after);
    if let Some(cursor) = cursor
        && agui::has_all(app, run, facts.clone(), cursor).await?
    {
        // An EventSource stops at this.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let slot = app.limiter.take_reader(&caller.tenant, &app.settings.limits)?;
    let face = open(app, run, facts, cursor).await?;
    Ok(reader::respond(app, run, face.base(), Face::Agui(Box::new(face)), View::Get, slot))
}
