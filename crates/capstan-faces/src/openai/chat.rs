//! Chat Completions. A request contains the whole conversation. Only its key can bring a client
//! back to an answer.

mod ask;
mod carried;
mod completion;
mod routes;
mod writer;

use std::sync::Arc;

use axum::response::Response;
use capstan_agent::async_trait;
use capstan_journal::{ArmedBy, Run};
use capstan_protocol::{Dialect, Fault};
use http::request::Parts;

use self::completion::{Chunk, Completion};
use self::writer::{ChatWriter, ViewOptions};
use super::output::{Offered, Output};
use super::request;
use super::{errors, models, parameters, passthrough};
use crate::face::FaceContext;
use crate::face::reader;
use crate::face::repeats;
use crate::face::sent_answers::SentAnswers;
use crate::face::taken_back::TakenBack;
use crate::face::{self, Face, FaceWriter, RefusalTarget, Request, ViewRequest};
use crate::openapi::{Model, Routes, model};
use capstan_engine::ask::{Ask, RequestBody};
use capstan_engine::faults::journal_fault;
use capstan_engine::interrupts;
use capstan_engine::resume::ResumePoint;

/// The name of this face in the records of runs.
const NAME: &str = "openai-chat";
const DIALECT: Dialect = Dialect::OpenaiChat;

/// Paths of OpenAI's API beside Responses. Refusals there have OpenAI's form, also where the
/// gateway has no route.
const ELSEWHERE: [&str; 18] = [
    "/v1/chat",
    "/v1/models",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/files",
    "/v1/uploads",
    "/v1/images",
    "/v1/audio",
    "/v1/moderations",
    "/v1/batches",
    "/v1/fine_tuning",
    "/v1/vector_stores",
    "/v1/assistants",
    "/v1/threads",
    "/v1/realtime",
    "/v1/evals",
    "/v1/containers",
    "/v1/videos",
];

/// Chat Completions.
pub(crate) struct Chat {
    attaches_repeats: bool,
    sent_answers: SentAnswers,
}

impl Chat {
    /// Creates the face. `attaches_repeats`: a repeated request without a key attaches to its run.
    pub(crate) fn new(attaches_repeats: bool) -> Self {
        Self { attaches_repeats, sent_answers: SentAnswers::default() }
    }
}

#[async_trait]
impl Face for Chat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn routes(self: Arc<Self>) -> Routes<FaceContext> {
        let start =
            async move |cx, caller, http| Box::pin(request::start(self, cx, caller, http)).await;
        Routes::default()
            .post("/v1/chat/completions", start, &routes::POST)
            .get("/v1/models", models::list, &models::LIST)
            .get("/v1/models/{name}", models::get, &models::GET)
            .merge(passthrough::routes())
    }

    fn request_headers(&self) -> &'static [&'static str] {
        request::REQUEST_HEADERS
    }

    fn response_headers(&self) -> &'static [&'static str] {
        &[errors::SHOULD_RETRY.name]
    }

    fn events(&self) -> Model {
        model::<Chunk<'_>>
    }

    fn decode(&self, body: &RequestBody) -> Result<Ask, Fault> {
        ask::from_chat(body)
    }

    async fn complete(
        &self,
        cx: &FaceContext,
        tenant: &str,
        _: &Parts,
        ask: &mut Ask,
    ) -> Result<(), Fault> {
        ask.session = interrupts::session_of_asker(&cx.engine, tenant, ask).await;
        parameters::check_agent(cx, ask, "response_format")
    }

    async fn key(&self, cx: &FaceContext, request: &Request<'_>) -> Result<String, Fault> {
        let parts = request.parts;
        let may_repeat = |run: &Run| self.sent_answers.may_repeat(cx, run, parts);
        let is_repeat = self.attaches_repeats && repeats::is_repeat(parts);
        repeats::key(cx, request, NAME, is_repeat.then_some(&may_repeat)).await
    }

    /// A chat has no position from which a client could resume.
    fn resume_point(&self, _: &Parts) -> Result<ResumePoint, Fault> {
        Ok(ResumePoint::default())
    }

    fn wants_collected(&self, request: &Request<'_>) -> bool {
        request.ask.wants.is_collected()
    }

    fn armed_by(&self, request: &Request<'_>) -> ArmedBy {
        repeats::armed_by(request)
    }

    /// Without a key no client can come back, so a closed connection means that the run should
    /// stop.
    fn ends_unread(&self, run: &Run) -> bool {
        repeats::is_keyless(run)
    }

    async fn collected(
        &self,
        cx: &FaceContext,
        request: &Request<'_>,
        run: &Run,
    ) -> Option<Response> {
        if request.ask.wants.stream {
            return None;
        }
        let response = async {
            let whole = reader::collect_to_end::<Output>(cx, run).await?;
            let whole = whole.fault().map_or(Ok(whole), Err)?;
            self.sent_answers.answer(cx, run, request.parts, false).record();
            Ok(whole.encode(|whole| Completion::of(whole, cx.sealer(DIALECT)).into_response()))
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
        ELSEWHERE.iter().any(|own| {
            path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    async fn open(
        &self,
        cx: &FaceContext,
        opening: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault> {
        let wants_usage = opening.posted.is_some_and(|ask| ask.wants.usage);
        let taken_back = TakenBack::read_if_unseen(cx, opening.run).await?;
        let offered = match opening.posted {
            Some(ask) => offered(ask),
            None => offered_once(cx, opening.run).await?,
        };
        let options = ViewOptions {
            wants_usage,
            taken_back,
            offered,
            exposure: cx.engine.settings().exposure,
            sealer: cx.sealer(DIALECT),
            sent_answer: self.sent_answers.answer(cx, opening.run, opening.parts, false),
        };
        Ok(Box::new(ChatWriter::new(opening.run, options)))
    }
}

fn offered(ask: &Ask) -> Offered {
    Offered::new(ask.extras.tools.iter().map(|tool| tool.name.clone()))
}

/// The tools that the stored request of a run offers.
async fn offered_once(cx: &FaceContext, run: &Run) -> Result<Offered, Fault> {
    let body = cx.engine.store().body(run.stream_id).await.map_err(journal_fault)?;
    let ask = body.and_then(|body| ask::from_chat(&body.into()).ok());
    Ok(ask.as_ref().map(offered).unwrap_or_default())
}
