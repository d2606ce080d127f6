//! The routes of the face for tests.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use capstan_journal::{NameKind, Run, RunState};
use capstan_protocol::fault::Entry;
use capstan_protocol::{Cursor, Fault, FaultKind, sse};
use http::HeaderValue;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{Numbers, PER_PACKET, text_of};
use crate::face::FaceContext;
use crate::face::post;
use crate::face::reader::{self, Collected, ViewerKind};
use crate::face::{self, RefusalTarget, ViewRequest};
use crate::identity::caller::Caller;
use crate::identity::scopes::Operation;
use crate::query;
use crate::refusal::Refusal;
use capstan_engine::resume::ResumePoint;
use capstan_engine::{lookup, stopping};
use capstan_kit::openapi::{
    Answer, Content, Does, Header, PathParameter, Refusals, Routes, Row, Tag, model,
};

const TAG: Tag = Tag { name: "Numbers", says: "A face for tests." };
const POST: Row = Row {
    tag: &TAG,
    summary: "Ask in numbers",
    headers: &[&KEY],
    faults: &[FaultKind::AgentNotFound],
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
const GET: Row = Row {
    tag: &TAG,
    summary: "Look, read on, or wait",
    places: &[&OWN_ID],
    answers: &[Answer {
        headers: &[&NEXT],
        ..Answer::ok("Numbers.", &[Content::Text("text/plain")])
    }],
    refusals: Some(&REFUSALS),
    ..Row::NONE
};
const STOP: Row = Row {
    tag: &TAG,
    summary: "Stop",
    places: &[&OWN_ID],
    does: Does::This(Operation::Stop),
    ..Row::NONE
};
const CHAT: Row =
    Row { tag: &TAG, summary: "The newest of a chat", places: &[&OWN_ID, &OWN_ID], ..Row::NONE };
const CARD: Row = Row { tag: &TAG, summary: "What it can do", ..Row::NONE };
const REFUSALS: Refusals =
    Refusals { status: status_of, content: Content::Json(model::<Question>) };
const KEY: Header =
    Header { name: "Numbers-Key", says: "A key.", schema: || json!({ "type": "string" }) };
const NEXT: Header =
    Header { name: "Numbers-Next", says: "Next.", schema: || json!({ "type": "string" }) };
const OWN_ID: PathParameter =
    PathParameter { says: "Its own id.", schema: || json!({ "type": "string" }), example: "num_1" };

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Question {
    pub(super) text: String,
    pub(super) chat: Option<String>,
    pub(super) model: Option<String>,
    pub(super) temperature: Option<f64>,
    pub(super) stream: bool,
}

#[derive(Deserialize)]
struct Params {
    starting_after: Option<u64>,
    wait: Option<u64>,
}

/// A broken agent counts as another server's failure.
pub(super) fn status_of(entry: &Entry) -> u16 {
    if entry.kind == FaultKind::AgentExecutionError { 555 } else { entry.status }
}

pub(super) fn own_id(run: &Run) -> String {
    format!("num_{}", run.stream_id)
}

pub(super) fn stream_of(id: &str) -> &str {
    id.strip_prefix("num_").unwrap_or_default()
}

pub(super) fn for_tenants(face: Arc<Numbers>) -> Routes<FaceContext> {
    let handler = |face: Arc<Numbers>, serve: Serve| {
        async move |State(cx): State<FaceContext>,
                    Extension(caller): Extension<Caller>,
                    Path(id): Path<Vec<(String, String)>>,
                    request: HttpRequest| {
            let id = id.last().map(|(_, id)| id.clone()).unwrap_or_default();
            serve(cx, caller, face, id, request).await
        }
    };
    Routes::default()
        .start("/v1/numbers", face.clone(), &POST)
        .get(
            "/v1/numbers/{id}",
            handler(face.clone(), |a, c, f, i, r| Box::pin(read(a, c, f, i, r))),
            &GET,
        )
        .post(
            "/v1/numbers/{id}/stop",
            handler(face.clone(), |a, c, f, i, r| Box::pin(stop(a, c, f, i, r))),
            &STOP,
        )
        .get(
            "/v1/numbers/{agent}/chats/{chat}",
            handler(face, |a, c, f, i, r| Box::pin(chat(a, c, f, i, r))),
            &CHAT,
        )
}

type Serve = fn(
    FaceContext,
    Caller,
    Arc<Numbers>,
    String,
    HttpRequest,
) -> futures_util::future::BoxFuture<'static, Result<Response, Refusal>>;

pub(super) fn open() -> Routes<FaceContext> {
    let card = async |State(cx): State<FaceContext>| {
        let names: Vec<String> = cx.engine.agents().map(|agent| agent.name.to_string()).collect();
        Json(json!({ "agents": names }))
    };
    Routes::default().get("/v1/numbers/card", card, &CARD)
}

/// A run by its id: its present state, the events after a number, or the same after a wait.
async fn read(
    cx: FaceContext,
    caller: Caller,
    face: Arc<Numbers>,
    id: String,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let answered = async {
        let params: Params = query::parse(&parts.uri)?;
        let run = lookup::by_stream(&cx.engine, &caller.tenant, stream_of(&id)).await?;
        let after = params.starting_after.map(|n| n / PER_PACKET);
        match (after, params.wait) {
            (Some(after), Some(wait)) => batch(&cx, &run, after, Duration::from_secs(wait)).await,
            (Some(after), None) => {
                let point = ResumePoint::at(Cursor::new(run.stream_id, after));
                let opening = ViewRequest {
                    run: &run,
                    point,
                    view: ViewerKind::Get,
                    parts: &parts,
                    posted: None,
                };
                post::watch(&cx, &*face, opening).await
            }
            (None, _) => Ok(collected(&reader::collect_so_far(&cx, &run).await?)),
        }
    };
    answered.await.map_err(|fault| face::refusal(&cx, &*face, fault, RefusalTarget::Viewer(&parts)))
}

async fn batch(cx: &FaceContext, run: &Run, after: u64, wait: Duration) -> Result<Response, Fault> {
    let batch = reader::poll(cx, run, after, wait).await?;
    let packets = batch.frames.iter().filter_map(sse::decode_packet);
    let items: Vec<String> = packets.map(|packet| text_of(&packet.payload)).collect();
    let body =
        json!({ "said": items, "is_up_to_date": batch.is_up_to_date, "is_over": batch.is_over });
    let mut response = Json(body).into_response();
    response.headers_mut().insert("numbers-next", HeaderValue::from(batch.last * PER_PACKET));
    Ok(response)
}

async fn stop(
    cx: FaceContext,
    caller: Caller,
    face: Arc<Numbers>,
    id: String,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let stopped = async {
        let run = lookup::by_stream(&cx.engine, &caller.tenant, stream_of(&id)).await?;
        let run = stopping::stop(&cx.engine, run, &caller).await?;
        Ok(collected(&reader::collect_so_far(&cx, &run).await?))
    };
    stopped.await.map_err(|fault| face::refusal(&cx, &*face, fault, RefusalTarget::Viewer(&parts)))
}

async fn chat(
    cx: FaceContext,
    caller: Caller,
    face: Arc<Numbers>,
    chat: String,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let answered = async {
        let newest = lookup::newest(&cx.engine, &caller.tenant, NameKind::Chat, &chat).await?;
        let run = newest.ok_or_else(|| Fault::new(FaultKind::StreamNotFound))?;
        Ok(collected(&reader::collect_so_far(&cx, &run).await?))
    };
    answered.await.map_err(|fault| face::refusal(&cx, &*face, fault, RefusalTarget::Viewer(&parts)))
}

/// A run in one object.
pub(super) fn collected(whole: &Collected) -> Response {
    let status = match (whole.state, whole.run.reason.as_deref()) {
        (RunState::Running, _) => "running",
        (RunState::Waiting, _) => "waiting",
        (RunState::Closed, reason) => reason.unwrap_or("closed"),
    };
    Json(json!({ "id": own_id(&whole.run), "status": status, "text": whole.transcript.text() }))
        .into_response()
}
