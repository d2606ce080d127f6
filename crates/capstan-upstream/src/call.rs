//! One agent over HTTP: asks, reads the answer frame by frame, and asks again where that is
//! allowed.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_agent::{
    About, Agent, CallBegan, Cancel, CancelReason, Clock, Endpoint, Failure, Outcome, Output,
    Stopped, Timer, Turn, Writer,
};
use capstan_protocol::fault::Upstream;
use capstan_protocol::{DecodeError, ErrorSeverity, Fault, FaultKind, NativeOrigin, sse};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, RequestBuilder, Response};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;
use url::Url;

use crate::api_key::ApiKey;
use crate::attempt_writer::AttemptWriter;
use crate::body::Body;
use crate::callee::{Ask, Callee};
use crate::config::ConfigError;
use crate::decode::{Decode, Step, malformed, truncated};
use crate::document::Document;
use crate::failed_call::FailedCall;
use crate::far_runs::{FarRuns, far_id};
use crate::http::{self, timed_out, unsent};
use crate::kind::Common;
use crate::prefill::Prefill;
use crate::request_body::RequestBody;
use crate::retries::{Retries, is_for_the_client};
use crate::timeouts::{CallTimeouts, left};
use crate::upstream_failure::UpstreamFailure;

/// A refusal's body is read up to this.
const REFUSAL_BYTES: usize = 64 * 1024;
/// How long the usage of a complete answer is waited for. Most servers send it at once, and a server
/// that sends none closes the stream.
const USAGE_GRACE: Duration = Duration::from_secs(2);
/// How often an answer is read on where it broke off, by upstreams that keep it.
pub(crate) const RESUMES: u32 = 3;
/// How long a finished response may take to end, so that its connection can serve again.
const DRAIN: Duration = Duration::from_secs(2);

/// What a protocol over HTTP and SSE has of its own.
pub(crate) trait Dialect: Send + Sync + 'static {
    type Decoder: Decode;

    /// The address of a call.
    fn url(&self) -> &Url;

    /// Its headers beside the usual ones.
    fn headers(&self, turn: &Turn) -> HeaderMap;

    /// The turn as the upstream wants it; what it cannot take is `invalid_request`.
    fn body(&self, turn: &Turn) -> Result<RequestBody, Fault>;

    /// Warnings that name what of the request the upstream has no word for.
    fn left_out(&self, _turn: &Turn) -> Vec<Output> {
        Vec::new()
    }

    fn decoder(&self, turn: &Turn) -> Self::Decoder;

    /// How an answer that broke off is read on, if the upstream keeps it: that starts nothing, and
    /// is no call. `resumed` tells how often that was done.
    fn resume(&self, _decoder: &mut Self::Decoder, _resumed: u32) -> Option<Resume> {
        None
    }

    /// Whether a refusal to be read on is the upstream's last word.
    fn is_last_word(&self, _decoder: &Self::Decoder) -> bool {
        true
    }

    /// Whether a call starts a run that outlives its connection, if the answer names one.
    fn starts_runs(&self) -> bool {
        false
    }

    /// How an answer is continued.
    fn prefill(&self) -> Prefill {
        Prefill::Off
    }

    /// The address that lists the models, without a query.
    fn models(&self) -> Option<Url> {
        None
    }

    /// The protocol, if clients of the gateway may speak it as well.
    fn spoken(&self) -> Option<capstan_protocol::Dialect> {
        None
    }

    /// How tokens are counted without an answer, if the upstream does that.
    fn counting(&self, _turn: &Turn) -> Option<Result<Counting, Fault>> {
        None
    }

    /// Whose reasoning its answers hold, if the protocol is a provider's.
    fn maker(&self) -> Option<NativeOrigin> {
        None
    }

    /// The headers of an error response that a client of this protocol acts on, each by how its
    /// name begins. Such a client gets errors in the provider's own words. `None`: it does not.
    fn error_headers(&self) -> Option<&'static [&'static str]> {
        None
    }

    fn about(&self) -> About;
}

/// What is known of the response to a call.
#[derive(Default)]
struct Seen {
    log: Upstream,
    headers: HeaderMap,
}

/// A request that only counts tokens.
pub(crate) struct Counting {
    pub(crate) url: Url,
    pub(crate) body: RequestBody,
}

/// What a count is read from.
#[derive(Deserialize)]
struct Counted {
    input_tokens: u64,
}

/// A request that reads an answer on.
pub(crate) struct Resume {
    pub(crate) url: Url,
    /// What is posted; without it the request is a GET.
    pub(crate) body: Option<Value>,
    pub(crate) wait: Duration,
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
        let client = http::client(common.times.connect, &common.headers)?;
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
        turn: &Turn,
        out: &mut AttemptWriter<'_>,
    ) -> Result<(), FailedCall> {
        let mut seen = Seen::default();
        seen.log.host = Some(http::host_of(self.dialect.url()));
        let called = self.exchange(headers, body, times, turn, out, &mut seen).await;
        called.map_err(|failed| {
            let fault = name_address(self.name_model(failed.fault));
            let fault = self.hand_on(self.quote(fault, turn), &seen, turn);
            FailedCall { fault: http::with_log_details(fault, seen.log, &self.secret), ..failed }
        })
    }

    /// Adds what a provider says about the client's own request to a fault. Clients of model
    /// protocols get it; some look for words in it. Statements about keys, accounts and the
    /// operator's choice of a model stay here.
    fn quote(&self, fault: Fault, turn: &Turn) -> Fault {
        let is_asked = turn.dialect.is_some() && self.dialect.spoken().is_some();
        let is_operators = matches!(
            fault.kind(),
            FaultKind::UpstreamAuth | FaultKind::UpstreamQuota | FaultKind::ModelNotFound
        );
        let is_about_request = match fault.details().get("upstream_status").and_then(Value::as_u64)
        {
            Some(400 | 413 | 422) => true,
            // Without a word for it, the address is likely to be wrong.
            Some(404) => fault.details().contains_key("upstream_error"),
            Some(_) | None => false,
        };
        let text = fault.cause().and_then(|cause| cause.chain.first()).cloned();
        match text.filter(|_| is_asked && !is_operators && is_about_request) {
            Some(text) => fault.with_detail("upstream_message", text),
            None => fault,
        }
    }

    /// Adds all that a provider says about its failure, for clients that act on its own words and
    /// headers.
    fn hand_on(&self, fault: Fault, seen: &Seen, turn: &Turn) -> Fault {
        let is_own = turn.dialect.is_some() && turn.dialect == self.dialect.spoken();
        let Some(names) = self.dialect.error_headers().filter(|_| is_own) else { return fault };
        let said = fault.cause().filter(|cause| cause.error_type == UpstreamFailure::SAID);
        let text = said.and_then(|cause| cause.chain.first()).cloned();
        let Some(text) = text.filter(|_| fault.details().contains_key("upstream_error")) else {
            return fault;
        };
        let is_named = |name: &str| names.iter().any(|begin| name.starts_with(begin));
        let headers = seen.headers.iter().filter(|(name, _)| is_named(name.as_str()));
        let headers: Map<String, Value> = headers
            .filter_map(|(name, value)| {
                Some((name.to_string(), self.secret.scrub(value.to_str().ok()?).into()))
            })
            .collect();
        fault.with_detail("upstream_message", text).with_detail("upstream_headers", headers)
    }

    /// Says which model is not there and, to developers, where those that are can be listed.
    fn name_model(&self, fault: Fault) -> Fault {
        let model = self.dialect.about().model;
        let Some(model) = model.filter(|_| fault.kind() == FaultKind::ModelNotFound) else {
            return fault;
        };
        let message = format!(
            "The model {model:?} of this agent does not exist at its provider, or the agent's key \
             may not use it. The gateway's log names the address that lists the provider's models."
        );
        let mut cause = fault.cause().cloned();
        if let Some((cause, url)) = cause.as_mut().zip(self.dialect.models()) {
            cause.chain.push(format!("GET {url} with the agent's key lists the models"));
        }
        let fault = fault.with_message(message).with_detail("model", model);
        match cause {
            Some(cause) => fault.with_cause(cause),
            None => fault,
        }
    }

    async fn exchange(
        &self,
        headers: &HeaderMap,
        body: &Bytes,
        times: CallTimeouts,
        turn: &Turn,
        out: &mut AttemptWriter<'_>,
        seen: &mut Seen,
    ) -> Result<(), FailedCall> {
        let began = Instant::now();
        let request = self.client.post(self.dialect.url().clone()).headers(headers.clone());
        let sending = self.send(request.body(body.clone()), &turn.cancel);
        let patience = times.first_token.min(times.total);
        let response = self.clock.within(Timer::FirstToken, patience, sending).await;
        let response = response.ok_or_else(|| timed_out(Timer::FirstToken))??;
        seen.log.status = Some(response.status().as_u16());
        seen.log.request_id = http::request_id(response.headers(), &self.secret);
        seen.headers.clone_from(response.headers());
        let response = self.accept(response).await?;
        if self.far_runs.is_some() {
            let id = far_id(response.headers());
            out.say(&mut id.map(Output::FarId).into_iter().collect()).await?;
        }
        let mut decoder = self.dialect.decoder(turn);
        let mut read = self.read(response, began, times, &mut decoder, out).await;
        for resumed in 0.. {
            if !read.as_ref().is_err_and(|failed| is_cut(&failed.fault))
                || left(began + times.total).is_zero()
            {
                break;
            }
            let Some(resume) = self.dialect.resume(&mut decoder, resumed) else { break };
            out.alive()?;
            match self.resume(resume, headers).await {
                Resumed::On(response) => {
                    read = self.read(response, began, times, &mut decoder, out).await
                }
                Resumed::Never if self.dialect.is_last_word(&decoder) => break,
                Resumed::Never | Resumed::NotNow => {}
            }
        }
        read
    }

    /// What the upstream counts; nothing if it has no such address.
    async fn count(&self, turn: &Turn, counting: Counting) -> Result<Option<u64>, FailedCall> {
        let mut headers = self.dialect.headers(turn);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(http::trace_headers(turn));
        let request =
            self.client.post(counting.url).headers(headers).body(counting.body.to_bytes());
        let patience = self.times.first_token.min(self.times.total);
        let response = self.clock.within(Timer::FirstToken, patience, request.send()).await;
        let response = response.ok_or_else(|| timed_out(Timer::FirstToken))?.map_err(unsent)?;
        if matches!(response.status().as_u16(), 404 | 405) {
            return Ok(None);
        }
        let body = self.beginning(self.accept(response).await?).await;
        let counted: Result<Counted, _> = serde_json::from_slice(&body);
        let counted = counted.map_err(|error| malformed(format!("a count of tokens: {error}")))?;
        Ok(Some(counted.input_tokens))
    }

    /// The rest of an answer that broke off, if its upstream can tell it. If not, the attempt ends
    /// as it would have.
    async fn resume(&self, resume: Resume, headers: &HeaderMap) -> Resumed {
        self.clock.sleep(Timer::Again, resume.wait).await;
        let request = match resume.body {
            Some(body) => self.client.post(resume.url).body(body.to_string()),
            None => self.client.get(resume.url),
        };
        let sending = request.headers(headers.clone()).send();
        match self.clock.within(Timer::FirstToken, self.times.first_token, sending).await {
            Some(Ok(response)) if response.status().is_success() => Resumed::On(response),
            Some(Ok(response)) if response.status().is_client_error() => Resumed::Never,
            Some(Ok(_) | Err(_)) | None => Resumed::NotNow,
        }
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
        let essence =
            kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_owned();
        // A document may be the answer, or an error: its reader finds out.
        if (200..300).contains(&status) && essence != "text/html" {
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
    async fn beginning(&self, response: Response) -> Vec<u8> {
        let mut bytes = Vec::new();
        let Ok(mut body) = Body::of(response) else { return bytes };
        let until = Instant::now() + self.times.idle;
        while let Some(Ok(Some(chunk))) =
            self.clock.within(Timer::Idle, left(until), body.chunk()).await
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
        decoder: &mut D::Decoder,
        out: &mut AttemptWriter<'_>,
    ) -> Result<(), FailedCall> {
        let mut reading = Reading::new(response, decoder, &self.secret, &self.clock)?;
        let mut outputs = Vec::new();
        let (began, total, mut heard_at) = (began.max(reading.began), began + times.total, None);
        loop {
            let (limit, patience) = match heard_at {
                None => (Timer::FirstToken, began + times.first_token),
                Some(at) if reading.decoder.is_thinking() => {
                    (Timer::Thinking, at + times.thinking.max(times.idle))
                }
                Some(at) => (Timer::Idle, at + times.idle),
            };
            let (limit, until) =
                if total < patience { (Timer::Total, total) } else { (limit, patience) };
            let step = reading.step(limit, until, &mut outputs).await;
            let is_mute = outputs.is_empty();
            out.say(&mut outputs).await?;
            match step? {
                Step::Done => {
                    reading.drain();
                    return Ok(());
                }
                Step::Ending => return self.usage(reading, out).await,
                // Of a hidden thought nothing comes but pings and empty pieces.
                Step::Quiet if !reading.decoder.is_thinking() => {}
                Step::Heard | Step::Quiet => {
                    heard_at = Some(Instant::now());
                    out.begin_answer().await?;
                    if is_mute {
                        out.alive()?;
                    }
                }
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

    fn prepare(
        &self,
        turn: &Turn,
        prefill: Option<(Prefill, &str)>,
    ) -> Result<(HeaderMap, Bytes), Fault> {
        let foreign = turn.untranslatable.as_ref();
        if let Some(error) = foreign.filter(|_| turn.dialect != self.dialect.spoken()) {
            return Err(not_translated(error));
        }
        let mut body = self.dialect.body(turn)?;
        if let Some((prefill, said)) = prefill {
            prefill.apply(&mut body, said);
        }
        let mut headers = self.dialect.headers(turn);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("text/event-stream"));
        headers.extend(http::trace_headers(turn));
        Ok((headers, body.to_bytes()))
    }
}

#[async_trait]
impl<D: Dialect> Agent for HttpAgent<D> {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let (headers, body) = self.prepare(&turn, None)?;
        let mut writer = AttemptWriter::new(out);
        writer.say(&mut self.dialect.left_out(&turn)).await?;
        let mut made = 0;
        loop {
            made += 1;
            writer.begin_call();
            if let Some(out) = writer.writer() {
                out.call(CallBegan { member: None, about: self.dialect.about(), receipt: None })
                    .await?;
            }
            let called = self.call_logged(&headers, &body, self.times, &turn, &mut writer).await;
            let Err(failed) = called else {
                return Ok(writer.end_calls().await?);
            };
            let wait =
                self.retries.wait(&failed, turn.attempt, made).filter(|_| !writer.has_written());
            let Some(wait) = wait else {
                writer.end_calls().await?;
                let has_written = writer.has_written();
                let fault = self.retries.verdict(failed.fault, turn.attempt, has_written);
                let is_clients = !has_written && is_for_the_client(&turn, &fault);
                return Err(if is_clients { Failure::last(fault) } else { fault.into() });
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

    async fn count_tokens(&self, turn: Turn) -> Option<Result<u64, Fault>> {
        let counted = match self.dialect.counting(&turn)? {
            Ok(counting) => self.count(&turn, counting).await,
            Err(fault) => Err(fault.into()),
        };
        counted.map_err(|failed| failed.fault).transpose()
    }

    fn max_attempts(&self) -> u32 {
        self.retries.attempts
    }

    fn about(&self) -> About {
        self.dialect.about()
    }

    fn endpoint(&self) -> Option<Endpoint> {
        Some(http::endpoint(self.dialect.url(), &self.secret))
    }

    fn origin(&self) -> Option<NativeOrigin> {
        self.dialect.maker()
    }
}

#[async_trait]
impl<D: Dialect> Callee for HttpAgent<D> {
    async fn call(&self, ask: Ask<'_>, out: &mut AttemptWriter<'_>) -> Result<(), FailedCall> {
        let (headers, body) = self.prepare(ask.turn, ask.prefill)?;
        let own = self.times.first_token;
        let first_token = ask.first_token.map_or(own, |limit| limit.min(own));
        let times = CallTimeouts { first_token, ..self.times };
        out.say(&mut self.dialect.left_out(ask.turn)).await?;
        self.call_logged(&headers, &body, times, ask.turn, out).await
    }

    fn is_repeatable(&self) -> bool {
        self.retries.is_repeatable
    }

    fn prefill(&self) -> Prefill {
        self.dialect.prefill()
    }
}

/// Refuses what only an agent of the request's own protocol can judge.
fn not_translated(error: &DecodeError) -> Fault {
    Fault::new(FaultKind::InvalidRequest)
        .with_message(error.to_string())
        .with_detail("path", error.path())
}

/// Says what to check where a server knows nothing of the address. One that names what is missing
/// in the words of its protocol knows it.
fn name_address(fault: Fault) -> Fault {
    let details = fault.details();
    let is_404 = details.get("upstream_status").is_some_and(|status| status == 404);
    if !is_404 || details.contains_key("upstream_error") || fault.kind() != FaultKind::UpstreamError
    {
        return fault;
    }
    let message = "The server of this agent has nothing at the address of the call (404). Check \
                   the agent's url.";
    fault.with_message(message)
}

/// The answer broke off, and nothing says that its rest is lost.
fn is_cut(fault: &Fault) -> bool {
    let is_cut = matches!(fault.kind(), FaultKind::UpstreamTruncated | FaultKind::UpstreamTimeout);
    is_cut && fault.severity() == ErrorSeverity::Transient
}

/// Whether an answer can be read on.
enum Resumed {
    On(Response),
    NotNow,
    Never,
}

/// A response being read.
struct Reading<'a, D> {
    body: Body,
    frames: sse::Decoder,
    /// What is no stream, though one was asked for.
    document: Option<Document>,
    has_begun: bool,
    decoder: &'a mut D,
    secret: &'a ApiKey,
    clock: &'a Clock,
    began: Instant,
}

impl<'a, D: Decode> Reading<'a, D> {
    fn new(
        response: Response,
        decoder: &'a mut D,
        secret: &'a ApiKey,
        clock: &'a Clock,
    ) -> Result<Self, Fault> {
        let (body, frames, began) = (Body::of(response)?, sse::Decoder::new(), Instant::now());
        Ok(Self { body, frames, document: None, has_begun: false, decoder, secret, clock, began })
    }

    /// What one read of the network brings, before the limit strikes: all of its frames, and the
    /// most that one of them meant.
    async fn step(
        &mut self,
        limit: Timer,
        until: Instant,
        out: &mut Vec<Output>,
    ) -> Result<Step, Fault> {
        let chunk = self.clock.within(limit, left(until), self.body.chunk()).await;
        match chunk.ok_or_else(|| timed_out(limit))? {
            Ok(Some(bytes)) => self.take(&bytes, out),
            Ok(None) => self.end(out),
            Err(_) if self.decoder.is_complete() => Ok(Step::Done),
            Err(fault) => Err(fault),
        }
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<Output>) -> Result<Step, Fault> {
        if !self.has_begun && bytes.iter().any(|byte| !byte.is_ascii_whitespace()) {
            self.has_begun = true;
            self.document = Document::begins(bytes).then(Document::default);
        }
        if let Some(document) = &mut self.document {
            return document.push(bytes).map(|()| Step::Quiet);
        }
        self.frames.push(bytes);
        self.decode(out)
    }

    fn decode(&mut self, out: &mut Vec<Output>) -> Result<Step, Fault> {
        let mut strongest = Step::Quiet;
        while let Some(frame) = self.frames.next_frame() {
            let read = match frame {
                Ok(frame) => self.decoder.frame(&frame.event, &frame.data, out),
                Err(error) => return Err(malformed(error.to_string())),
            };
            match read {
                Ok(step) => strongest = strongest.max(step),
                // What follows a complete answer cannot fail it.
                Err(_) if strongest >= Step::Ending => break,
                Err(fault) => return Err(fault),
            }
        }
        Ok(strongest)
    }

    fn end(&mut self, out: &mut Vec<Output>) -> Result<Step, Fault> {
        match self.document.take() {
            Some(document) => document.read(self.decoder, self.secret, out).map(|()| Step::Done),
            None if self.decoder.is_complete() => Ok(Step::Done),
            None => Err(truncated()),
        }
    }

    /// Lets the response end behind our back: its connection can then be used again.
    fn drain(self) {
        let mut body = self.body;
        tokio::spawn(tokio::time::timeout(DRAIN, async move {
            while let Ok(Some(_)) = body.chunk().await {}
        }));
    }
}
