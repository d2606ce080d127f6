//! What a call gets: the steps of a response, made of the answer's frames and the fault that
//! strikes them. No I/O.

use std::time::Duration;

use serde_json::{Value, json};

use crate::asked::Asked;
use crate::fault::Fault;
use crate::packing::Packing;
use crate::rule::Rule;
use crate::script::Script;
use crate::shape::{Complaint, Frame, Mark, Shape};

/// How far a stream gets before it breaks, unless the rule says otherwise.
const AFTER: usize = 20;
/// A first token that is late.
const LATE: Duration = Duration::from_secs(20);
/// Between two tokens, pings or empty deltas.
const SLOW: Duration = Duration::from_secs(1);

/// One thing to do on the connection.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A response at once.
    Whole {
        status: u16,
        kind: &'static str,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    },
    /// A streamed response begins.
    Open(Packing),
    /// A part of it.
    Write {
        bytes: Vec<u8>,
        is_token: bool,
    },
    Pause(Duration),
    /// Again and again, until the other side gives up.
    Pulse {
        bytes: Vec<u8>,
        every: Duration,
    },
    /// Nothing more; the connection closes after the time, if there is one, or when the other side
    /// gives up.
    Silence(Option<Duration>),
    Reset,
    Close,
    /// The response is complete by HTTP's rules.
    End,
}

/// All that happens to a call.
pub(crate) fn steps(
    shape: Shape,
    asked: &Asked,
    script: &Script,
    rule: Option<&Rule>,
) -> Vec<Step> {
    let answer = asked.answer(&script.answer);
    let plain = Rule::new(Fault::NoUsage);
    let (fault, rule) = (rule.map(|rule| rule.fault), rule.unwrap_or(&plain));
    if let Some(refusal) = refused(shape, asked, fault, rule) {
        return refusal;
    }
    if !asked.is_stream || fault == Some(Fault::JsonInsteadOfStream) {
        return vec![json_response(200, &shape.whole(asked, &answer), Vec::new())];
    }
    let frames = shape.frames(asked, &answer, fault);
    Stream { shape, asked, rule, interval: script.token_interval }.steps(frames, fault)
}

/// The rest of an answer that was kept, after one of its events.
pub(crate) fn resumed(script: &Script, after: usize) -> Vec<Step> {
    let asked = Asked::of(&json!({ "model": "kept", "stream": true }));
    let frames = Shape::Responses.frames(&asked, &script.answer, None).into_iter().skip(after + 1);
    let write =
        |frame: Frame| Step::Write { bytes: frame.bytes(), is_token: frame.mark == Mark::Token };
    let mut steps = vec![Step::Open(Packing::Plain)];
    steps.extend(frames.map(write));
    steps.push(Step::End);
    steps
}

/// What is no stream at all.
fn refused(shape: Shape, asked: &Asked, fault: Option<Fault>, rule: &Rule) -> Option<Vec<Step>> {
    let has_prefill = asked.prefill.is_some();
    let step = match fault {
        Some(Fault::ResetBeforeHeaders) => Step::Reset,
        Some(Fault::CloseBeforeHeaders) => Step::Close,
        Some(Fault::Silent) => Step::Silence(rule.seconds),
        Some(Fault::ErrorIn200) => json_response(200, &shape.error(complaint(500)), Vec::new()),
        Some(Fault::Html) => page(200),
        Some(Fault::Html502) => page(502),
        Some(Fault::Moderation) => json_response(403, &moderation(), Vec::new()),
        Some(Fault::ShouldNotRetry) => json_response(
            500,
            &shape.error(complaint(500)),
            vec![("x-should-retry", "false".into())],
        ),
        Some(Fault::RetryDelay) => {
            json_response(429, &retry_delay(rule.retry_after.unwrap_or(2)), Vec::new())
        }
        Some(Fault::RefusesPrefill) if has_prefill => refusal(shape, PREFILL, rule),
        Some(fault) => refusal(shape, complaint_of(fault)?, rule),
        // That API takes no whitespace at the end of what it is to go on from.
        None if shape == Shape::Messages
            && asked.prefill.as_ref().is_some_and(|said| said.trim_end() != said) =>
        {
            refusal(shape, TRAILING, rule)
        }
        None => return None,
    };
    Some(vec![step])
}

const PREFILL: Complaint = Complaint {
    status: 400,
    kind: "invalid_request_error",
    code: Some("invalid_prefill"),
    message: "This model does not support assistant message prefill. The conversation must end \
     with a user message.",
};
const TRAILING: Complaint = Complaint {
    status: 400,
    kind: "invalid_request_error",
    code: None,
    message: "messages: final assistant content cannot end with trailing whitespace",
};

fn complaint_of(fault: Fault) -> Option<Complaint> {
    let invalid = |code, message| {
        Some(Complaint { status: 400, kind: "invalid_request_error", code, message })
    };
    #[allow(clippy::wildcard_enum_match_arm)] // All others are no refusals.
    match fault {
        Fault::Status(status) => Some(complaint(status)),
        Fault::WrongKey => Some(Complaint { code: Some("invalid_api_key"), ..complaint(401) }),
        Fault::Quota => Some(Complaint {
            status: 429,
            kind: "insufficient_quota",
            code: Some("insufficient_quota"),
            message: "You exceeded your current quota, please check your plan and billing details.",
        }),
        Fault::ModelNotFound => Some(Complaint { code: Some("model_not_found"), ..complaint(404) }),
        Fault::InvalidRequest => invalid(None, "Invalid value for 'messages'."),
        Fault::ContextLength => invalid(
            Some("context_length_exceeded"),
            "This model's maximum context length is 8192 tokens; prompt is too long.",
        ),
        Fault::ContentFilter => invalid(
            Some("content_policy_violation"),
            "Refused as a result of our content filtering policy.",
        ),
        _ => None,
    }
}

/// What providers say to a status.
fn complaint(status: u16) -> Complaint {
    let (kind, code, message) = match status {
        401 | 403 => ("authentication_error", None, "Incorrect API key provided."),
        404 => ("invalid_request_error", None, "The model does not exist."),
        429 => ("rate_limit_error", Some("rate_limit_exceeded"), "Rate limit reached."),
        503 | 529 => ("server_error", Some("overloaded"), "The engine is currently overloaded."),
        500.. => ("server_error", None, "The server had an error while processing your request."),
        _ => ("invalid_request_error", None, "The request was refused."),
    };
    Complaint { status, kind, code, message }
}

/// As a router tells it that asks a moderation first.
fn moderation() -> Value {
    let metadata =
        json!({ "reasons": ["violence"], "flagged_input": "…", "provider_name": "fake" });
    json!({ "error": { "code": 403, "message": "Your chosen model requires moderation and your \
     input was flagged.", "metadata": metadata } })
}

/// As Google tells it, in a list and with its wait in the details.
fn retry_delay(seconds: u64) -> Value {
    let details = json!([
        { "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [] },
        { "@type": "type.googleapis.com/google.rpc.RetryInfo",
        "retryDelay": format!("{seconds}s") },
    ]);
    json!([{ "error": { "code": 429, "message": "Resource has been exhausted.",
    "status": "RESOURCE_EXHAUSTED", "details": details } }])
}

fn refusal(shape: Shape, complaint: Complaint, rule: &Rule) -> Step {
    let wait = rule.retry_after.map(|seconds| ("retry-after", seconds.to_string()));
    json_response(complaint.status, &shape.error(complaint), wait.into_iter().collect())
}

fn json_response(status: u16, body: &Value, headers: Vec<(&'static str, String)>) -> Step {
    Step::Whole { status, kind: "application/json", headers, body: body.to_string().into_bytes() }
}

fn page(status: u16) -> Step {
    let body = b"<!doctype html><title>Gateway</title><h1>Something went wrong</h1>".to_vec();
    Step::Whole { status, kind: "text/html; charset=utf-8", headers: Vec::new(), body }
}

/// A streamed answer and what happens to it.
struct Stream<'a> {
    shape: Shape,
    asked: &'a Asked,
    rule: &'a Rule,
    interval: Duration,
}

impl Stream<'_> {
    fn steps(&self, frames: Vec<Frame>, fault: Option<Fault>) -> Vec<Step> {
        let packing = match fault {
            Some(Fault::Gzip) => Packing::gzip(),
            Some(Fault::Zstd) => Packing::Zstd,
            _ => Packing::Plain,
        };
        let mut steps = vec![Step::Open(packing)];
        if fault == Some(Fault::SlowFirstToken) {
            steps.push(Step::Pause(self.rule.seconds.unwrap_or(LATE)));
        }
        let pace = match fault {
            Some(Fault::SlowTokens) => self.rule.seconds.unwrap_or(SLOW),
            _ => self.interval,
        };
        let (kept, ending) = self.broken(frames, fault);
        for frame in kept {
            let is_token = frame.mark == Mark::Token;
            if is_token && !pace.is_zero() {
                steps.push(Step::Pause(pace));
            }
            steps.push(Step::Write { bytes: frame.bytes(), is_token });
        }
        steps.push(ending);
        steps
    }

    /// The frames that a fault leaves, and how it ends.
    fn broken(&self, frames: Vec<Frame>, fault: Option<Fault>) -> (Vec<Frame>, Step) {
        let every = self.rule.seconds.unwrap_or(SLOW);
        let without =
            |mark: Mark| frames.iter().filter(|frame| frame.mark != mark).cloned().collect();
        match fault {
            Some(Fault::ResetMidStream) => (self.first(frames), Step::Reset),
            Some(Fault::CloseMidStream) => (self.first(frames), Step::Close),
            Some(Fault::StallMidStream) => (self.first(frames), Step::Silence(self.rule.seconds)),
            Some(Fault::PingsMidStream) => {
                (self.first(frames), Step::Pulse { bytes: self.shape.ping(), every })
            }
            Some(Fault::EmptyDeltasMidStream) => (
                self.first(frames),
                Step::Pulse { bytes: self.shape.empty_delta(self.asked), every },
            ),
            Some(Fault::Truncated) => (self.first(frames), Step::End),
            Some(Fault::DoneWithoutFinish) => (self.then_done(frames, None), Step::End),
            Some(Fault::Empty) => {
                let is_kept = |frame: &&Frame| matches!(frame.mark, Mark::Open | Mark::Done);
                (frames.iter().filter(is_kept).cloned().collect(), Step::End)
            }
            Some(Fault::EmptyAnswer) => (without(Mark::Token), Step::End),
            Some(Fault::NoDone) => (without(Mark::Done), Step::End),
            Some(Fault::NoUsage) => (without(Mark::Usage), Step::End),
            Some(Fault::ErrorInStream) => (self.then_error(frames, complaint(500)), Step::End),
            Some(Fault::RateLimitInStream) => (self.then_error(frames, complaint(429)), Step::End),
            Some(Fault::ErrorObjectInStream) => {
                let error = json!({ "object": "error", "message": "The engine is dead.",
                "type": "InternalServerError", "code": 500 });
                (self.then_done(frames, Some(error.to_string())), Step::End)
            }
            Some(Fault::DetailInStream) => {
                let detail = json!({ "detail": "Internal server error" });
                (self.then_done(frames, Some(detail.to_string())), Step::End)
            }
            Some(Fault::ErrorCodeInStream) => {
                let error = json!({ "error_code": 336100, "error_msg": "Try again later." });
                (self.then_done(frames, Some(error.to_string())), Step::End)
            }
            Some(Fault::MalformedChunk) => {
                (self.with(frames, r#"{"choices":[{"delta":{"content":"br"#), Step::End)
            }
            Some(Fault::BrokenSurrogate) => {
                let half = r#"{"choices":[{"index":0,"delta":{"content":"\ud83d"},"finish_reason":null}]}"#;
                (self.with(frames, half), Step::End)
            }
            _ => (frames, Step::End),
        }
    }

    /// Up to the token at which it breaks, and what opens that.
    fn first(&self, frames: Vec<Frame>) -> Vec<Frame> {
        let mut left = self.rule.after.unwrap_or(AFTER);
        let is_before = |frame: &Frame| match frame.mark {
            Mark::Open => left > 0,
            Mark::Token => left.checked_sub(1).map(|less| left = less).is_some(),
            Mark::Finish | Mark::Usage | Mark::Done => false,
        };
        frames.into_iter().take_while(is_before).collect()
    }

    fn then_error(&self, frames: Vec<Frame>, complaint: Complaint) -> Vec<Frame> {
        let mut kept = self.first(frames);
        kept.push(self.shape.error_frame(complaint));
        kept
    }

    fn then_done(&self, frames: Vec<Frame>, data: Option<String>) -> Vec<Frame> {
        let done: Vec<Frame> =
            frames.iter().filter(|frame| frame.mark == Mark::Done).cloned().collect();
        let mut kept = self.first(frames);
        kept.extend(data.map(|data| Frame { mark: Mark::Finish, event: None, data }));
        kept.extend(done);
        kept
    }

    /// With one more frame in the middle.
    fn with(&self, frames: Vec<Frame>, data: &str) -> Vec<Frame> {
        let at = self.first(frames.clone()).len();
        let mut all = frames;
        let event = all.get(at).and_then(|next| next.event);
        all.insert(at, Frame { mark: Mark::Open, event, data: data.to_owned() });
        all
    }
}
