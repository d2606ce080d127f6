//! The A2A face. A run is a task, its session the context, its text an artifact.
//!
//! Both versions are served in JSON-RPC at one address, and in HTTP+JSON. An extension, which the
//! card names, resumes a cut stream after its last event (`Last-Event-ID`).

mod call;
mod card;
mod fold;
mod message;
pub(crate) mod methods;
mod push;
mod push_config;
mod requests;
mod rest;
mod rows;
mod rpc;
mod task;
mod version;
mod writer;

use std::sync::Arc;

use axum::response::Response;
use capstan_agent::{Turn, async_trait};
use capstan_journal::{ArmedBy, Run, RunState};
use capstan_protocol::Fault;
use http::request::Parts;

use super::{Face, FaceWriter, RefusalTarget, Request, ViewRequest};
use crate::face::FaceContext;
use crate::face::delivery::{DueDelivery, WebhookMessage};
use crate::face::reader::{self, ViewerKind};
use crate::openapi::{Model, Routes, model};
use call::{Call, Wrong};
use capstan_engine::ask::{Ask, RequestBody};
use fold::Fold;
use version::TaskState;
use writer::A2aWriter;

/// The name of this face in the records of runs.
const NAME: &str = "a2a";

pub(crate) struct A2a;

#[async_trait]
impl Face for A2a {
    fn name(&self) -> &'static str {
        NAME
    }

    fn routes(self: Arc<Self>) -> Routes<FaceContext> {
        rpc::routes(&self).merge(rest::routes(&self)).merge(card::routes())
    }

    fn delivery_of(&self, turn: &Turn) -> Option<DueDelivery> {
        push::due(turn)
    }

    async fn delivery_message(
        &self,
        cx: &FaceContext,
        run: &Run,
        turn: &Turn,
    ) -> Result<WebhookMessage, Fault> {
        push::delivery_message(cx, run, turn).await
    }

    fn open_routes(self: Arc<Self>) -> Routes<FaceContext> {
        card::open_routes()
    }

    fn request_headers(&self) -> &'static [&'static str] {
        &["a2a-version", "a2a-extensions"]
    }

    fn events(&self) -> Model {
        model::<rows::StreamEvent>
    }

    fn reads(&self, media_type: &str) -> bool {
        ["application/json", "application/a2a+json"]
            .iter()
            .any(|known| media_type.eq_ignore_ascii_case(known))
    }

    fn decode(&self, body: &RequestBody) -> Result<Ask, Fault> {
        message::from_a2a(body)
    }

    /// A new artifact can replace the old one.
    fn accepts_reset(&self, _: &Parts) -> bool {
        true
    }

    fn wants_collected(&self, request: &Request<'_>) -> bool {
        let call = Call::of(request.parts);
        call.wants_collected && call.is_blocking
    }

    /// Clients of this protocol never repeat a message themselves.
    fn armed_by(&self, _: &Request<'_>) -> ArmedBy {
        ArmedBy::Gateway
    }

    fn owns(&self, path: &str) -> bool {
        let of_agent = || path.strip_prefix("/v1/agents/")?.split_once('/').map(|(_, rest)| rest);
        let is_ours = |rest: &str| rest == "a2a" || rest.starts_with("a2a/");
        [path.strip_prefix("/v1/"), of_agent()].into_iter().flatten().any(is_ours)
    }

    async fn collected(
        &self,
        cx: &FaceContext,
        request: &Request<'_>,
        run: &Run,
    ) -> Option<Response> {
        let call = Call::of(request.parts);
        if !call.wants_collected {
            return None;
        }
        let response = async {
            let ids = task::ids_of(cx, run, Some(request.ask.extras.payload.get())).await?;
            push::promise(cx, &call, run, &ids).await?;
            let whole = match call.is_blocking {
                true => reader::collect_to_end(cx, run).await?,
                false => reader::collect_so_far(cx, run).await?,
            };
            Ok(call.version.task_event(task::of_whole(call.version, &ids, &whole)))
        };
        let target = RefusalTarget::Client(request.parts, request.ask);
        Some(match response.await {
            Ok(task) => call.answer(task),
            Err(fault) => crate::face::refusal(cx, self, fault, target).run_fault_response(),
        })
    }

    fn refuse(
        &self,
        cx: &FaceContext,
        fault: &Fault,
        target: RefusalTarget<'_>,
    ) -> Option<Response> {
        let call = match target.parts().and_then(|parts| parts.extensions.get::<Call>()) {
            Some(call) => call.clone(),
            None => Call::at(target.path()),
        };
        Some(call.refuse(&Wrong::of(fault, cx.engine.settings().exposure)))
    }

    async fn open(
        &self,
        cx: &FaceContext,
        opening: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault> {
        let (run, call) = (opening.run, Call::of(opening.parts));
        let posted = opening.posted.map(|ask| ask.extras.payload.get());
        let ids = task::ids_of(cx, run, posted).await?;
        let version = call.version;
        if opening.view == ViewerKind::Post {
            push::promise(cx, &call, run, &ids).await?;
        }
        if let Some(cursor) = opening.point.cursor_in(run) {
            let fold = Fold::new(version, ids, run.stream_id, false);
            // A reader with a whole packet has all of its events.
            let part = cursor.part.unwrap_or(if cursor.seq == 0 { 0 } else { u32::MAX });
            return Ok(Box::new(A2aWriter::resume(call, fold, (cursor.seq, part))));
        }
        if opening.view == ViewerKind::Post {
            let fold = Fold::new(version, ids, run.stream_id, false);
            let status = fold.status(TaskState::Working, run.created_at, 0, None);
            let task = version.task(&fold.ids, &status, Vec::new());
            return Ok(Box::new(A2aWriter::join(call, fold, 0, task, false)));
        }
        let whole = reader::collect_so_far(cx, run).await?;
        let has_begun = task::artifact_of(version, run, &whole.transcript).is_some();
        let task = task::of_whole(version, &ids, &whole);
        let fold = Fold::new(version, ids, run.stream_id, has_begun);
        let has_end = whole.state == RunState::Closed;
        Ok(Box::new(A2aWriter::join(call, fold, whole.run.last_seq, task, has_end)))
    }
}
