//! Calls an agent over HTTP: sends the request, decodes the response frame by frame, and retries
//! where the policy allows it.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_agent::{
    About, Agent, CallBegan, Cancel, CancelReason, Clock, Continued, Endpoint, Failure, Outcome,
    Output, Stopped, Timer, Turn, Writer,
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
use crate::thinking::thinks_first;
use crate::timeouts::{CallTimeouts, left};
use crate::upstream_failure::UpstreamFailure;

/// The most bytes that are read of a refusal's body.
const REFUSAL_BYTES: usize = 64 * 1024;
/// How long to wait for the usage after a complete answer. Most servers send it at once, and a
/// server that sends none closes the stream.
const USAGE_GRACE: Duration = Duration::from_secs(2);
/// How often a broken answer is resumed, if the upstream stores answers.
pub(crate) const RESUMES: u32 = 3;
/// How long a complete response may take to end, so that its connection can be reused.
const DRAIN: Duration = Duration::from_secs(2);

/// What differs between protocols over HTTP and SSE.
pub(crate) trait Dialect: Send + Sync + 'static {
    type Decoder: Decode;

    /// The address of a call.
    fn url(&self) -> &Url;

    /// The headers of a call, besides the usual ones.
    fn headers(&self, turn: &Turn) -> HeaderMap;

    /// Encodes the turn. Content that the upstream cannot take is `invalid_request`.
    fn body(&self, turn: &Turn) -> Result<RequestBody, Fault>;

    /// Warnings that name the parts of the request that the upstream does not get as they came.
    fn left_out(&self, _turn: &Turn) -> Vec<Output> {
        Vec::new()
    }

    fn decoder(&self, turn: &Turn) -> Self::Decoder;

    /// The request that resumes a broken answer, if the upstream stores answers. It starts nothing
    /// and does not count as a call. `resumed` is how often that was done.
    fn resume(&self, _decoder: &mut Self::Decoder, _resumed: u32) -> Option<Resume> {
        None
    }

    /// Whether the refusal of a resume is final.
    fn is_last_word(&self, _decoder: &Self::Decoder) -> bool {
        true
    }

    /// Whether a call starts a remote run that outlives its connection, if the response names one.
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

    /// The request that counts tokens without an answer, if the upstream can do that.
    fn counting(&self, _turn: &Turn) -> Option<Result<Counting, Fault>> {
        None
    }

    /// The maker of the reasoning in the answers, if the protocol is a provider's.
    fn maker(&self) -> Option<NativeOrigin> {
        None
    }

    /// The prefixes of the error headers that clients of this protocol act on. Such a client gets
    /// the provider's errors unchanged. `None`: it gets the gateway's errors.
    fn error_headers(&self) -> Option<&'static [&'static str]> {
        None
    }

    fn about(&self) -> About;
}

/// A prepared call.
struct Prepared {
    headers: HeaderMap,
    body: Bytes,
    times: CallTimeouts,
    /// Whether the model may think before its answer begins.
    thinks: bool,
}

/// The facts about the response to a call.
#[derive(Default)]
struct ResponseFacts {
    log: Upstream,
    headers: HeaderMap,
}

/// A request that only counts tokens.
pub(crate) struct Counting {
    pub(crate) url: Url,
    pub(crate) body: RequestBody,
}

/// The response with the count.
#[derive(Deserialize)]
struct Counted {
    input_tokens: u64,
}

/// A request that resumes an answer.
pub(crate) struct Resume {
    pub(crate) url: Url,
    /// The body of a POST. Without it the request is a GET.
    pub(crate) body: Option<Value>,
    pub(crate) wait: Duration,
    /// The upstream sends no stream, so it is asked again and again. Nothing broke off.
    pub(crate) is_poll: bool,
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

    /// Makes one call, and adds the details that the log needs if it fails.
    async fn call_logged(
        &self,
        call: &Prepared,
        turn: &Turn,
        out: &mut AttemptWriter<'_>,
    ) -> Result<(), FailedCall> {
        let mut facts = ResponseFacts::default();
        facts.log.host = Some(http::host_of(self.dialect.url()));
        let called = self.exchange(call, turn, out, &mut facts).await;
        called.map_err(|failed| {
            let fault = name_address(self.name_model(failed.fault));
            let fault = self.hand_on(self.quote(fault, turn), &facts, turn);
            FailedCall { fault: http::with_log_details(fault, facts.log, &self.secret), ..failed }
        })
    }

    /// Adds the provider's message about the client's own request to a fault. Clients of model
    /// protocols get it, and some search it for phrases. Messages about keys, accounts and the
    /// configured model stay in the log.
    fn quote(&self, fault: Fault, turn: &Turn) -> Fault {
        let is_asked = turn.dialect.is_some() && self.dialect.spoken().is_some();
        let is_operators = matches!(
            fault.kind(),
            FaultKind::UpstreamAuth | FaultKind::UpstreamQuota | FaultKind::ModelNotFound
        );
        let is_about_request = match fault.details().get("upstream_status").and_then(Value::as_u64)
        {
            Some(400 | 413 | 422) => true,
            // Without an error message, the address is probably wrong.
            Some(404) => fault.details().contains_key("upstream_error"),
            Some(_) | None => false,
        };
        let text = fault.cause().and_then(|cause| cause.chain.first()).cloned();
        match text.filter(|_| is_asked && !is_operators && is_about_request) {
            Some(text) => fault.with_detail("upstream_message", text),
            None => fault,
        }
    }

    /// Adds the provider's error with its headers, for clients that act on them.
    fn hand_on(&self, fault: Fault, facts: &ResponseFacts, turn: &Turn) -> Fault {
        let is_own = turn.dialect.is_some() && turn.dialect == self.dialect.spoken();
        let Some(names) = self.dialect.error_headers().filter(|_| is_own) else { return fault };
        let cause =
            fault.cause().filter(|cause| cause.error_type == UpstreamFailure::UPSTREAM_TEXT);
        let text = cause.and_then(|cause| cause.chain.first()).cloned();
        let Some(text) = text.filter(|_| fault.details().contains_key("upstream_error")) else {
            return fault;
        };
        let is_named = |name: &str| names.iter().any(|begin| name.starts_with(begin));
        let headers = facts.headers.iter().filter(|(name, _)| is_named(name.as_str()));
        let headers: Map<String, Value> = headers
            .filter_map(|(name, value)| {
                Some((name.to_string(), self.secret.scrub(value.to_str().ok()?).into()))
            })
            .collect();
        fault.with_detail("upstream_message", text).with_detail("upstream_headers", headers)
    }

    /// Names the missing model and, for developers, the address that lists the models.
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
        call: &Prepared,
        turn: &Turn,
        out: &mut AttemptWriter<'_>,
        facts: &mut ResponseFacts,
    ) -> Result<(), FailedCall> {
        let (Prepared { headers, body, times, .. }, began) = (call, Instant::now());
        let request = self.client.post(self.dialect.url().clone()).headers(headers.clone());
        let sending = self.send(request.body(body.clone()), &turn.cancel);
        let limit = times.first_token.min(times.total);
        let response = self.clock.within(Timer::FirstToken, limit, sending).await;
        let response = response.ok_or_else(|| timed_out(Timer::FirstToken))??;
        facts.log.status = Some(response.status().as_u16());
        facts.log.request_id = http::request_id(response.headers(), &self.secret);
        facts.headers.clone_from(response.headers());
        let response = self.accept(response).await?;
        if self.far_runs.is_some() {
            let id = far_id(response.headers());
            out.write(&mut id.map(Output::FarId).into_iter().collect()).await?;
        }
        let mut decoder = self.dialect.decoder(turn);
        let mut read = self.read(response, began, call, &mut decoder, out).await;
        for resumed in 0.. {
            if !read.as_ref().is_err_and(|failed| is_cut(&failed.fault))
                || left(began + times.total).is_zero()
            {
                break;
            }
            let Some(resume) = self.dialect.resume(&mut decoder, resumed) else { break };
            out.alive()?;
            let is_poll = resume.is_poll;
            match self.resume(resume, headers).await {
                Resumed::On(response) => {
                    let continued = Output::Continued(Continued::Resume);
                    out.write(&mut Some(continued).filter(|_| !is_poll).into_iter().collect())
                        .await?;
                    read = self.read(response, began, call, &mut decoder, out).await
                }
                Resumed::Never if self.dialect.is_last_word(&decoder) => break,
                Resumed::Never | Resumed::NotNow => {}
            }
        }
        read
    }

    /// Counts tokens. `None` if the upstream has no such address.
    async fn count(&self, turn: &Turn, counting: Counting) -> Result<Option<u64>, FailedCall> {
        let mut headers = self.dialect.headers(turn);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(http::trace_headers(turn));
        let request =
            self.client.post(counting.url).headers(headers).body(counting.body.to_bytes());
        let limit = self.times.first_token.min(self.times.total);
        let response = self.clock.within(Timer::FirstToken, limit, request.send()).await;
        let response = response.ok_or_else(|| timed_out(Timer::FirstToken))?.map_err(unsent)?;
        if matches!(response.status().as_u16(), 404 | 405) {
            return Ok(None);
        }
        let body = self.beginning(self.accept(response).await?).await;
        let counted: Result<Counted, _> = serde_json::from_slice(&body);
        let counted = counted.map_err(|error| malformed(format!("a count of tokens: {error}")))?;
        Ok(Some(counted.input_tokens))
    }

    /// Resumes a broken answer, if the upstream can. If not, the attempt ends with the original
    /// fault.
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

    /// Sends the request and returns the head of the response. Dropping the future closes the
    /// connection, unless that would leave a remote run behind.
    async fn send(&self, request: RequestBuilder, cancel: &Cancel) -> Result<Response, FailedCall> {
        let Some(far_runs) = &self.far_runs else { return request.send().await.map_err(unsent) };
        let id_of = |answer: &reqwest::Result<Response>| far_id(answer.as_ref().ok()?.headers());
        let answer = far_runs.send(cancel, request.send(), id_of).await;
        answer.ok_or(Stopped)?.map_err(unsent)
    }

    /// Accepts a response that is a stream. Any other response becomes a failure with the
    /// upstream's message.
    async fn accept(&self, response: Response) -> Result<Response, FailedCall> {
        let status = response.status().as_u16();
        let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence =
            kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_owned();
        // A document may be the answer or an error. Its reader decides.
        if (200..300).contains(&status) && essence != "text/html" {
            return Ok(response);
        }
        let headers = response.headers().clone();
        let body = self.beginning(response).await;
        let failure = UpstreamFailure::from_response(status, &headers, &body);
        // Some servers send an error with a status of success.
        if status >= 300 || failure.status.is_some() || !failure.words.is_empty() {
            return Err(failure.to_failed_call(&self.secret));
        }
        Err(malformed(format!("status {status} with {essence:?} instead of a stream")).into())
    }

    /// The beginning of a refusal's body, as far as it comes in time.
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
        call: &Prepared,
        decoder: &mut D::Decoder,
        out: &mut AttemptWriter<'_>,
    ) -> Result<(), FailedCall> {
        let times = &call.times;
        let mut reading = Reading::new(response, decoder, &self.secret, &self.clock)?;
        let mut outputs = Vec::new();
        let (mut waits_since, total) = (began.max(reading.began), began + times.total);
        let mut last_output = None;
        loop {
            let (limit, deadline) = match last_output {
                None => (Timer::FirstToken, waits_since + times.first_token),
                Some(at) if reading.decoder.is_thinking() => {
                    (Timer::Thinking, at + times.thinking.max(times.idle))
                }
                Some(at) => (Timer::Idle, at + times.idle),
            };
            let (limit, until) =
                if total < deadline { (Timer::Total, total) } else { (limit, deadline) };
            let step = reading.step(limit, until, &mut outputs).await;
            let is_mute = outputs.is_empty();
            out.write(&mut outputs).await?;
            match step? {
                Step::Done => {
                    reading.drain();
                    return Ok(());
                }
                Step::Ending => return self.usage(reading, out).await,
                // A hidden thought sends only pings and empty pieces.
                Step::Quiet if last_output.is_none() && call.thinks => {
                    waits_since = Instant::now();
                    out.alive()?;
                }
                Step::Quiet if !reading.decoder.is_thinking() => {}
                Step::Heard | Step::Quiet => {
                    last_output = Some(Instant::now());
                    out.begin_answer().await?;
                    if is_mute {
                        out.alive()?;
                    }
                }
            }
        }
    }

    /// Waits for the usage after a complete answer. Later failures do not matter any more.
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
        Ok(out.write(&mut outputs).await?)
    }

    fn prepare(&self, turn: &Turn, prefill: Option<(Prefill, &str)>) -> Result<Prepared, Fault> {
        let foreign = turn.untranslatable.as_ref();
        if let Some(error) = foreign.filter(|_| turn.dialect != self.dialect.spoken()) {
            return Err(not_translated(error));
        }
        let mut body = self.dialect.body(turn)?;
        if let Some((prefill, sent)) = prefill {
            prefill.apply(&mut body, sent);
        }
        let mut headers = self.dialect.headers(turn);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("text/event-stream"));
        headers.extend(http::trace_headers(turn));
        let thinks = thinks_first(&body);
        let times = if thinks { self.times.of_thinker() } else { self.times };
        Ok(Prepared { headers, body: body.to_bytes(), times, thinks })
    }
}

#[async_trait]
impl<D: Dialect> Agent for HttpAgent<D> {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let call = self.prepare(&turn, None)?;
        let mut writer = AttemptWriter::new(out);
        writer.write(&mut self.dialect.left_out(&turn)).await?;
        let mut made = 0;
        loop {
            made += 1;
            writer.begin_call();
            if let Some(out) = writer.writer() {
                out.call(CallBegan { member: None, about: self.dialect.about(), receipt: None })
                    .await?;
            }
            let called = self.call_logged(&call, &turn, &mut writer).await;
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
        let mut call = self.prepare(ask.turn, ask.prefill)?;
        let own = call.times.first_token;
        call.times.first_token = ask.first_token.map_or(own, |limit| limit.min(own));
        out.write(&mut self.dialect.left_out(ask.turn)).await?;
        self.call_logged(&call, ask.turn, out).await
    }

    fn is_repeatable(&self) -> bool {
        self.retries.is_repeatable
    }

    fn prefill(&self) -> Prefill {
        self.dialect.prefill()
    }
}

/// Refuses values that only an agent of the request's own protocol can check.
fn not_translated(error: &DecodeError) -> Fault {
    Fault::new(FaultKind::InvalidRequest)
        .with_message(error.to_string())
        .with_detail("path", error.path())
}

/// Adds the advice to check the address, if the server does not know it. A server that says in its
/// protocol what is missing knows the address.
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

/// The answer broke off, and nothing shows that the rest is lost.
fn is_cut(fault: &Fault) -> bool {
    let is_cut = matches!(fault.kind(), FaultKind::UpstreamTruncated | FaultKind::UpstreamTimeout);
    is_cut && fault.severity() == ErrorSeverity::Transient
}

/// The result of a resume.
enum Resumed {
    On(Response),
    NotNow,
    Never,
}

/// A response that is being read.
struct Reading<'a, D> {
    body: Body,
    frames: sse::Decoder,
    /// A document in place of a stream.
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

    /// Reads once from the network, within the time limit. Decodes all frames of it, and returns
    /// the strongest step among them.
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
                // After a complete answer nothing can fail it.
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

    /// Lets the response end in a background task, so that its connection can be reused.
    fn drain(self) {
        let mut body = self.body;
        tokio::spawn(tokio::time::timeout(DRAIN, async move {
            while let Ok(Some(_)) = body.chunk().await {}
        }));
    }
}
