//! Responses: answers that clients can read again, resume, stop and erase by their ids. Answers
//! form a tree, because several may continue the same one.

mod answer;
mod ask;
mod compact;
mod conversation_id;
mod conversations;
mod create;
mod fold;
mod input_tokens;
mod item;
mod items;
mod native_messages;
mod object;
mod plain_items;
mod references;
mod repeat_hash;
mod resume;
mod routes;
mod seen;
mod thought_part;
mod unstored;
mod websocket;
mod writer;

use std::sync::Arc;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use capstan_agent::async_trait;
use capstan_journal::{ArmedBy, Run, RunState};
use capstan_protocol::{ChatMessage, DecodeError, Dialect, Fault};
use http::request::Parts;
use uuid::Uuid;

use self::object::{Echo, ResponseObject};
use self::resume::Place;
use self::writer::{ResponseEvent, ResponsesWriter, StartingAfter, ViewOptions};
use super::request;
use super::{errors, parameters};
use crate::face::FaceContext;
use crate::face::repeats;
use crate::face::sent_answers::{SentAnswer, SentAnswers};
use crate::face::taken_back::TakenBack;
use crate::face::{self, Face, FaceWriter, RefusalTarget, Request, ViewRequest};
use crate::openapi::{Model, Routes, model};
use capstan_engine::ask::{Ask, RequestBody, invalid};
use capstan_engine::faults::journal_fault;
use capstan_engine::resume::ResumePoint;
use capstan_engine::{interrupts, lookup};

/// The name of this face in the records of runs.
const NAME: &str = "openai-responses";

/// The face of Responses.
pub(crate) struct Responses {
    attaches_repeats: bool,
    has_websocket: bool,
    unstored: unstored::Tenants,
    sent_answers: SentAnswers,
}

impl Responses {
    fn answer(&self, cx: &FaceContext, run: &Run, parts: &Parts) -> SentAnswer {
        self.sent_answers.answer(cx, run, parts, repeat_hash::has_session(parts))
    }

    /// Creates the face. `attaches_repeats`: a repeat without a key attaches to the run that it
    /// repeats. `has_websocket`: requests may come over a WebSocket.
    pub(crate) fn new(attaches_repeats: bool, has_websocket: bool) -> Self {
        let (unstored, sent_answers) = (unstored::Tenants::default(), SentAnswers::default());
        Self { attaches_repeats, has_websocket, unstored, sent_answers }
    }
}

#[async_trait]
impl Face for Responses {
    fn name(&self) -> &'static str {
        NAME
    }

    fn routes(self: Arc<Self>) -> Routes<FaceContext> {
        routes::routes(self)
    }

    fn events(&self) -> Model {
        model::<ResponseEvent>
    }

    fn decode(&self, body: &RequestBody) -> Result<Ask, Fault> {
        ask::from_response(body)
    }

    fn native_messages(&self, body: &[u8]) -> Option<Vec<ChatMessage>> {
        native_messages::of(body)
    }

    /// An answer that continues another one stays in the same conversation.
    async fn complete(
        &self,
        cx: &FaceContext,
        tenant: &str,
        _: &Parts,
        ask: &mut Ask,
    ) -> Result<(), Fault> {
        parameters::check_agent(cx, ask, "text.format")?;
        if ask.chat.is_some() {
            self.unstored.note(tenant);
        }
        if ask.session.is_empty() && ask.previous.is_none() {
            // A request that answers an interrupt need not name the conversation.
            ask.session = interrupts::session_of_asker(&cx.engine, tenant, ask).await;
        }
        let Some(previous) = ask.previous else { return Ok(()) };
        let found = lookup::by_stream(&cx.engine, tenant, &previous.to_string()).await;
        let run = found
            .ok()
            .filter(|run| run.face == NAME)
            .ok_or_else(|| unknown_previous(&id_of(previous)))?;
        if run.state != RunState::Closed {
            let wrong = DecodeError::value(PREVIOUS, "is still being answered");
            return Err(invalid(&wrong));
        }
        ask.session = run.session;
        Ok(())
    }

    async fn key(&self, cx: &FaceContext, request: &Request<'_>) -> Result<String, Fault> {
        let parts = request.parts;
        if let Some(place) = parts.extensions.get::<Place>() {
            return Ok(place.key.clone());
        }
        let may_repeat = |run: &Run| self.sent_answers.may_repeat(cx, run, parts);
        let is_known = repeats::is_repeat(parts) || repeat_hash::has_session(parts);
        let attaches = self.attaches_repeats && is_known;
        repeats::key(cx, request, NAME, attaches.then_some(&may_repeat)).await
    }

    /// Clients resume within an item by GET with `starting_after`, never by POST.
    fn resume_point(&self, parts: &Parts) -> Result<ResumePoint, Fault> {
        Ok(ResumePoint::behind(Place::seen_by(parts).len()))
    }

    fn wants_collected(&self, request: &Request<'_>) -> bool {
        request.ask.wants.is_collected()
    }

    fn armed_by(&self, request: &Request<'_>) -> ArmedBy {
        repeats::armed_by(request)
    }

    fn is_keyless(&self, run: &Run) -> bool {
        repeats::is_keyless(run)
    }

    /// The end of a background response is reported to the tenant's webhook.
    fn sends_webhook(&self, ask: &Ask) -> bool {
        ask.wants.background
    }

    async fn collected(
        &self,
        cx: &FaceContext,
        request: &Request<'_>,
        run: &Run,
    ) -> Option<Response> {
        let wants = request.ask.wants;
        if wants.stream {
            return None;
        }
        let response = async {
            let echo = Echo::of(cx, request.ask.extras.payload.get());
            // A background request gets the present state, also of a failed run. For other requests
            // the failure becomes the status.
            let whole = if wants.background {
                fold::so_far(cx, run, &echo.offered).await?
            } else {
                let whole = fold::follow(cx, run, &echo.offered).await?;
                let whole = whole.fault().map_or(Ok(whole), Err)?;
                self.answer(cx, run, request.parts).record();
                whole
            };
            Ok(whole.encode(|whole| {
                Json(ResponseObject::of(whole, &echo, cx.engine.settings().exposure))
                    .into_response()
            }))
        };
        let target = RefusalTarget::Client(request.parts, request.ask);
        Some(
            response.await.unwrap_or_else(|fault| {
                face::refusal(cx, self, fault, target).run_fault_response()
            }),
        )
    }

    fn refuse(
        &self,
        cx: &FaceContext,
        fault: &Fault,
        target: RefusalTarget<'_>,
    ) -> Option<Response> {
        Some(errors::response(cx, fault, target))
    }

    fn owns(&self, path: &str) -> bool {
        path == "/v1/responses"
            || path.starts_with("/v1/responses/")
            || path.starts_with("/v1/conversations")
    }

    async fn maintain(&self, cx: &FaceContext) {
        unstored::erase(cx, &self.unstored).await;
    }

    async fn open(
        &self,
        cx: &FaceContext,
        opening: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault> {
        let echo = match opening.posted {
            Some(ask) => Echo::of(cx, ask.extras.payload.get()),
            None => echo_of(cx, opening.run).await?,
        };
        let agent = cx.engine.agent(&opening.run.agent);
        let origin = agent.and_then(|agent| agent.agent.origin());
        let is_native = origin.is_some_and(|origin| origin.dialect == Dialect::OpenaiResponses)
            && echo.background != Some(true);
        let options = ViewOptions {
            is_native,
            after: opening
                .parts
                .extensions
                .get::<StartingAfter>()
                .map(|StartingAfter(after)| *after),
            has_all_events: request::wants_all_events(opening.parts),
            seen: Place::seen_by(opening.parts),
            taken_back: TakenBack::read_if_unseen(cx, opening.run).await?,
            sent_answer: Some(self.answer(cx, opening.run, opening.parts)),
        };
        Ok(Box::new(ResponsesWriter::new(
            opening.run,
            echo,
            options,
            cx.engine.settings().exposure,
        )))
    }
}

/// The member that names the answer that a request continues.
const PREVIOUS: &str = "previous_response_id";

fn unknown_previous(id: &str) -> Fault {
    let wrong = DecodeError::value(PREVIOUS, format!("no response {id:?} is stored"));
    invalid(&wrong).with_detail(errors::CODE, "previous_response_not_found")
}

/// The id of the answer of a stream.
fn id_of(stream: Uuid) -> String {
    format!("resp_{}", stream.simple())
}

/// The stream of an answer; `None` if the id is not of this form.
fn stream_of(id: &str) -> Option<Uuid> {
    id.strip_prefix("resp_")?.parse().ok()
}

/// The members of a run's request that its answer repeats.
async fn echo_of(cx: &FaceContext, run: &Run) -> Result<Echo, Fault> {
    let body = cx.engine.store().body(run.stream_id).await.map_err(journal_fault)?;
    let echo = |body: &[u8]| std::str::from_utf8(body).map(|body| Echo::of(cx, body)).ok();
    Ok(body.and_then(|body| echo(&body)).unwrap_or_default())
}
