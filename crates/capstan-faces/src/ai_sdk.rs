//! The AI SDK face: a run as the stream of one UI message, for `useChat` that survives a reload.
//!
//! The store's own index finds the run of a chat, so a page needs no database. `mapping` has the
//! mapping, `message` decodes the messages of a page, and `replay` serves runs that continue a
//! message.

mod ask;
mod chunk;
mod event;
mod fold;
mod items;
mod location;
mod mapping;
mod message;
mod replay;
mod routes;
mod start_index;
mod writer;

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use capstan_agent::async_trait;
use capstan_journal::{ArmedBy, NameKind, Run, RunState};
use capstan_protocol::{Close, Fault, problem};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{Face, FaceWriter, RefusalTarget, Request, ViewRequest};
use crate::face::post;
use crate::face::reader::ViewerKind;
use crate::face::{FaceContext, Items};
use crate::openapi::{Model, Routes, model};
use ask::RunOptions;
use capstan_engine::ask::{Ask, RequestBody};
use capstan_engine::faults::journal_fault;
use capstan_engine::lookup;
use chunk::{Chunk, KINDS};
use fold::Facts;
use items::AiSdkItems;
use start_index::{StartIndex, TAIL};
use writer::AiSdkWriter;

/// The name of this face in the records of runs.
const NAME: &str = "ai-sdk";

/// The header with the fault's code, for refusals whose body is a sentence.
const FAULT_CODE: &str = "x-capstan-code";

/// The run, for a client that comes back to it by its id.
const RUN_ID: &str = "x-workflow-run-id";

pub(crate) struct AiSdk;

#[async_trait]
impl Face for AiSdk {
    fn name(&self) -> &'static str {
        NAME
    }

    fn routes(self: Arc<Self>) -> Routes<FaceContext> {
        routes::routes(&self)
    }

    fn request_headers(&self) -> &'static [&'static str] {
        &["idempotency-key", location::PREFER]
    }

    fn response_headers(&self) -> &'static [&'static str] {
        &["x-vercel-ai-ui-message-stream", "location", FAULT_CODE, RUN_ID, TAIL]
    }

    fn events(&self) -> Model {
        model::<Chunk>
    }

    /// `WorkflowChatTransport` posts JSON with the media type of text, which `fetch` sets.
    fn reads(&self, media_type: &str) -> bool {
        ["application/json", "text/plain"].iter().any(|read| media_type.eq_ignore_ascii_case(read))
    }

    fn event_types(&self) -> &'static [&'static str] {
        KINDS
    }

    fn decode(&self, body: &RequestBody) -> Result<Ask, Fault> {
        ask::from_ai_sdk(body)
    }

    /// The request's own key. Without one, the same body attaches, unless its run failed: then the
    /// user wants another attempt.
    async fn key(&self, cx: &FaceContext, request: &Request<'_>) -> Result<String, Fault> {
        let given = request.parts.headers.get("idempotency-key").and_then(|key| key.to_str().ok());
        if let Some(key) = given.filter(|key| !key.is_empty()) {
            return Ok(key.to_owned());
        }
        if !request.ask.key.is_empty() {
            return Ok(request.ask.key.clone());
        }
        let hash = request.hash.map(|byte| format!("{byte:02x}")).concat();
        let same = lookup::newest(&cx.engine, request.tenant, NameKind::BodyHash, &hash).await?;
        Ok(match same {
            None => format!("{NAME}:{hash}"),
            // All repeats find the same run.
            Some(run) if ended_without_answer(&run) => format!("{NAME}:{hash}:{}", run.stream_id),
            Some(run) => run.key,
        })
    }

    /// Pages do not repeat requests.
    fn armed_by(&self, _: &Request<'_>) -> ArmedBy {
        ArmedBy::Gateway
    }

    fn owns(&self, path: &str) -> bool {
        let of_agent = || path.strip_prefix("/v1/agents/")?.split_once('/').map(|(_, rest)| rest);
        [path.strip_prefix("/v1/"), of_agent()]
            .into_iter()
            .flatten()
            .any(|rest| rest.starts_with("ai-sdk/"))
    }

    /// A chat shows the body of a refusal unchanged, so the body is a sentence. Clients that read
    /// problem details accept them explicitly.
    fn refuse(
        &self,
        cx: &FaceContext,
        fault: &Fault,
        target: RefusalTarget<'_>,
    ) -> Option<Response> {
        let problem = fault.to_problem(cx.engine.settings().exposure);
        let (kind, body) = match target.parts().is_some_and(wants_problem) {
            true => (problem::CONTENT_TYPE, serde_json::to_string(&problem).unwrap_or_default()),
            false => ("text/plain; charset=utf-8", problem.detail.unwrap_or(problem.title)),
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(code) = HeaderValue::from_str(fault.code()) {
            headers.insert(FAULT_CODE, code);
        }
        if let Some(seconds) = problem.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        Some(response)
    }

    async fn items(
        &self,
        cx: &FaceContext,
        run: &Run,
        after: u64,
    ) -> Result<Option<Box<dyn Items>>, Fault> {
        Ok(Some(Box::new(AiSdkItems::after(cx, run, after).await?)))
    }

    async fn open(
        &self,
        cx: &FaceContext,
        opening: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault> {
        let run = opening.run;
        let options = match opening.posted {
            Some(ask) => RunOptions::of(ask.extras.payload.get().as_bytes()),
            None => run_options(cx, run).await?,
        };
        let (facts, cursor) = (Facts::new(run, options), opening.point.cursor_in(run));
        if let Some(StartIndex { first, .. }) = opening.parts.extensions.get() {
            return Ok(Box::new(AiSdkWriter::counted(run.stream_id, facts, *first)));
        }
        // A client that posts has the message that it continues.
        let has_continued = opening.view == ViewerKind::Post;
        Ok(Box::new(AiSdkWriter::new(run.stream_id, facts, cursor, has_continued)))
    }

    async fn has_all(&self, _: &FaceContext, opening: &ViewRequest<'_>) -> Result<bool, Fault> {
        let (run, after) = (opening.run, opening.point.in_run(opening.run)?);
        let is_whole = opening.point.cursor_in(run).is_some_and(|cursor| cursor.part.is_none());
        Ok(run.state == RunState::Closed && is_whole && after >= run.last_seq)
    }

    async fn collected(
        &self,
        cx: &FaceContext,
        request: &Request<'_>,
        run: &Run,
    ) -> Option<Response> {
        if !location::is_preferred(request.parts) {
            return None;
        }
        let response = location::response(cx, run, request.parts).await;
        let target = RefusalTarget::Client(request.parts, request.ask);
        Some(response.unwrap_or_else(|fault| {
            crate::face::refusal(cx, self, fault, target).run_fault_response()
        }))
    }

    async fn headers(
        &self,
        cx: &FaceContext,
        opening: &ViewRequest<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), Fault> {
        headers.insert("x-vercel-ai-ui-message-stream", HeaderValue::from_static("v1"));
        if let Ok(id) = HeaderValue::from_str(&opening.run.stream_id.to_string()) {
            headers.insert(RUN_ID, id);
        }
        if let Some(start) = opening.parts.extensions.get::<StartIndex>() {
            start.name(headers);
        }
        location::name(cx, opening.run, opening.parts, headers).await
    }
}

/// The options of a run from its stored body.
async fn run_options(cx: &FaceContext, run: &Run) -> Result<RunOptions, Fault> {
    if run.face != NAME {
        return Ok(RunOptions::default());
    }
    let body = cx.engine.store().body(run.stream_id).await.map_err(journal_fault)?;
    Ok(RunOptions::of(&body.unwrap_or_default()))
}

fn ended_without_answer(run: &Run) -> bool {
    let is_cancelled = run.reason.as_deref() == Some(Close::CANCELLED);
    run.state == RunState::Closed && (run.fault.is_some() || is_cancelled)
}

fn wants_problem(parts: &Parts) -> bool {
    post::header_lists(&parts.headers, "accept", "application/problem+json")
}
