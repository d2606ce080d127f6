//! Anthropic's Messages in front of every agent, for Claude Code and the official SDKs.
//!
//! An `anthropic` agent gets the request unchanged, and its client gets the provider's own events.
//! For every other agent both are translated. See `docs/claude-code.md`.

mod answer_events;
mod answer_start;
mod blocks;
mod collected;
mod content;
mod count_tokens;
mod cut_sessions;
mod errors;
mod event;
mod parameters;
mod repeat_hash;
mod request;
mod resume;
mod routes;
mod session_run;
mod tools;
mod writer;

use std::collections::HashSet;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use capstan_agent::{Work, async_trait};
use capstan_journal::{ArmedBy, Run};
use capstan_protocol::{DecodeError, Dialect, Fault, ResponseFormat};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

use self::answer_events::{AnswerEvents, End};
use self::collected::Packets;
use self::cut_sessions::CutSessions;
use self::event::Event;
use self::resume::{Place, Question};
use self::writer::MessagesWriter;
use crate::face::FaceContext;
use crate::face::models;
use crate::face::post;
use crate::face::reader;
use crate::face::repeats::{self, KEY, MayRepeat};
use crate::face::sent_answers::{SentAnswer, SentAnswers};
use crate::face::taken_back::TakenBack;
use crate::face::{self, Face, FaceWriter, RefusalTarget, Request, ViewRequest};
use crate::identity::caller::Caller;
use crate::openapi::{Model, Routes, model};
use crate::refusal::{Refusal, RequestId};
use capstan_engine::ask::{Ask, RequestBody, invalid};
use capstan_engine::interrupts;
use capstan_engine::resume::ResumePoint;

/// The face's name in the records of its runs.
const NAME: &str = "anthropic-messages";
const DIALECT: Dialect = Dialect::AnthropicMessages;

/// Messages.
#[derive(Default)]
pub(crate) struct Messages {
    sent_answers: SentAnswers,
    cut_sessions: CutSessions,
}

#[async_trait]
impl Face for Messages {
    fn name(&self) -> &'static str {
        NAME
    }

    fn routes(self: Arc<Self>) -> Routes<FaceContext> {
        let face = Arc::clone(&self);
        let count = async move |cx, caller, http| {
            Box::pin(count_tokens::count(face, cx, caller, http)).await
        };
        let start = async move |cx, caller, http| Box::pin(start(self, cx, caller, http)).await;
        Routes::default().post("/v1/messages", start, &routes::POST).post(
            "/v1/messages/count_tokens",
            count,
            &count_tokens::COUNT,
        )
    }

    fn request_headers(&self) -> &'static [&'static str] {
        REQUEST_HEADERS
    }

    fn response_headers(&self) -> &'static [&'static str] {
        &[errors::SHOULD_RETRY.name, REQUEST_ID]
    }

    fn events(&self) -> Model {
        model::<Event<'_>>
    }

    fn decode(&self, body: &RequestBody) -> Result<Ask, Fault> {
        request::from_body(body)
    }

    /// Lets the first agent answer for Anthropic's names of models, which its clients have built
    /// in.
    async fn complete(
        &self,
        cx: &FaceContext,
        tenant: &str,
        _: &Parts,
        ask: &mut Ask,
    ) -> Result<(), Fault> {
        ask.session = interrupts::session_of_asker(&cx.engine, tenant, ask).await;
        let is_foreign =
            |name: &&str| cx.engine.agent(name).is_none() && models::is_anthropics_name(name);
        if ask.agent.as_deref().filter(is_foreign).is_some() {
            ask.agent = None;
        }
        check_agent(cx, ask)
    }

    async fn key(&self, cx: &FaceContext, request: &Request<'_>) -> Result<String, Fault> {
        let parts = request.parts;
        if let Some(place) = parts.extensions.get::<Place>() {
            return Ok(place.key.clone());
        }
        let max_tokens = request.ask.extras.parameters.max_tokens;
        let may_repeat = |run: &Run| self.may_repeat(cx, run, parts, max_tokens);
        if !has_session(parts) || parts.headers.contains_key(KEY.name) {
            let may_repeat: MayRepeat<'_> = &may_repeat;
            let may_repeat = Some(may_repeat).filter(|_| repeats::is_repeat(parts));
            return repeats::key(cx, request, NAME, may_repeat).await;
        }
        let Request { tenant, hash, .. } = *request;
        let found = repeats::repeated(cx, tenant, parts, hash, NAME, &may_repeat).await?;
        Ok(found.map_or_else(|| session_run::key(max_tokens), |run| run.key))
    }

    /// A client cannot resume within a block.
    fn resume_point(&self, parts: &Parts) -> Result<ResumePoint, Fault> {
        Ok(ResumePoint::behind(behind(parts)))
    }

    /// `AnswerEvents` decides, from the blocks that the client has.
    fn accepts_reset(&self, _: &Parts) -> bool {
        true
    }

    fn wants_collected(&self, request: &Request<'_>) -> bool {
        request.ask.wants.is_collected()
    }

    fn armed_by(&self, request: &Request<'_>) -> ArmedBy {
        repeats::armed_by(request)
    }

    /// Without a key no client can come back for the run for long, and a client that closes its
    /// connection wants the run to stop.
    fn ends_unread(&self, run: &Run) -> bool {
        repeats::is_keyless(run)
    }

    /// Claude Code does. It tries for minutes.
    fn asks_for_rest(&self, run: &Run) -> bool {
        session_run::is_of_session(run)
    }

    async fn collected(
        &self,
        cx: &FaceContext,
        request: &Request<'_>,
        run: &Run,
    ) -> Option<Response> {
        let answer = if request.ask.wants.stream {
            answer_start::wait(cx, run).await.err().map(Err)?
        } else {
            self.message(cx, request, run).await
        };
        let asker = RefusalTarget::Client(request.parts, request.ask);
        Some(match answer {
            Ok(mut response) => {
                name_request(request.parts, response.headers_mut());
                response
            }
            Err(fault) => face::refusal(cx, self, fault, asker).run_fault_response(),
        })
    }

    fn refuse(
        &self,
        cx: &FaceContext,
        fault: &Fault,
        asker: RefusalTarget<'_>,
    ) -> Option<Response> {
        let mut response = errors::response(cx, fault, asker);
        if let Some(parts) = asker.parts() {
            name_request(parts, response.headers_mut());
        }
        Some(response)
    }

    fn owns(&self, path: &str) -> bool {
        let rest = path.strip_prefix("/v1/messages");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    async fn open(
        &self,
        cx: &FaceContext,
        opening: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault> {
        let run = opening.run;
        let events = events_of(cx, run, opening.posted, opening.parts);
        let taken_back = TakenBack::read(cx, run).await?;
        let sent_answer = self.answer(cx, run, opening.parts);
        let watch = self.cut_sessions.watch(opening.parts);
        let exposure = cx.engine.settings().exposure;
        let id = request_id(opening.parts).map(str::to_owned);
        Ok(Box::new(MessagesWriter::new(events, taken_back, exposure, id, sent_answer, watch)))
    }

    async fn headers(
        &self,
        _: &FaceContext,
        opening: &ViewRequest<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), Fault> {
        name_request(opening.parts, headers);
        Ok(())
    }
}

impl Messages {
    fn answer(&self, cx: &FaceContext, run: &Run, parts: &Parts) -> SentAnswer {
        self.sent_answers.answer(cx, run, parts, has_session(parts))
    }

    /// Whether a request may have this run, which has the same meaning.
    fn may_repeat(
        &self,
        cx: &FaceContext,
        run: &Run,
        parts: &Parts,
        max_tokens: Option<u64>,
    ) -> bool {
        let may_repeat = self.sent_answers.may_repeat(cx, run, parts);
        may_repeat && !session_run::is_too_short(run, max_tokens)
    }

    async fn message(
        &self,
        cx: &FaceContext,
        request: &Request<'_>,
        run: &Run,
    ) -> Result<Response, Fault> {
        let followed = reader::collect_to_end::<Packets>(cx, run).await?;
        let events = events_of(cx, run, Some(request.ask), request.parts);
        match followed.encode(|whole| collected::message(&whole.transcript, events)) {
            Some(Ok(message)) => {
                self.answer(cx, run, request.parts).record();
                Ok(collected::response(message))
            }
            Some(Err(End::Stopped)) => Ok(errors::stopped()),
            Some(Err(End::Failed(fault) | End::Repeat(fault))) => Err(fault),
            Some(Err(End::Complete | End::TakenBack(_))) | None => Err(followed
                .fault()
                .unwrap_or_else(|| Fault::new(capstan_protocol::FaultKind::AgentExecutionError))),
        }
    }
}

/// Answers a POST that starts a run.
async fn start(
    face: Arc<Messages>,
    State(cx): State<FaceContext>,
    Extension(caller): Extension<Caller>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (mut parts, body) = request.into_parts();
    let mut posted = post::read(&cx, &caller, &*face, &parts, body).await?;
    parts.extensions.insert(repeats::ReaderGuardSlot::default());
    if let Some(asker) = repeat_hash::asker(&parts.headers) {
        let question = Question::read(&asker, &posted.body);
        let of_bytes = || posted.body.hash(Some(&asker), NAME);
        posted.hash = Some(question.as_ref().map_or_else(of_bytes, Question::hash));
        if has_session(&parts)
            && let Some(question) = question
            && let Some(resumed) = resume::find(&face, &cx, &caller, &parts, question).await
        {
            (posted.body, posted.hash) = (resumed.body, Some(resumed.hash));
            parts.extensions.insert(resumed.place);
        }
    }
    posted.body = request::with_head(&posted.body, &parts.headers);
    post::answer(&cx, &caller, &*face, None, &parts, posted).await
}

fn has_session(parts: &Parts) -> bool {
    parts.headers.contains_key(routes::SESSION.name)
}

/// Makes the events of a run's answer for a request.
fn events_of(cx: &FaceContext, run: &Run, posted: Option<&Ask>, parts: &Parts) -> AnswerEvents {
    let offered = posted.map(offered).unwrap_or_default();
    let events = AnswerEvents::new(run, offered, behind(parts), cx.sealer(DIALECT));
    let is_repeat = parts.extensions.get().is_some_and(repeats::ReaderGuardSlot::is_repeat);
    if is_repeat && has_session(parts) { events.renamed() } else { events }
}

/// The number of blocks that the client has.
fn behind(parts: &Parts) -> usize {
    parts.extensions.get::<Place>().map_or(0, |place| place.blocks)
}

fn offered(ask: &Ask) -> HashSet<String> {
    ask.extras.tools.iter().map(|tool| tool.name.clone()).collect()
}

/// Refuses a request that its agent cannot take. A route checks with its members.
fn check_agent(cx: &FaceContext, ask: &Ask) -> Result<(), Fault> {
    let about = cx.engine.agent_for(None, ask)?.agent.about();
    if matches!(about.provider, "anthropic" | "route") {
        return Ok(());
    }
    request::check_translation(&ask.extras.payload)?;
    let format = ask.extras.parameters.response_format.as_ref();
    if about.work == Work::Chat || format.is_none_or(|format| *format == ResponseFormat::Text) {
        return Ok(());
    }
    let what = "an answer of a given form is not supported here, since this agent is no model";
    Err(invalid(&DecodeError::value("output_config.format", what)))
}

/// The header in which Anthropic's clients look for the id of a request.
const REQUEST_ID: &str = "request-id";

fn request_id(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<RequestId>().map(|RequestId(id)| id.as_str())
}

fn name_request(parts: &Parts, headers: &mut HeaderMap) {
    if let Some(id) = request_id(parts).and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(REQUEST_ID, id);
    }
}

/// The headers that these clients send from web pages, besides the usual ones.
const REQUEST_HEADERS: &[&str] = &[
    "idempotency-key",
    "x-api-key",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "x-stainless-arch",
    "x-stainless-helper",
    "x-stainless-helper-method",
    "x-stainless-lang",
    "x-stainless-os",
    "x-stainless-package-version",
    "x-stainless-retry-count",
    "x-stainless-runtime",
    "x-stainless-runtime-version",
    "x-stainless-timeout",
];
