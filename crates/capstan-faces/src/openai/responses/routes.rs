//! The routes of Responses.

use std::sync::Arc;

use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use capstan_journal::Run;
use capstan_protocol::{DecodeError, Fault, FaultKind};
use futures_util::future::BoxFuture;
use http::request::Parts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::errors::REFUSALS;
use super::super::models::TAG;
use super::super::request::EVENTS;

use super::items::{ItemPage, PageParams};
use super::object::ResponseObject;
use super::writer::{ResponseEvent, StartingAfter};
use super::{
    NAME, Responses, compact, conversations, create, echo_of, fold, id_of, input_tokens, stream_of,
    websocket,
};
use crate::face::FaceContext;
use crate::face::post;
use crate::face::reader::{self, ViewerKind};
use crate::face::repeats::KEY;
use crate::face::{self, RefusalTarget, ViewRequest};
use crate::identity::caller::Caller;
use crate::identity::scopes::Operation;
use crate::openapi::{self, Answer, Content, Does, PathParameter, Routes, Row, model};
use crate::refusal::Refusal;
use crate::{accounted_body, query};
use capstan_engine::ask::invalid;
use capstan_engine::faults::journal_fault;
use capstan_engine::resume::ResumePoint;
use capstan_engine::{cpu_offload, lookup, purge, stopping};

pub(super) fn routes(face: Arc<Responses>) -> Routes<FaceContext> {
    let about = |face: &Arc<Responses>, answer: Answering| {
        let face = face.clone();
        async move |State(cx): State<FaceContext>,
                    Extension(caller): Extension<Caller>,
                    Path(id): Path<String>,
                    request: HttpRequest| {
            answer(About { face, cx, caller, parts: request.into_parts().0, id }).await
        }
    };
    let to = face.clone();
    let start = async move |State(cx): State<FaceContext>,
                            Extension(caller): Extension<Caller>,
                            http: HttpRequest| {
        let (parts, body) = http.into_parts();
        Box::pin(create::answer(to.clone(), cx, caller, parts, body)).await
    };
    let to = face.clone();
    let connect = async move |State(cx): State<FaceContext>,
                              Extension(caller): Extension<Caller>,
                              http: HttpRequest| {
        websocket::open(to.clone(), cx, caller, http).await
    };
    let to = face.clone();
    let count = async move |State(cx): State<FaceContext>,
                            Extension(caller): Extension<Caller>,
                            http: HttpRequest| {
        input_tokens::count(to.clone(), cx, caller, http).await
    };
    let to = face.clone();
    let compact = async move |State(cx): State<FaceContext>,
                              Extension(caller): Extension<Caller>,
                              http: HttpRequest| {
        compact::refuse(to.clone(), cx, caller, http).await
    };
    Routes::default()
        .post("/v1/responses", start, &POST)
        .get("/v1/responses", connect, &websocket::ROW)
        .get("/v1/responses/{id}", about(&face, |about| Box::pin(look(about))), &GET)
        .delete("/v1/responses/{id}", about(&face, |about| Box::pin(erase(about))), &DELETE)
        .post("/v1/responses/{id}/cancel", about(&face, |about| Box::pin(cancel(about))), &CANCEL)
        .get(
            "/v1/responses/{id}/input_items",
            about(&face, |about| Box::pin(input_items(about))),
            &INPUT_ITEMS,
        )
        .post("/v1/responses/input_tokens", count, &input_tokens::ROW)
        .post("/v1/responses/compact", compact, &compact::ROW)
        .merge(conversations::routes(&face))
}

/// A handler of a request about a response.
type Answering = fn(About) -> BoxFuture<'static, Result<Response, Refusal>>;

/// A request about an earlier response.
struct About {
    face: Arc<Responses>,
    cx: FaceContext,
    caller: Caller,
    parts: Parts,
    id: String,
}

impl About {
    /// The run of the response. A run of another face is no response.
    async fn run(&self) -> Result<Run, Fault> {
        let unknown = || {
            let message = format!("There is no response {:?}.", self.id);
            Fault::new(FaultKind::StreamNotFound).with_message(message)
        };
        let stream = stream_of(&self.id).ok_or_else(unknown)?;
        let run =
            lookup::by_stream(&self.cx.engine, &self.caller.tenant, &stream.to_string()).await?;
        Some(run).filter(|run| run.face == NAME).ok_or_else(unknown)
    }

    /// The response of a run in its present state.
    async fn present(&self, run: &Run) -> Result<Response, Fault> {
        let echo = echo_of(&self.cx, run).await?;
        let whole = fold::so_far(&self.cx, run, &echo.offered).await?;
        let exposure = self.cx.engine.settings().exposure;
        let mut response =
            whole.encode(|whole| Json(ResponseObject::of(whole, &echo, exposure)).into_response());
        reader::name_stream(run, &mut response);
        Ok(response)
    }

    fn refusal(&self, fault: Fault) -> Refusal {
        face::refusal(&self.cx, &*self.face, fault, RefusalTarget::Viewer(&self.parts))
    }
}

/// The parameters of a lookup.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct LookParams {
    /// Answers with the events of the response.
    stream: bool,
    /// Skips events up to this number.
    starting_after: Option<u64>,
}

async fn look(mut about: About) -> Result<Response, Refusal> {
    let looked = async {
        let params: LookParams = query::parse(&about.parts.uri)?;
        let run = about.run().await?;
        if !params.stream {
            return about.present(&run).await;
        }
        if let Some(after) = params.starting_after.map(StartingAfter) {
            if !after.is_in(&run) {
                let wrong = DecodeError::value("starting_after", "there is no such event yet");
                return Err(invalid(&wrong));
            }
            about.parts.extensions.insert(after);
        }
        let point = ResumePoint::default();
        let opening = ViewRequest {
            run: &run,
            point,
            view: ViewerKind::Get,
            parts: &about.parts,
            posted: None,
        };
        post::watch(&about.cx, &*about.face, opening).await
    };
    looked.await.map_err(|fault| about.refusal(fault))
}

async fn cancel(about: About) -> Result<Response, Refusal> {
    let stopped = async {
        let run = about.run().await?;
        let run = stopping::stop(&about.cx.engine, run, &about.caller).await?;
        about.present(&run).await
    };
    stopped.await.map_err(|fault| about.refusal(fault))
}

/// The answer to an erasure.
#[derive(Debug, Serialize, JsonSchema)]
struct Deleted {
    id: String,
    object: &'static str,
    deleted: bool,
}

async fn erase(about: About) -> Result<Response, Refusal> {
    let erased = async {
        let run = about.run().await?;
        let run = purge::stream(&about.cx.engine, run, &about.caller).await?;
        Ok(Json(Deleted { id: id_of(run.stream_id), object: "response", deleted: true })
            .into_response())
    };
    erased.await.map_err(|fault| about.refusal(fault))
}

async fn input_items(about: About) -> Result<Response, Refusal> {
    let listed = async {
        let params: PageParams = query::parse(&about.parts.uri)?;
        let run = about.run().await?;
        let body = about.cx.engine.store().body(run.stream_id).await.map_err(journal_fault)?;
        let (engine, body) = (&about.cx.engine, body.unwrap_or_default());
        // The body, its items, and the answer's text.
        let mut load = engine.reserve(&run.tenant);
        load.grow(body.len().saturating_mul(3))?;
        let _begun = engine.cpu_offload().begin(&run.tenant, body.len()).await;
        let page = cpu_offload::run(body.len(), || ItemPage::of(run.stream_id, &body, &params))?;
        accounted_body::json(&page, load)
    };
    listed.await.map_err(|fault| about.refusal(fault))
}

const POST: Row = Row {
    tag: &TAG,
    summary: "Create a response",
    says: "OpenAI's Responses with an agent as the model. Any response can be read again and \
     resumed, not only one in the background, until retention erases it. Its run continues if the \
     connection ends.",
    headers: &[&KEY, &EVENTS],
    body: Some(&create::REQUEST),
    answers: &[Answer {
        headers: &[&openapi::STREAM_ID],
        ..Answer::ok("The response, or its events if `stream` is true.", RESPONSE_OR_EVENTS)
    }],
    faults: &[
        FaultKind::InvalidRequest,
        FaultKind::AgentNotFound,
        FaultKind::RequestConflict,
        FaultKind::PayloadTooLarge,
        FaultKind::UnsupportedMediaType,
    ],
    tells_of_run: true,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};

const RESPONSE_OR_EVENTS: &[Content] =
    &[Content::Json(model::<ResponseObject<'_>>), Content::Events(model::<ResponseEvent>)];

const GET: Row = Row {
    tag: &TAG,
    summary: "Look up a response",
    says: "The present state, or the events after any position: `starting_after` is the number of \
     the last received event.",
    places: &[&ID],
    headers: &[&EVENTS],
    query: Some(LookParams::json_schema),
    answers: &[Answer {
        headers: &[&openapi::STREAM_ID],
        ..Answer::ok("The response, or its events.", RESPONSE_OR_EVENTS)
    }],
    faults: ABOUT,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};

const CANCEL: Row = Row {
    tag: &TAG,
    summary: "Cancel a response",
    says: "Answers when the run has stopped. A response that has ended does not change.",
    places: &[&ID],
    answers: &[Answer {
        headers: &[&openapi::STREAM_ID],
        ..Answer::ok(
            "The response in its present state.",
            &[Content::Json(model::<ResponseObject<'_>>)],
        )
    }],
    faults: ABOUT,
    refusals: Some(&REFUSALS),
    does: Does::This(Operation::Stop),
    ..Row::NONE
};

const DELETE: Row = Row {
    tag: &TAG,
    summary: "Erase a response",
    says: "Stops the run if it is open, and erases its stream and its turn for good.",
    places: &[&ID],
    answers: &[Answer::ok("The erased response.", &[Content::Json(model::<Deleted>)])],
    faults: ABOUT,
    refusals: Some(&REFUSALS),
    does: Does::This(Operation::Purge),
    ..Row::NONE
};

const INPUT_ITEMS: Row = Row {
    tag: &TAG,
    summary: "List the input items of a response",
    says: "The items of its own request, newest first unless the request has another order.",
    places: &[&ID],
    query: Some(PageParams::json_schema),
    answers: &[Answer::ok("A page of items.", &[Content::Json(model::<ItemPage>)])],
    faults: ABOUT,
    refusals: Some(&REFUSALS),
    ..Row::NONE
};

const ABOUT: &[FaultKind] = &[
    FaultKind::InvalidRequest,
    FaultKind::StreamNotFound,
    FaultKind::StreamExpired,
    FaultKind::ServiceUnavailable,
    FaultKind::JournalUnavailable,
];

const ID: PathParameter = PathParameter {
    says: "The id of a response.",
    schema: || json!({ "type": "string", "pattern": "^resp_[0-9a-f]{32}$" }),
    example: "resp_0193a8f2c4d57b6e9a1b2c3d4e5f6a7b",
};
