//! A scripted call, and the trace that it leaves.

use std::time::Duration;

use capstan_client::machine::{Action, Backoff, Head, Machine, Policy, Refusal};
use capstan_client::protocol::{
    Close, ErrorSeverity, Payload, Profile, RawObject, StreamError, StreamPacket, Timestamp,
};
use capstan_client::{CapError, Notice};
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) const STREAM: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
pub(crate) const OTHER: &str = "00000000-0000-4000-8000-000000000002";

/// The machine's inputs, in order.
#[derive(Clone)]
pub(crate) enum In {
    /// The server opens a stream.
    Open,
    /// It answers with another success.
    Head { status: u16, content_type: &'static str },
    /// It refuses.
    Refuse { status: u16, retry_after: Option<&'static str>, body: String },
    /// Bytes of the body.
    Bytes(String),
    /// The body ends.
    End,
    /// The connection fails.
    Fail(&'static str),
    /// Time passes.
    Pass(u64),
}

pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) policy: Policy,
    pub(crate) last_event_id: Option<&'static str>,
    pub(crate) steps: Vec<In>,
}

/// A trace is the same on every machine, so nothing is left to chance.
pub(crate) fn plain() -> Policy {
    Policy { backoff: Backoff { jitter: false, ..Backoff::default() }, ..Policy::default() }
}

pub(crate) fn script(name: &'static str, steps: Vec<In>) -> Script {
    Script { name, policy: plain(), last_event_id: None, steps }
}

impl Script {
    pub(crate) fn policy(mut self, change: impl FnOnce(&mut Policy)) -> Self {
        change(&mut self.policy);
        self
    }

    pub(crate) fn attached_at(mut self, cursor: &'static str) -> Self {
        self.last_event_id = Some(cursor);
        self.policy.is_viewer = true;
        self
    }

    /// Plays it; one line of JSON.
    pub(crate) fn run(&self) -> String {
        let mut machine =
            Machine::attach(self.policy.clone(), 1, self.last_event_id.map(str::to_owned));
        let mut now = Duration::ZERO;
        let mut steps = vec![json!({ "now": 0, "in": null, "out": drain(&mut machine, now) })];
        for step in &self.steps {
            apply(&mut machine, step, &mut now);
            let millis = u64::try_from(now.as_millis()).unwrap();
            steps
                .push(json!({ "now": millis, "in": input(step), "out": drain(&mut machine, now) }));
        }
        let policy = &self.policy;
        let millis = |d: Duration| u64::try_from(d.as_millis()).unwrap();
        json!({
            "name": self.name,
            "policy": {
                "max_retries": policy.max_retries, "max_wait": millis(policy.max_wait),
                "resume_patience": millis(policy.resume_patience),
                "backoff_first": millis(policy.backoff.first),
                "backoff_max": millis(policy.backoff.max), "strict": policy.is_strict,
                "profile": if policy.profile == Profile::V1 { "v1" } else { "v2" },
                "viewer": policy.is_viewer,
            },
            "last_event_id": self.last_event_id,
            "steps": steps,
        })
        .to_string()
    }
}

fn apply(machine: &mut Machine, step: &In, now: &mut Duration) {
    match step {
        In::Open => {
            machine.opened(Head { status: 200, content_type: "text/event-stream", location: None })
        }
        In::Head { status, content_type } => {
            machine.opened(Head { status: *status, content_type, location: None })
        }
        In::Refuse { status, retry_after, body } => {
            machine.refused(
                Refusal { status: *status, retry_after: *retry_after, body: body.as_bytes() },
                *now,
            );
        }
        In::Bytes(bytes) => machine.bytes(bytes.as_bytes()),
        In::End => machine.ended(*now),
        In::Fail(why) => machine.failed(*why, *now),
        In::Pass(millis) => *now += Duration::from_millis(*millis),
    }
}

fn input(step: &In) -> Value {
    match step {
        In::Open => json!({ "opened": { "status": 200, "content_type": "text/event-stream" } }),
        In::Head { status, content_type } => {
            json!({ "opened": { "status": status, "content_type": content_type } })
        }
        In::Refuse { status, retry_after, body } => {
            json!({ "refused": { "status": status, "retry_after": retry_after, "body": body } })
        }
        In::Bytes(text) => json!({ "bytes": text }),
        In::End => json!("ended"),
        In::Fail(why) => json!({ "failed": why }),
        In::Pass(millis) => json!({ "pass": millis }),
    }
}

/// Polls until the machine needs something from outside.
fn drain(machine: &mut Machine, now: Duration) -> Vec<Value> {
    let mut out = Vec::new();
    loop {
        let action = machine.poll(now);
        let is_last = !matches!(action, Action::Packet(_) | Action::Notice(_) | Action::Fail(_));
        out.push(output(&action));
        if is_last {
            return out;
        }
        assert!(out.len() < 10_000, "the machine never rests");
    }
}

fn output(action: &Action) -> Value {
    match action {
        Action::Connect { last_event_id } => {
            json!({ "connect": { "last_event_id": last_event_id } })
        }
        Action::Read => json!("read"),
        Action::Wait { until } => json!({ "wait": { "until": until.as_millis() as u64 } }),
        Action::Packet(packet) => json!({ "packet": packet }),
        Action::Notice(notice) => json!({ "notice": notice_json(notice) }),
        Action::Done => json!("done"),
        Action::Fail(error) => json!({ "fail": error_json(error) }),
    }
}

fn notice_json(notice: &Notice) -> Value {
    match notice {
        Notice::Connecting { cursor } => json!({ "connecting": { "cursor": cursor } }),
        Notice::Connected => json!("connected"),
        Notice::Resumed { cursor } => json!({ "resumed": { "cursor": cursor } }),
        Notice::Retrying { wait, .. } => json!({ "retrying": { "wait": wait.as_millis() as u64 } }),
        Notice::Duplicate { seq } => json!({ "duplicate": { "seq": seq } }),
        Notice::Gap { expected, found } => {
            json!({ "gap": { "expected": expected, "found": found } })
        }
        Notice::AttemptFailed { error } => json!({ "attempt_failed": { "error": error } }),
        Notice::Warning { error } => json!({ "warning": { "error": error } }),
        other => panic!("{other:?} has no spelling yet"),
    }
}

/// Kinds and members are the contract; wording is each language's own.
fn error_json(error: &CapError) -> Value {
    match error {
        CapError::Connection(e) => json!({ "kind": "connection", "retries": e.retries }),
        CapError::Protocol(_) => json!({ "kind": "protocol" }),
        CapError::Runtime(e) => json!({
            "kind": "runtime", "status": e.status, "code": e.code(), "severity": e.severity(),
            "retry_after": e.retry_after.map(|d| d.as_secs_f64()), "is_retryable": e.is_retryable(),
        }),
    }
}

// Packets and frames of servers.

pub(crate) fn packet(seq: u64, payload: Payload) -> StreamPacket {
    let t = Timestamp::from_micros(1_770_113_737_000_000);
    StreamPacket { stream_id: STREAM.parse::<Uuid>().unwrap(), seq, t, payload }
}

/// A frame as the gateway writes it.
pub(crate) fn frame(packet: &StreamPacket) -> String {
    let mut bytes = Vec::new();
    capstan_client::protocol::sse::encode_packet(packet, &mut bytes);
    String::from_utf8(bytes).unwrap()
}

/// A frame of a plain server: data and nothing else.
pub(crate) fn bare(packet: &StreamPacket) -> String {
    format!("data: {}\n\n", packet.to_json())
}

pub(crate) fn delta(seq: u64, text: &str) -> StreamPacket {
    packet(seq, Payload::Delta(text.into()))
}

pub(crate) fn close(seq: u64) -> StreamPacket {
    packet(seq, Payload::Close(Close::Reason("completed".into())))
}

pub(crate) fn error(
    seq: u64,
    code: &str,
    severity: ErrorSeverity,
    retry_after: Option<f64>,
) -> StreamPacket {
    let mut error = StreamError::new(code, "It happened.", severity);
    if let Some(seconds) = retry_after {
        error = error.with_detail("retry_after", seconds);
    }
    packet(seq, Payload::Error(error.into()))
}

pub(crate) fn event(seq: u64, json: &str) -> StreamPacket {
    packet(seq, Payload::Event(RawObject::parse(json).unwrap()))
}

pub(crate) fn opening(seq: u64) -> String {
    format!("retry: 500\nid: {STREAM}:{seq}\n\n")
}

pub(crate) fn bytes(parts: &[String]) -> In {
    In::Bytes(parts.concat())
}
