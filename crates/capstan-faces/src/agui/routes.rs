//! `/v1/ag-ui`: AG-UI's run input starts a run or attaches to it, and a GET joins one. A body that
//! cannot be decoded is refused by HTTP status. Any other failure is a RUN_ERROR event.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use capstan_protocol::agui::{AguiEvent, RunAgentInput};
use capstan_protocol::{Fault, FaultKind, LastEventId};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Agui;
use crate::face::FaceContext;
use crate::face::last_event_id::resume_point;
use crate::face::post;
use crate::face::reader::ViewerKind;
use crate::face::{self, RefusalTarget, ViewRequest};
use crate::identity::caller::Caller;
use crate::identity::tickets::STREAM as WATCH;
use crate::openapi::{
    self, Answer, Body, Content, Link, Row, Tag, model, of_session, of_stream, of_user,
};
use crate::query;
use crate::refusal::Refusal;
use capstan_engine::lookup;

const TAG: Tag = Tag { name: "AG-UI", says: "The same runs as AG-UI events." };

/// The answer to a body that could be decoded.
const EVENTS: Answer = Answer {
    headers: &[&openapi::STREAM_ID],
    ..Answer::ok(
        "AG-UI's events, with ids by which a client can resume. Any other failure (a limit, an \
         unknown agent, a conflict, an expired run) is also a stream, whose only event is \
         RUN_ERROR, because the published clients can read nothing else.",
        &[Content::Events(model::<AguiEvent>)],
    )
};

pub(super) const POST: Row = Row {
    tag: &TAG,
    summary: "Start a run in AG-UI, or attach to it",
    says: "Works like `POST /v1/assist`, with AG-UI's run input: `runId` is the key. The same \
     input sent again, with `Last-Event-ID` or without, attaches and never starts a second run.",
    places: &[&openapi::AGENT],
    headers: &[&openapi::CURSOR],
    body: Some(&RUN_INPUT),
    answers: &[Answer { links: LINKS_OF_INPUT, ..EVENTS }],
    faults: &[FaultKind::PayloadTooLarge, FaultKind::UnsupportedMediaType, FaultKind::Timeout],
    ..Row::NONE
};

pub(super) const JOIN: Row = Row {
    tag: &TAG,
    summary: "Join a run in AG-UI",
    says: "A client without a cursor gets a snapshot of the messages so far, then the live events. \
     The request only reads: it does not continue a run that waits for its client.",
    places: &[&openapi::AGENT],
    query: Some(JoinParams::json_schema),
    headers: &[&openapi::CURSOR],
    answers: &[EVENTS],
    ..Row::NONE
};

/// The query of a GET.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct JoinParams {
    /// The key of the run.
    #[serde(rename = "runId")]
    #[schemars(example = "run-1")]
    pub(super) run: String,
    /// `-1` for all events from the start, else a cursor. `Last-Event-ID` takes precedence.
    offset: Option<String>,
}

impl JoinParams {
    pub(super) fn wants_all(&self) -> bool {
        self.offset.as_deref() == Some("-1")
    }

    pub(super) fn cursor(&self) -> Result<Option<LastEventId>, Fault> {
        let offset = self.offset.as_deref().filter(|offset| *offset != "-1");
        let wrong =
            |e| Fault::new(FaultKind::InvalidRequest).with_message(format!("offset: {e}, or -1"));
        offset.map(|offset| offset.parse().map_err(wrong)).transpose()
    }
}

/// `GET /v1/ag-ui?runId=…&offset=…`: TanStack's join. It only watches and arms no waiting run.
pub(super) async fn join(
    agui: Arc<Agui>,
    State(cx): State<FaceContext>,
    Extension(caller): Extension<Caller>,
    agent: Option<Path<String>>,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let params: JoinParams = query::parse(&parts.uri)?;
    let point = resume_point(&parts.headers)?.or_cursor(params.cursor()?);
    let point = point.or_after(params.wants_all().then_some(0));
    let joined = async {
        let run = lookup::by_key(&cx.engine, &caller.tenant, &params.run).await?;
        if agent.is_some_and(|Path(name)| cx.engine.own_name(&name) != run.agent) {
            return Err(Fault::new(FaultKind::StreamNotFound));
        }
        let opening =
            ViewRequest { run: &run, point, view: ViewerKind::Get, parts: &parts, posted: None };
        post::watch(&cx, &*agui, opening).await
    };
    joined.await.map_err(|fault| face::refusal(&cx, &*agui, fault, RefusalTarget::Viewer(&parts)))
}

/// Of AG-UI.
const RUN_INPUT: Body = Body {
    says: "`runId` is the key: the run starts at most once for it. `threadId` is the session. The \
     last message of role user is the turn.",
    model: run_input,
    examples: &[("run", agui)],
};

fn run_input(generator: &mut SchemaGenerator) -> Schema {
    let name = json!({ "minLength": 1, "maxLength": 1024 });
    json_schema!({ "allOf": [model::<RunAgentInput>(generator)],
        "properties": { "runId": name, "threadId": name, "messages": of_user(json_schema!({})) } })
}

fn agui() -> Value {
    json!({
        "threadId": "support-17",
        "runId": "run-1",
        "messages": [{ "id": "m1", "role": "user", "content": "Why is the sky blue?" }],
        "tools": [],
        "context": [],
    })
}

/// The same for a run that was started in AG-UI.
const LINKS_OF_INPUT: &[Link] = &[
    Link { method: "get", path: "/v1/ag-ui", parameter: "runId", value: "$request.body#/runId" },
    of_stream("get", WATCH),
    of_stream("get", "/v1/streams/{id}/packets"),
    of_stream("delete", WATCH),
    of_session("get", "$request.body#/threadId"),
    of_session("delete", "$request.body#/threadId"),
];
