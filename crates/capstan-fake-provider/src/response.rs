//! The steps of a response, made from the answer's frames and from the fault that strikes. No I/O.

use std::time::Duration;

use serde_json::json;

use crate::fault::Fault;
use crate::output::Output;
use crate::packing::Packing;
use crate::protocol::{Complaint, Shape};
use crate::question::Question;
use crate::refusal::{complaint, json_response, refused};
use crate::rule::Rule;
use crate::script::Script;
use crate::seal::Sealer;
use crate::shape::{Frame, Mark};
use crate::shared::Begun;
use crate::step::Step;

/// The default number of tokens before a stream breaks.
const AFTER: usize = 20;
/// The delay of a late first token.
const LATE: Duration = Duration::from_secs(20);
/// The interval between tokens, pings or empty deltas.
const SLOW: Duration = Duration::from_secs(1);

/// The steps of a call.
pub(crate) fn steps(shape: Shape, question: &Question, begun: &Begun) -> Vec<Step> {
    let plain = Rule::new(Fault::NoUsage);
    let fault = begun.rule.as_ref().map(|rule| rule.fault);
    let (output, rule) = (&begun.output, begun.rule.as_ref().unwrap_or(&plain));
    if let Some(complaint) = &begun.complaint {
        return vec![json_response(complaint.status, &shape.error(complaint), Vec::new())];
    }
    if let Some(refusal) = refused(shape, question, fault, rule) {
        return vec![refusal];
    }
    if !question.is_stream || fault == Some(Fault::JsonInsteadOfStream) {
        return vec![json_response(200, &shape.collected(question, output), Vec::new())];
    }
    let frames = shape.frames(question, output, fault);
    Stream { shape, question, rule, interval: begun.interval }.steps(frames, fault)
}

/// The rest of a stored answer, after one of its events.
pub(crate) fn resumed(script: &Script, sealer: &Sealer, after: usize) -> Vec<Step> {
    let question = Question::parse(&json!({ "model": "kept", "stream": true }));
    let output = Output::new(&script.answer, Shape::Responses, &question, sealer, None);
    let frames = Shape::Responses.frames(&question, &output, None).into_iter().skip(after + 1);
    let write =
        |frame: Frame| Step::Write { bytes: frame.bytes(), is_token: frame.mark == Mark::Token };
    let mut steps = vec![Step::Open(Packing::Plain)];
    steps.extend(frames.map(write));
    steps.push(Step::End);
    steps
}

/// A streamed answer and what happens to it.
struct Stream<'a> {
    shape: Shape,
    question: &'a Question,
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
        let (sent, ending) = self.broken(frames, fault);
        for frame in sent {
            let is_token = frame.mark == Mark::Token;
            if is_token && !pace.is_zero() {
                steps.push(Step::Pause(pace));
            }
            steps.push(Step::Write { bytes: frame.bytes(), is_token });
        }
        steps.push(ending);
        steps
    }

    /// The frames that remain under a fault, and how the stream ends.
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
                Step::Pulse { bytes: self.shape.empty_delta(self.question), every },
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
            Some(Fault::OverloadedInStream) => (self.then_error(frames, complaint(529)), Step::End),
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

    /// The frames up to the place or token at which the stream breaks.
    fn first(&self, mut frames: Vec<Frame>) -> Vec<Frame> {
        if let Some(cut) = self.rule.at.and_then(|place| place.cut(&frames)) {
            frames.truncate(cut);
            return frames;
        }
        let mut left = self.rule.after.unwrap_or(AFTER);
        let is_before = |frame: &Frame| match frame.mark {
            Mark::Open => left > 0,
            Mark::Token => left.checked_sub(1).map(|less| left = less).is_some(),
            Mark::Finish | Mark::Usage | Mark::Done => false,
        };
        frames.into_iter().take_while(is_before).collect()
    }

    fn then_error(&self, frames: Vec<Frame>, complaint: Complaint) -> Vec<Frame> {
        let mut sent = self.first(frames);
        sent.push(self.shape.error_frame(&complaint));
        sent
    }

    fn then_done(&self, frames: Vec<Frame>, data: Option<String>) -> Vec<Frame> {
        let done: Vec<Frame> =
            frames.iter().filter(|frame| frame.mark == Mark::Done).cloned().collect();
        let mut sent = self.first(frames);
        sent.extend(data.map(|data| Frame { mark: Mark::Finish, part: None, event: None, data }));
        sent.extend(done);
        sent
    }

    /// Adds a frame in the middle.
    fn with(&self, frames: Vec<Frame>, data: &str) -> Vec<Frame> {
        let at = self.first(frames.clone()).len();
        let mut all = frames;
        let event = all.get(at).and_then(|next| next.event);
        all.insert(at, Frame { mark: Mark::Open, part: None, event, data: data.to_owned() });
        all
    }
}
