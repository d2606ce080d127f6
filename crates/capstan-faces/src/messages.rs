//! Anthropic's Messages in front of every agent, for Claude Code and the official SDKs.
//!
//! What an `anthropic` agent is asked is the request as it came, and what it answers is told in its
//! provider's own events. For every other agent both are translated. See `docs/claude-code.md`.

mod begun;
mod blocks;
mod content;
mod count_tokens;
mod errors;
mod event;
mod parameters;
mod request;
mod resume;
mod routes;
mod telling;
mod tools;
mod whole;
mod writer;

use std::collections::HashSet;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use bytes::Bytes;
use capstan_agent::{Work, async_trait};
use capstan_journal::{ArmedBy, Run};
use capstan_protocol::{DecodeError, Dialect, Fault, ResponseFormat};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

use self::event::Event;
use self::request::Wants;
use self::resume::Place;
use self::telling::{End, Telling};
use self::whole::Packets;
use self::writer::MessagesWriter;
use crate::face::FaceContext;
use crate::face::post;
use crate::face::reader;
use crate::face::repeats::{self, KEY};
use crate::face::sent_answers::SentAnswers;
use crate::face::taken_back::TakenBack;
use crate::face::{self, Face, FaceWriter, RefusalTarget, Request, ViewRequest};
use crate::identity::caller::Caller;
use crate::openapi::{Model, Routes, model};
use crate::refusal::{Refusal, RequestId};
use capstan_engine::ask::{Ask, body_hash, decoded_body_hash, invalid};
use capstan_engine::cpu_offload;
use capstan_engine::resume::ResumePoint;

/// The name under which runs of this face are kept.
const NAME: &str = "anthropic-messages";
const DIALECT: Dialect = Dialect::AnthropicMessages;

/// The headers that tell one asker of a session from another.
const ASKERS: [&str; 3] =
    [routes::SESSION.name, "x-claude-code-agent-id", "x-claude-code-prompt-id"];

/// Messages.
#[derive(Default)]
pub(crate) struct Messages {
    sent_answers: SentAnswers,
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

    fn decode(&self, body: &[u8]) -> Result<Ask, Fault> {
        request::from_body(body)
    }

    /// Clients of Anthropic's send Anthropic's names of models: the first agent answers for those.
    async fn complete(
        &self,
        cx: &FaceContext,
        _: &str,
        _: &Parts,
        ask: &mut Ask,
    ) -> Result<(), Fault> {
        let is_foreign = |name: &&str| cx.engine.agent(name).is_none() && is_anthropics(name);
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
        let may_repeat = |run: &Run| self.sent_answers.may_repeat(run, parts);
        let repeats = repeats::is_repeat(parts) || has_session(parts);
        repeats::key(cx, request, NAME, repeats.then_some(&may_repeat)).await
    }

    /// There is no place in an answer from which one could read on.
    fn resume_point(&self, _: &Parts) -> Result<ResumePoint, Fault> {
        Ok(ResumePoint::default())
    }

    /// What was seen decides whether a reset can be told, and how.
    fn accepts_reset(&self, _: &Parts) -> bool {
        true
    }

    fn wants_collected(&self, parts: &Parts) -> bool {
        !Wants::of(parts).is_stream()
    }

    /// An SDK sends a request again that has a key and whose answer was to be whole. Nobody comes
    /// back for any other run: there the gateway goes on by itself.
    fn armed_by(&self, parts: &Parts) -> ArmedBy {
        let has_key = parts.headers.contains_key(KEY.name);
        if has_key && self.wants_collected(parts) { ArmedBy::Client } else { ArmedBy::Gateway }
    }

    /// Without a key nobody can come back for it for long, and whoever closes the connection wants
    /// it stopped.
    fn ends_unread(&self, run: &Run) -> bool {
        repeats::is_keyless(run)
    }

    async fn collected(
        &self,
        cx: &FaceContext,
        request: &Request<'_>,
        run: &Run,
    ) -> Option<Response> {
        let told = if Wants::of(request.parts).is_stream() {
            begun::wait(cx, run).await.err().map(Err)?
        } else {
            self.message(cx, request, run).await
        };
        let asker = RefusalTarget::Client(request.parts, request.ask);
        Some(match told {
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
        let telling = telling(cx, run, opening.posted, opening.parts);
        let taken_back = TakenBack::read(cx, run).await?;
        let sent_answer = self.sent_answers.answer(run.stream_id, opening.parts);
        let exposure = cx.engine.settings.exposure;
        let id = request_id(opening.parts).map(str::to_owned);
        Ok(Box::new(MessagesWriter::new(telling, taken_back, exposure, id, sent_answer)))
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
    async fn message(
        &self,
        cx: &FaceContext,
        request: &Request<'_>,
        run: &Run,
    ) -> Result<Response, Fault> {
        let followed = reader::collect_to_end::<Packets>(cx, run).await?;
        let telling = telling(cx, run, Some(request.ask), request.parts);
        match followed.encode(|whole| whole::message(&whole.transcript, telling)) {
            Some(Ok(message)) => Ok(whole::response(message)),
            Some(Err(End::Stopped)) => Ok(errors::stopped()),
            Some(Err(End::Failed(fault) | End::Again(fault))) => Err(fault),
            Some(Err(End::Whole)) | None => Err(followed
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
    let wants = Wants::read(&posted.body)
        .map_err(|fault| face::refusal(&cx, &*face, fault, RefusalTarget::Undecoded(&parts)))?;
    parts.extensions.insert(wants);
    parts.extensions.insert(repeats::ReaderGuardSlot::default());
    if has_session(&parts)
        && let Some(resumed) = resume::find(&face, &cx, &caller, &parts, &posted.body).await
    {
        (posted.body, posted.hash) = (with_head(&resumed.body, &parts), Some(resumed.hash));
        parts.extensions.insert(resumed.place);
        return post::answer(&cx, &caller, &*face, None, &parts, posted).await;
    }
    let size = posted.body.len();
    (posted.hash, posted.body) = cpu_offload::run(size, || {
        let hash = repeat_hash(&parts.headers, &posted.body);
        (Some(hash), with_head(&posted.body, &parts))
    });
    post::answer(&cx, &caller, &*face, None, &parts, posted).await
}

fn with_head(body: &Bytes, parts: &Parts) -> Bytes {
    request::with_head(body, &parts.headers)
}

/// By what a repeat is known: who asks, and what.
fn repeat_hash(headers: &HeaderMap, body: &[u8]) -> [u8; 32] {
    let askers = ASKERS.map(|name| headers.get(name).map_or(&b""[..], HeaderValue::as_bytes));
    let is_known = askers.iter().any(|asker| !asker.is_empty());
    let asker = askers.map(String::from_utf8_lossy).join("\u{b7}");
    let meaning = if is_known { request::meaning(body) } else { None };
    match meaning {
        Some(members) => decoded_body_hash(&members, Some(&asker), NAME),
        None => body_hash(body, is_known.then_some(&asker), NAME),
    }
}

fn has_session(parts: &Parts) -> bool {
    parts.headers.contains_key(routes::SESSION.name)
}

/// The answer of a run, as a request gets it.
fn telling(cx: &FaceContext, run: &Run, posted: Option<&Ask>, parts: &Parts) -> Telling {
    let offered = posted.map(offered).unwrap_or_default();
    let telling = Telling::new(run, offered, behind(parts), cx.sealer(DIALECT));
    let is_repeat = parts.extensions.get().is_some_and(repeats::ReaderGuardSlot::is_repeat);
    if is_repeat && has_session(parts) { telling.renamed() } else { telling }
}

/// So many blocks of the answer the client has.
fn behind(parts: &Parts) -> usize {
    parts.extensions.get::<Place>().map_or(0, |place| place.blocks)
}

/// Names of Anthropic's models, as its clients have them built in.
fn is_anthropics(name: &str) -> bool {
    name == "default" || name.starts_with("claude") || name.starts_with("anthropic")
}

fn offered(ask: &Ask) -> HashSet<String> {
    ask.extras.tools.iter().map(|tool| tool.name.clone()).collect()
}

/// What only a look at the agent tells: whether it can be asked this. A route asks its members.
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

/// Under which Anthropic's clients look for the id of a request.
const REQUEST_ID: &str = "request-id";

fn request_id(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<RequestId>().map(|RequestId(id)| id.as_str())
}

fn name_request(parts: &Parts, headers: &mut HeaderMap) {
    if let Some(id) = request_id(parts).and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert(REQUEST_ID, id);
    }
}

/// What the clients send from pages beside what every client does.
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
