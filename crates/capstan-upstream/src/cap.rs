//! `cap`: another CAP server, in either profile, read by the self-healing client.
//!
//! The run's id is the key at the upstream, so that a later attempt attaches to the same remote
//! run. The client resumes broken connections at their cursor.

mod calls;
mod request;

use std::collections::BTreeMap;

use async_trait::async_trait;
use capstan_agent::{
    About, Agent, CancelReason, Clock, Continued, Endpoint, Outcome, Output, Timer, Turn, Work,
    Writer,
};
use capstan_client::{CapClient, CapError, Options, PacketStream, RuntimeError};
use capstan_protocol::fault::{Cause, Upstream};
use capstan_protocol::{
    Close, ErrorSeverity, Event, EventView, Fault, FaultKind, Payload, Profile, StreamError,
    StreamPacket,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use crate::api_key::ApiKey;
use crate::attempt_writer::AttemptWriter;
use crate::callee::{Ask, Callee};
use crate::config::{ConfigError, read_keys};
use crate::decode::malformed;
use crate::failed_call::FailedCall;
use crate::far_runs::FarRuns;
use crate::headers::Pairs;
use crate::http::{self, timed_out};
use crate::kind::{Access, Build, Common, Kind};
use crate::retries::Retries;
use crate::timeouts::{CallTimeouts, left};
use crate::upstream_failure::UpstreamFailure;
use calls::Calls;

/// The row of this kind.
pub(crate) const KIND: Kind = Kind {
    name: "cap",
    what: "another CAP server",
    retries: Retries::CAREFUL,
    timeouts: CallTimeouts::FOREIGN,
    provider: None,
    build: Build::Adapter(|keys, common| build(read_keys(keys)?, common)),
};

/// How often the client resumes one answer at its cursor.
const RESUMES: u32 = 3;

/// The kind's own configuration keys.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    url: String,
    path: Option<String>,
    key_env: Option<String>,
    key_file: Option<String>,
    #[serde(default)]
    headers: Pairs,
    #[serde(default)]
    profile: ProfileName,
    system: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ProfileName {
    #[default]
    V1,
    V2,
}

struct Cap {
    url: Url,
    path: Option<String>,
    http: reqwest::Client,
    far_runs: FarRuns,
    profile: Profile,
    system: Option<String>,
    secret: ApiKey,
    retries: Retries,
    times: CallTimeouts,
    clock: Clock,
}

fn build(config: Config, common: &Common) -> Result<Box<dyn Callee>, ConfigError> {
    let profile = match config.profile {
        ProfileName::V1 => Profile::V1,
        ProfileName::V2 => Profile::V2,
    };
    if config.system.is_some() && profile == Profile::V2 {
        return Err(ConfigError::at("system", "profile v2 has no place for a system prompt"));
    }
    let access = Access {
        key_env: config.key_env.as_deref(),
        key_file: config.key_file.as_deref(),
        headers: config.headers,
    };
    let (secret, common) = access.read(common)?;
    let url = http::base_url(&config.url)?;
    let http = http::client(common.times.connect, &common.headers)?;
    Ok(Box::new(Cap {
        path: config.path,
        far_runs: FarRuns::new(http.clone(), &url, secret.clone()),
        url,
        http,
        profile,
        system: config.system,
        secret,
        retries: common.retries,
        times: common.times,
        clock: common.clock,
    }))
}

#[async_trait]
impl Agent for Cap {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let calls = self.calls(&turn, self.retries.calls(turn.attempt));
        let client = self.client(&turn, calls.clone())?;
        let mut writer = AttemptWriter::new(out);
        loop {
            let Err(failed) = self.once(&turn, &client, &calls, &mut writer).await else {
                return Ok(());
            };
            let wait = self.retries.wait(&failed, turn.attempt, calls.made());
            let Some(wait) = wait.filter(|_| !writer.has_written()) else {
                return Err(self
                    .retries
                    .verdict(failed.fault, turn.attempt, writer.has_written())
                    .into());
            };
            failed.log_retry(&turn, calls.made(), wait);
            self.clock.sleep(Timer::Again, wait).await;
        }
    }

    async fn end(&self, far_id: &str, _reason: CancelReason) -> Result<(), Fault> {
        self.far_runs.end(far_id).await
    }

    fn max_attempts(&self) -> u32 {
        self.retries.attempts
    }

    fn about(&self) -> About {
        About::agent("cap", Work::Agent)
    }

    fn endpoint(&self) -> Option<Endpoint> {
        Some(http::endpoint(&self.url, &self.secret))
    }
}

#[async_trait]
impl Callee for Cap {
    async fn call(&self, ask: Ask<'_>, out: &mut AttemptWriter<'_>) -> Result<(), FailedCall> {
        let calls = self.calls(ask.turn, 1);
        let client = self.client(ask.turn, calls.clone())?;
        let called = self.once(ask.turn, &client, &calls, out).await;
        called.map_err(|failed| if is_unreached(&failed.fault) { failed.refused() } else { failed })
    }

    fn is_repeatable(&self) -> bool {
        self.retries.is_repeatable
    }
}

impl Cap {
    fn calls(&self, turn: &Turn, limit: u32) -> Calls {
        Calls::new(self.http.clone(), self.far_runs.clone(), turn.cancel.clone(), limit)
    }

    /// Makes one request, and adds the details that the log needs if it fails.
    async fn once(
        &self,
        turn: &Turn,
        client: &CapClient,
        calls: &Calls,
        out: &mut AttemptWriter<'_>,
    ) -> Result<(), FailedCall> {
        let packets = match self.profile {
            Profile::V1 => client.assist(&request::v1(turn, self.system.as_deref())),
            Profile::V2 => client.assist(&request::v2(turn)?),
        };
        let read = self.read(packets, calls, out).await;
        read.map_err(|failed| self.with_details(failed, calls))
    }

    fn client(&self, turn: &Turn, calls: Calls) -> Result<CapClient, Fault> {
        let options = Options::new()
            .transport(calls)
            .profile(self.profile)
            .max_retries(RESUMES)
            .headers(http::trace_headers(turn))
            .read_timeout(self.times.idle);
        let options = match &self.path {
            Some(path) => options.path(path.as_str()),
            None => options,
        };
        CapClient::with_options(self.url.as_str(), self.secret.expose(), options)
            .map_err(|error| self.failed(error).fault)
    }

    /// Reads the packets. The first packet and the whole answer have limits here. The client
    /// notices silence in between.
    async fn read(
        &self,
        mut packets: PacketStream,
        calls: &Calls,
        out: &mut AttemptWriter<'_>,
    ) -> Result<(), FailedCall> {
        let began = Instant::now();
        let (first, total) = (began + self.times.first_token, began + self.times.total);
        let (mut reader, mut far_id) = (Reader::default(), calls.far_id());
        let mut has_begun = false;
        loop {
            let is_total = has_begun || total < first;
            let (limit, until) =
                if is_total { (Timer::Total, total) } else { (Timer::FirstToken, first) };
            let next = tokio::select! {
                biased;
                // The id may come long before the first packet.
                Ok(()) = far_id.changed() => {
                    let id = far_id.borrow_and_update().clone();
                    out.write(&mut id.map(Output::FarId).into_iter().collect()).await?;
                    continue;
                }
                next = self.clock.within(limit, left(until), packets.next()) => {
                    next.ok_or_else(|| timed_out(limit))?
                }
            };
            let Some(packet) = next.map_err(|error| self.failed(error))? else { return Ok(()) };
            if !has_begun && far_id.borrow().is_none() {
                // The server names its stream only in its packets.
                out.write(&mut vec![Output::FarId(packet.stream_id.to_string())]).await?;
            }
            has_begun = true;
            let mut outputs = reader.outputs(packet);
            if calls.take_resumed() {
                outputs.insert(0, Output::Continued(Continued::Resume));
            }
            out.write(&mut outputs).await?;
        }
    }

    /// Adds facts about the last exchange: whether a retry can help, and the details for the log.
    fn with_details(&self, mut failed: FailedCall, calls: &Calls) -> FailedCall {
        // An invalid certificate will be invalid next time as well.
        if failed.fault.kind() == FaultKind::UpstreamUnreachable && calls.failed_in_tls() {
            failed.fault = failed.fault.with_severity(ErrorSeverity::Fatal).with_retryable(false);
        }
        let (status, headers) = calls.last_head().unzip();
        let upstream = Upstream {
            host: Some(http::host_of(&self.url)),
            status,
            request_id: headers.and_then(|headers| http::request_id(&headers, &self.secret)),
            stderr: None,
        };
        FailedCall { fault: http::with_log_details(failed.fault, upstream, &self.secret), ..failed }
    }

    fn failed(&self, error: CapError) -> FailedCall {
        let words = self.secret.scrub(&error.to_string());
        match error {
            CapError::Connection(_) => {
                let cause = Cause { error_type: "ConnectionError".into(), chain: vec![words] };
                Fault::new(FaultKind::UpstreamUnreachable).with_cause(cause).into()
            }
            CapError::Protocol(_) => malformed(words).into(),
            CapError::Runtime(error) => self.failed_call(*error),
        }
    }

    /// Converts an error of the client. A failed run keeps its code. For a refused request, the
    /// status decides.
    fn failed_call(&self, error: RuntimeError) -> FailedCall {
        if let Some(error) = error.error {
            return Fault::from(error).into();
        }
        let failure = UpstreamFailure {
            status: error.status,
            words: error.problem.as_ref().map(|problem| problem.code.clone()).into_iter().collect(),
            text: error.message(),
            wait: error.retry_after,
            ..UpstreamFailure::default()
        };
        failure.to_failed_call(&self.secret)
    }
}

/// The client's message for a connection that was never established.
fn is_unreached(fault: &Fault) -> bool {
    let says_so = |cause: &Cause| cause.chain.iter().any(|words| words.contains("cannot connect"));
    fault.kind() == FaultKind::UpstreamUnreachable && fault.cause().is_some_and(says_so)
}

/// Converts packets to outputs. It records where each text ended, for resets.
#[derive(Debug, Default)]
pub struct Reader {
    ends: BTreeMap<u64, usize>,
    len: usize,
}

impl Reader {
    /// Converts a packet.
    pub fn outputs(&mut self, packet: StreamPacket) -> Vec<Output> {
        let seq = packet.seq;
        match packet.payload {
            Payload::Delta(text) => {
                self.len += text.len();
                self.ends.insert(seq, self.len);
                vec![Output::Delta(text)]
            }
            Payload::Event(payload) => {
                let event = Event::of(&payload);
                if let EventView::Reset(reset) = event.view() {
                    self.ends.split_off(&(reset.after_seq + 1));
                    self.len = self.ends.last_key_value().map_or(0, |(_, end)| *end);
                    return vec![Output::Again { keep: self.len }];
                }
                if let EventView::Interrupt(interrupt) = event.view() {
                    return vec![Output::Interrupt(interrupt)];
                }
                vec![Output::Event { kind: event.kind.unwrap_or_default(), payload }]
            }
            Payload::Error(error) => {
                vec![Output::Warning(Box::new(StreamError {
                    severity: ErrorSeverity::Warning,
                    ..*error
                }))]
            }
            Payload::Close(close) => closed(&close),
        }
    }
}

/// Converts the report in the upstream's CLOSE.
fn closed(close: &Close) -> Vec<Output> {
    let mut outputs = Vec::new();
    let reason = close.reason();
    // The interrupts show already that the run asks a question.
    if ![Close::COMPLETED, Close::INTERRUPT, ""].contains(&reason.as_str()) {
        outputs.push(Output::Reason(reason));
    }
    if let Close::Report(report) = close {
        let report = report.to_map();
        outputs.extend(
            report
                .get("model")
                .and_then(Value::as_str)
                .map(|model| Output::Model(model.to_owned())),
        );
        outputs.extend(
            report
                .get("usage")
                .and_then(Value::as_object)
                .map(|usage| Output::Usage(usage.clone())),
        );
    }
    outputs
}
