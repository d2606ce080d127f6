//! One agent over HTTP: asks, reads the answer frame by frame, and asks again where that is allowed.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_agent::{
    About, Agent, CallBegan, Cancel, CancelReason, Clock, Outcome, Output, Stopped, Timer, Turn, Writer,
};
use capstan_protocol::fault::Upstream;
use capstan_protocol::{Fault, sse};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use crate::api_key::ApiKey;
use crate::attempt_writer::AttemptWriter;
use crate::callee::{Ask, Callee};
use crate::decode::{Decode, Step, malformed, truncated};
use crate::failed_call::FailedCall;
use crate::far_runs::{FarRuns, far_id};
use crate::http::{self, cut, timed_out, unsent};
use crate::kinds::{Common, ConfigError};
use crate::prefill::Prefill;
use crate::retries::Retries;
use crate::timeouts::{CallTimeouts, left};
use crate::upstream_failure::UpstreamFailure;

/// A refusal's body is read up to this.
const REFUSAL_BYTES: usize = 64 * 1024;
/// How long the usage of a complete answer is waited for. Most servers send it in the same breath.
const USAGE_GRACE: Duration = Duration::from_millis(300);
/// How long a finished response may take to end, so that its connection can serve again.
const DRAIN: Duration = Duration::from_secs(2);

/// What a protocol over HTTP and SSE has of its own.
pub(crate) trait Dialect: Send + Sync + 'static {
    type Decoder: Decode;

    /// The address of a call.
    fn url(&self) -> &Url;

    /// Its headers beside the usual ones.
    fn headers(&self, body: &Value) -> HeaderMap;

    /// The turn as the upstream wants it; what it cannot take is `invalid_request`.
    fn body(&self, turn: &Turn) -> Result<Value, Fault>;

    fn decoder(&self) -> Self::Decoder;

    /// Whether a call starts a run that outlives its connection, if the answer names one.
    fn starts_runs(&self) -> bool {
        false
    }

    /// How an answer is continued.
    fn prefill(&self) -> Prefill {
        Prefill::Off
    }

    fn about(&self) -> About;
}

/// An upstream over HTTP.
pub(crate) struct HttpAgent<D> {
    dialect: D,
    client: Client,
    secret: ApiKey,
    retries: Retries,
    times: CallTimeouts,
    far_runs: Option<FarRuns>,
    clock: Clock,
}

impl<D: Dialect> HttpAgent<D> {
    pub(crate) fn new(dialect: D, secret: ApiKey, common: &Common) -> Result<Self, ConfigError> {
        let client = http::client(common.times.connect)?;
        let far_runs = FarRuns::new(client.clone(), dialect.url(), secret.clone());
        let far_runs = Some(far_runs).filter(|_| dialect.starts_runs());
        let (retries, times, clock) = (common.retries, common.times, common.clock.clone());
        Ok(Self { dialect, client, secret, retries, times, far_runs, clock })
    }

    /// One call, with what the log is to tell of it if it fails.
    async fn call_logged(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        times: CallTimeouts,
        cancel: &Cancel,
        out: &mut AttemptWriter<'_>,
    ) -> Result<(), FailedCall> {
        let mut seen = Upstream { host: Some(http::host_of(self.dialect.url())), ..Upstream::default() };
        let called = self.exchange(headers, body, times, cancel, out, &mut seen).await;
        called.map_err(|failed| FailedCall {
            fault: http::with_log_details(failed.fault, seen, &self.secret),
            ..failed
        })
    }

    async fn exchange(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        times: CallTimeouts,
        cancel: &Cancel,
        out: &mut AttemptWriter<'_>,
        seen: &mut Upstream,
    ) -> Result<(), FailedCall> {
        let began = Instant::now();
        let request = self.client.post(self.dialect.url().clone()).headers(headers.clone());
        let sending = self.send(request.body(body.clone()), cancel);
        let patience = times.first_token.min(times.total);
        let response = self.clock.within(Timer::FirstToken, patience, sending).await;
        let response = response.ok_or_else(|| timed_out(Timer::FirstToken))??;
        seen.status = Some(response.status().as_u16());
        seen.request_id = http::request_id(response.headers(), &self.secret);
        let response = self.accept(response).await?;
        if self.far_runs.is_some() {
            let id = far_id(response.headers());
            out.say(&mut id.map(Output::FarId).into_iter().collect()).await?;
        }
        self.read(response, began, times, out).await
    }

    /// The head of the answer. Dropping this hangs up, unless that would leave a run behind.
    async fn send(&self, request: RequestBuilder, cancel: &Cancel) -> Result<Response, FailedCall> {
        let Some(far_runs) = &self.far_runs else { return request.send().await.map_err(unsent) };
        let id_of = |answer: &reqwest::Result<Response>| far_id(answer.as_ref().ok()?.headers());
        let answer = far_runs.send(cancel, request.send(), id_of).await;
        answer.ok_or(Stopped)?.map_err(unsent)
    }

    /// A response that is a stream; everything else is a failure in the upstream's own words.
    async fn accept(&self, response: Response) -> Result<Response, FailedCall> {
        let status = response.status().as_u16();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_owned();
        let is_stream = !matches!(essence.as_str(), "application/json" | "text/html");
        if status == 200 && is_stream {
            return Ok(response);
        }
        let headers = response.headers().clone();
        let body = self.beginning(response).await;
        let told = UpstreamFailure::from_response(status, &headers, &body);
        // An error may come in a response that claims success.
        if status >= 300 || told.status.is_some() || !told.words.is_empty() {
            return Err(told.to_failed_call(&self.secret));
        }
        Err(malformed(format!("status {status} with {essence:?} instead of a stream")).into())
    }

    /// The beginning of a refusal; what does not come in time is not there.
    async fn beginning(&self, mut response: Response) -> Vec<u8> {
        let mut bytes = Vec::new();
        let until = Instant::now() + self.times.idle;
        while let Some(Ok(Some(chunk))) = self.clock.within(Timer::Idle, left(until), response.chunk()).await
        {
            bytes.extend_from_slice(&chunk);
            if bytes.len() >= REFUSAL_BYTES {
                break;
            }
        }
        bytes
    }

    async fn read(
        &self,
        response: Response,
        began: Instant,
        times: CallTimeouts,
        out: &mut AttemptWriter<'_>,
    ) -> Result<(), FailedCall> {
        let mut reading = Reading::new(response, self.dialect.decoder(), &self.clock);
        let mut outputs = Vec::new();
        let (total, mut heard_at) = (began + times.total, None);
        loop {
            let (limit, patience) = match heard_at {
                None => (Timer::FirstToken, began + times.first_token),
                Some(at) => (Timer::Idle, at + times.idle),
            };
            let (limit, until) = if total < patience { (Timer::Total, total) } else { (limit, patience) };
            let step = reading.step(limit, until, &mut outputs).await;
            out.say(&mut outputs).await?;
            match step? {
                Step::Done => {
                    reading.drain();
                    return Ok(());
                }
                Step::Ending => return self.usage(reading, out).await,
                Step::Heard => heard_at = Some(Instant::now()),
                // Whatever comes, a ping for example, shows that the upstream is alive.
                Step::Quiet => heard_at = heard_at.map(|_| Instant::now()),
            }
        }
    }

    /// The answer is complete: what follows is welcome, but cannot fail it any more.
    async fn usage(
        &self,
        mut reading: Reading<'_, D::Decoder>,
        out: &mut AttemptWriter<'_>,
    ) -> Result<(), FailedCall> {
        let (until, mut outputs) = (Instant::now() + USAGE_GRACE, Vec::new());
        while let Ok(step) = reading.step(Timer::Grace, until, &mut outputs).await {
            if step == Step::Done {
                reading.drain();
                break;
            }
        }
        Ok(out.say(&mut outputs).await?)
    }

    fn prepare(&self, turn: &Turn, prefill: Option<(Prefill, &str)>) -> Result<(HeaderMap, Bytes), Fault> {
        let mut body = self.dialect.body(turn)?;
        if let Some((prefill, said)) = prefill {
            prefill.apply(&mut body, said);
        }
        let mut headers = self.dialect.headers(&body);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.extend(http::trace_headers(turn));
        Ok((headers, Bytes::from(body.to_string())))
    }
}

#[async_trait]
impl<D: Dialect> Agent for HttpAgent<D> {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let (headers, body) = self.prepare(&turn, None)?;
        let mut made = 0;
        loop {
            made += 1;
            out.call(CallBegan { member: None, about: self.dialect.about(), receipt: None }).await?;
            let mut writer = AttemptWriter::new(out);
            let called = self.call_logged(&headers, &body, self.times, &turn.cancel, &mut writer).await;
            let Err(failed) = called else {
                return Ok(());
            };
            let wait = self.retries.wait(&failed, turn.attempt, made).filter(|_| !writer.has_written());
            let Some(wait) = wait else {
                return Err(self.retries.verdict(failed.fault, writer.has_written()).into());
            };
            failed.log_retry(&turn, made, wait);
            self.clock.sleep(Timer::Again, wait).await;
        }
    }

    async fn end(&self, far_id: &str, _reason: CancelReason) -> Result<(), Fault> {
        match &self.far_runs {
            Some(far_runs) => far_runs.end(far_id).await,
            None => Ok(()),
        }
    }

    fn max_attempts(&self) -> u32 {
        self.retries.attempts
    }

    fn about(&self) -> About {
        self.dialect.about()
    }
}

#[async_trait]
impl<D: Dialect> Callee for HttpAgent<D> {
    async fn call(&self, ask: Ask<'_>, out: &mut AttemptWriter<'_>) -> Result<(), FailedCall> {
        let (headers, body) = self.prepare(ask.turn, ask.prefill)?;
        let own = self.times.first_token;
        let first_token = ask.first_token.map_or(own, |limit| limit.min(own));
        let times = CallTimeouts { first_token, ..self.times };
        self.call_logged(&headers, &body, times, &ask.turn.cancel, out).await
    }

    fn is_repeatable(&self) -> bool {
        self.retries.is_repeatable
    }

    fn prefill(&self) -> Prefill {
        self.dialect.prefill()
    }
}

/// A response being read.
struct Reading<'a, D> {
    response: Response,
    frames: sse::Decoder,
    decoder: D,
    clock: &'a Clock,
}

impl<'a, D: Decode> Reading<'a, D> {
    fn new(response: Response, decoder: D, clock: &'a Clock) -> Self {
        Self { response, frames: sse::Decoder::new(), decoder, clock }
    }

    /// The next frame, or at least bytes, before the limit strikes.
    async fn step(&mut self, limit: Timer, until: Instant, out: &mut Vec<Output>) -> Result<Step, Fault> {
        let mut strongest = Step::Quiet;
        while let Some(frame) = self.frames.next_frame() {
            let frame = frame.map_err(|e| malformed(e.to_string()))?;
            match self.decoder.frame(&frame.event, &frame.data, out)? {
                end @ (Step::Ending | Step::Done) => return Ok(end),
                Step::Heard => strongest = Step::Heard,
                Step::Quiet => {}
            }
        }
        if strongest == Step::Heard {
            return Ok(strongest);
        }
        let chunk = self.clock.within(limit, left(until), self.response.chunk()).await;
        match chunk.ok_or_else(|| timed_out(limit))? {
            Ok(Some(bytes)) => self.frames.push(&bytes),
            Ok(None) if self.decoder.is_complete() => return Ok(Step::Done),
            Ok(None) => return Err(truncated()),
            Err(_) if self.decoder.is_complete() => return Ok(Step::Done),
            Err(error) => return Err(cut(error)),
        }
        Ok(Step::Quiet)
    }

    /// Lets the response end behind our back: its connection can then be used again.
    fn drain(self) {
        let mut response = self.response;
        tokio::spawn(tokio::time::timeout(DRAIN, async move {
            while let Ok(Some(_)) = response.chunk().await {}
        }));
    }
}
