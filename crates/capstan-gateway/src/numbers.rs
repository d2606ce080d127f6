//! A face for tests only. It has what CAP and AG-UI do not need and later faces may. It has no
//! preamble and no ids. Its key is derived from the body. It has its own event numbers, by which a
//! reader resumes with a GET. A clean end means "connect again". Its errors are HTTP statuses in
//! its own form. It names agents and earlier runs in the body. It has collected responses, a long
//! poll, a stop and an open card. No client repeats a request, so the gateway starts further
//! attempts.

mod routes;
mod tests;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_journal::{ArmedBy, Frames, NameKind, Run, RunState};
use capstan_protocol::{ChatMessage, Fault, Parameters, Payload, Transcript, sse};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde_json::json;

use self::routes::{Question, own_id, stream_of};
use crate::face::FaceContext;
use crate::face::reader::{self, ViewerKind};
use crate::face::{BodyStep, Emit, Face, FaceWriter, RefusalTarget, Request, ViewRequest};
use capstan_engine::ask::{Ask, RequestBody};
use capstan_engine::lookup;
use capstan_kit::openapi::{Model, Routes, model};

/// The face for tests.
pub(crate) fn face() -> Arc<dyn Face> {
    Arc::new(Numbers)
}

pub(super) struct Numbers;

/// The event numbers per packet: the first event of packet 3 is 30.
const PER_PACKET: u64 = 10;

#[async_trait]
impl Face for Numbers {
    fn name(&self) -> &'static str {
        "numbers"
    }

    fn routes(self: Arc<Self>) -> Routes<FaceContext> {
        routes::for_tenants(self)
    }

    fn open_routes(self: Arc<Self>) -> Routes<FaceContext> {
        routes::open()
    }

    fn request_headers(&self) -> &'static [&'static str] {
        &["numbers-key"]
    }

    fn response_headers(&self) -> &'static [&'static str] {
        &["numbers-next"]
    }

    fn events(&self) -> Model {
        model::<Question>
    }

    fn reads(&self, media_type: &str) -> bool {
        media_type == "application/json" || media_type == "application/numbers+json"
    }

    fn decode(&self, body: &RequestBody) -> Result<Ask, Fault> {
        let question: Question = body.decode()?;
        let parameters = Parameters { temperature: question.temperature, ..Parameters::default() };
        let mut ask =
            Ask::new(String::new(), String::new(), vec![ChatMessage::user(question.text)]);
        ask.extras.parameters = Arc::new(parameters);
        Ok(Ask { chat: question.chat, agent: question.model, ..ask })
    }

    /// A question that continues another one stays in its conversation.
    async fn complete(
        &self,
        cx: &FaceContext,
        tenant: &str,
        parts: &Parts,
        ask: &mut Ask,
    ) -> Result<(), Fault> {
        let Some(previous) = parts.headers.get("numbers-previous").and_then(|id| id.to_str().ok())
        else {
            return Ok(());
        };
        let run = lookup::by_stream(&cx.engine, tenant, stream_of(previous)).await?;
        (ask.session, ask.previous) = (run.session, Some(run.stream_id));
        Ok(())
    }

    /// The request's key. Without one, a marked repeat attaches to the newest run of its body.
    async fn key(&self, cx: &FaceContext, request: &Request<'_>) -> Result<String, Fault> {
        let header = |name| request.parts.headers.get(name).and_then(|value| value.to_str().ok());
        if let Some(key) = header("numbers-key") {
            return Ok(key.to_owned());
        }
        let hash = request.hash.map(|byte| format!("{byte:02x}")).concat();
        let same = lookup::newest(&cx.engine, request.tenant, NameKind::BodyHash, &hash).await?;
        let same = same.filter(|_| header("numbers-repeat").is_some());
        Ok(same.map_or_else(|| uuid::Uuid::now_v7().to_string(), |run| run.key))
    }

    fn armed_by(&self, _: &Request<'_>) -> ArmedBy {
        ArmedBy::Gateway
    }

    fn owns(&self, path: &str) -> bool {
        path.starts_with("/v1/numbers")
    }

    fn refuse(
        &self,
        _: &FaceContext,
        fault: &Fault,
        target: RefusalTarget<'_>,
    ) -> Option<Response> {
        let status =
            StatusCode::from_u16(routes::status_of(fault.kind().entry())).unwrap_or_default();
        let body = json!({ "wrong": fault.code(), "at": target.path(),
        "was_read": target.parts().is_some() });
        Some((status, Json(body)).into_response())
    }

    /// The request's body says whether the client wants one collected response.
    async fn collected(
        &self,
        cx: &FaceContext,
        request: &Request<'_>,
        run: &Run,
    ) -> Option<Response> {
        let question: Question = request.body.decode().unwrap_or_default();
        if question.stream {
            return None;
        }
        let target = RefusalTarget::Client(request.parts, request.ask);
        let response = match reader::collect_to_end::<Transcript>(cx, run).await {
            Ok(whole) => whole.fault().map_or_else(|| Ok(routes::collected(&whole)), Err),
            Err(fault) => Err(fault),
        };
        Some(response.unwrap_or_else(|fault| {
            crate::face::refusal(cx, self, fault, target).run_fault_response()
        }))
    }

    async fn open(
        &self,
        _: &FaceContext,
        opening: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault> {
        let seconds =
            opening.parts.headers.get("numbers-lasts").and_then(|s| s.to_str().ok()?.parse().ok());
        let base = opening.point.in_run(opening.run)?;
        Ok(Box::new(NumbersWriter { base, lasts: seconds.map(Duration::from_secs) }))
    }

    async fn headers(
        &self,
        _: &FaceContext,
        opening: &ViewRequest<'_>,
        headers: &mut HeaderMap,
    ) -> Result<(), Fault> {
        headers.insert("numbers-id", own_id(opening.run).parse().unwrap());
        Ok(())
    }
}

struct NumbersWriter {
    base: u64,
    lasts: Option<Duration>,
}

impl FaceWriter for NumbersWriter {
    fn base(&self) -> u64 {
        self.base
    }

    fn opening(&mut self, _: &FaceContext) -> Bytes {
        Bytes::new()
    }

    fn frames<'a>(&'a mut self, _: &'a FaceContext, frames: Frames) -> Emit<'a> {
        let packets = frames.iter().filter_map(sse::decode_packet);
        let lines: String = packets
            .map(|packet| format!("{}={}\n", packet.seq * PER_PACKET, text_of(&packet.payload)))
            .collect();
        Emit::Now(BodyStep::Write(lines.into()))
    }

    fn caught_up(&mut self, _: &FaceContext, state: RunState, _: ViewerKind) -> BodyStep {
        match state {
            RunState::Closed => BodyStep::Last("over\n".into()),
            RunState::Running | RunState::Waiting => BodyStep::Write(Bytes::new()),
        }
    }

    fn closing(&mut self) -> BodyStep {
        BodyStep::Last("come back\n".into())
    }

    fn max_duration(&self) -> Option<Duration> {
        self.lasts
    }

    fn heartbeat(&self) -> &'static [u8] {
        b"still here\n"
    }

    fn heartbeat_interval(&self, _: Duration) -> Duration {
        Duration::from_secs(3)
    }
}

fn text_of(payload: &Payload) -> String {
    match payload {
        Payload::Delta(text) => text.clone(),
        Payload::Event(_) => "event".into(),
        Payload::Error(error) => format!("{} {}", error.severity, error.code),
        Payload::Close(close) => close.reason().to_owned(),
    }
}
