//! Lines of stream-json, with ADR 0004's errors and the news of later CLIs, into outputs.
//!
//! Messages and their errors are put together by the protocol crate's [`Assembler`]; this file
//! decides what a reader sees while they come, and what the run's end is.

use capstan_agent::{Interrupt, Output, ResumeEntry};
use capstan_protocol::assistant::{
    Assembler, AssistantError, AssistantMessage, Block, Frame, Line, RateLimitEvent, ResultMessage,
    StreamEvent,
};
use capstan_protocol::fault::Cause;
use capstan_protocol::{
    ErrorSeverity, Fault, FaultKind, PresentationEventType, ThoughtTrace, Timestamp,
};
use serde_json::{Map, Value};

use super::permission::{self, REQUEST, Request};
use super::text::{Stated, Text};
use crate::api_key::ApiKey;
use crate::decode::{Step, malformed, member, text};
use crate::http::short;
use crate::thoughts::make;
use crate::tools;
use crate::upstream_failure::UpstreamFailure;

/// The model name under which the CLI itself speaks.
const SYNTHETIC: &str = "<synthetic>";
/// The CLI's news that a call of its own has failed and will be made again.
const API_RETRY: &str = "api_retry";
/// A model refused, and another one answers in its place, or nobody does.
const REFUSAL_FALLBACK: &str = "model_refusal_fallback";
const REFUSAL: &str = "model_refusal_no_fallback";
/// Another model answers for a reason that is no refusal.
const FALLBACK: &str = "model_fallback";
/// The CLI could not save what a later run would go on from.
const WRITES_LOST: &str = "session_writes_lost";
/// A fallback that concerns a subagent alone.
const LOCAL: &str = "local";
/// A rate limit that is used up, and one that soon will be.
const REJECTED: &str = "rejected";
const NEARLY: &str = "allowed_warning";

/// Reads one run of a process.
#[derive(Debug, Default)]
pub struct Decoder {
    assembler: Assembler,
    text: Text,
    model: Option<String>,
    /// An error of the agent's own whose weight is not known yet: the result decides.
    pending: Option<AssistantError>,
    /// When a used-up rate limit resets, in seconds since the Unix epoch.
    resets_at: Option<i64>,
    has_result: bool,
    /// A refusal that nobody made up for: its category, which may be unknown.
    refusal: Option<Option<String>>,
    /// What people answered to the questions of earlier processes, oldest first.
    answers: Vec<ResumeEntry>,
    /// What the process waits for on its standard input.
    replies: Vec<String>,
    /// It asked what only a person can answer.
    has_asked: bool,
}

impl Decoder {
    /// A decoder at the beginning of a run.
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder that knows what people have answered.
    pub(super) fn with_answers(answers: Vec<ResumeEntry>) -> Self {
        Self { answers, ..Self::default() }
    }

    /// What the process is to be told, in the order in which it asked.
    pub(super) fn take_replies(&mut self) -> Vec<String> {
        std::mem::take(&mut self.replies)
    }

    /// Whether the run has to stop for a person's answer.
    pub(super) fn has_asked(&self) -> bool {
        self.has_asked
    }

    /// Takes a line.
    pub fn line(&mut self, line: &str, out: &mut Vec<Output>) -> Result<Step, Fault> {
        let unreadable =
            |e: capstan_protocol::DecodeError| malformed(format!("an unreadable line: {e}"));
        let Line::Object(object) = Line::decode(line).map_err(unreadable)? else {
            return Ok(Step::Quiet);
        };
        let frame = Frame::from_object(&object).map_err(unreadable)?;
        self.assembler.push(&frame);
        if matches!(&frame, Frame::Unknown(kind) if kind == REQUEST) {
            self.request(&Request::of(&object), out);
            return Ok(Step::Heard);
        }
        self.retract(object.get("supersedes"), out);
        let step = self.frame(&frame, object.get("uuid").and_then(Value::as_str), out);
        if let Frame::Result(_) = frame {
            self.deferred(object.get("deferred_tool_use"), out);
        }
        Ok(step)
    }

    /// What wants an answer gets it, or becomes a question for a person.
    fn request(&mut self, request: &Request, out: &mut Vec<Output>) {
        let Some(tool) = request.tool() else {
            self.replies.push(request.refusal());
            return;
        };
        let asked = request.interrupt(tool);
        match self.answers.iter().rfind(|answer| answer.interrupt_id == asked.id) {
            Some(answer) => self.replies.push(request.answer(answer)),
            None => self.ask(asked, out),
        }
    }

    fn ask(&mut self, question: Interrupt, out: &mut Vec<Output>) {
        self.has_asked = true;
        out.push(Output::Interrupt(Box::new(question)));
    }

    /// A call that the process put off until a person has decided.
    fn deferred(&mut self, call: Option<&Value>, out: &mut Vec<Output>) {
        let Some(call) = call.filter(|call| call.is_object()) else { return };
        if let Some(tool) = text(call, "name") {
            self.ask(
                permission::question(tool, member(call, "input"), text(call, "id"), None),
                out,
            );
        }
    }

    /// Frames whose text is not part of the answer.
    fn retract(&mut self, frames: Option<&Value>, out: &mut Vec<Output>) {
        let frames: Vec<&str> = frames
            .and_then(Value::as_array)
            .map(|frames| frames.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        if !frames.is_empty() {
            self.text.retract(&frames, out);
        }
    }

    fn frame(&mut self, frame: &Frame, uuid: Option<&str>, out: &mut Vec<Output>) -> Step {
        match frame {
            Frame::Assistant(message) if message.parent_tool_use_id.is_some() => {
                // A subagent's failure is not the run's.
                out.extend(message.any_error().map(warning));
            }
            Frame::Assistant(message) => self.assistant(message, uuid, out),
            Frame::StreamEvent(event) if event.parent_tool_use_id.is_none() => {
                self.piece(event, out)
            }
            Frame::User(message) if message.parent_tool_use_id.is_none() => {
                self.goes_on(out);
                self.text.close();
                results(&message.blocks, out);
            }
            Frame::Result(result) => {
                self.result(result, out);
                return Step::Ending;
            }
            Frame::RateLimit(event) => self.rate_limit(event, out),
            // It works at getting an answer: no silence, and worth telling.
            Frame::System(message) if message.subtype == API_RETRY => {
                self.text.abandon();
                out.push(tries_again(&message.data))
            }
            Frame::System(message) => {
                self.news(&message.subtype, &message.data, out);
                return Step::Quiet;
            }
            Frame::User(_) | Frame::StreamEvent(_) => {}
            Frame::ConversationReset | Frame::Unknown(_) => return Step::Quiet,
        }
        Step::Heard
    }

    fn news(&mut self, subtype: &str, data: &Map<String, Value>, out: &mut Vec<Output>) {
        let word = |name: &str| data.get(name).and_then(Value::as_str);
        match subtype {
            REFUSAL_FALLBACK if word("scope") == Some(LOCAL) => {}
            REFUSAL_FALLBACK => {
                self.retract(data.get("retracted_message_uuids"), out);
                self.text.refuse(out);
                (self.pending, self.refusal) = (None, None);
                self.speaks(word("fallback_model"), out);
            }
            REFUSAL => self.refusal = Some(word("api_refusal_category").map(str::to_owned)),
            FALLBACK => self.speaks(word("fallback_model"), out),
            WRITES_LOST => out.push(writes_lost(data)),
            _ => self.speaks(word("model"), out),
        }
    }

    fn assistant(&mut self, message: &AssistantMessage, uuid: Option<&str>, out: &mut Vec<Output>) {
        self.goes_on(out);
        let error = message.any_error().cloned();
        let is_synthetic = message.model == SYNTHETIC;
        if !is_synthetic {
            self.speaks(Some(&message.model), out);
        }
        // What the CLI itself says, of a failure for example, is not the agent's answer.
        if !is_synthetic {
            let said = message.text();
            if !said.is_empty() {
                let stated = Stated { id: message.id.as_deref(), frame: uuid, text: &said };
                self.text.whole(stated, out);
            }
            if message.blocks.iter().any(|block| matches!(block, Block::ToolUse { .. })) {
                self.text.calls(out);
            }
            blocks(&message.blocks, out);
        }
        self.pending = error;
    }

    fn piece(&mut self, event: &StreamEvent, out: &mut Vec<Output>) {
        match text(&event.event, "type") {
            Some("message_start") => {
                self.goes_on(out);
                self.refusal = None;
                let id = event.event.pointer("/message/id").and_then(Value::as_str);
                self.text.open(id);
            }
            Some("content_block_delta") => {
                if let Some(piece) = text(member(&event.event, "delta"), "text") {
                    self.text.piece(piece, out);
                }
            }
            Some("message_stop") => self.text.end(),
            _ => {}
        }
        if let Some(error) = &event.error {
            self.pending = Some(error.clone());
        }
    }

    fn speaks(&mut self, model: Option<&str>, out: &mut Vec<Output>) {
        let Some(model) = model.filter(|model| self.model.as_deref() != Some(model)) else {
            return;
        };
        self.model = Some(model.to_owned());
        out.push(Output::Model(model.to_owned()));
    }

    /// The run goes on after an error, so that it was none of the run's: its reader is told, and
    /// that is all.
    fn goes_on(&mut self, out: &mut Vec<Output>) {
        if let Some(error) = self.pending.take() {
            out.push(warning(&error));
        }
    }

    fn rate_limit(&mut self, event: &RateLimitEvent, out: &mut Vec<Output>) {
        if event.status == REJECTED {
            self.resets_at = event.resets_at;
        }
        if event.status == NEARLY {
            let fault = Fault::new(FaultKind::UpstreamError)
                .with_message("The agent's rate limit is nearly used up.")
                .with_severity(ErrorSeverity::Warning)
                .with_detail("rate_limit", event.status.as_str());
            let fault = match event.resets_at {
                Some(at) => fault.with_detail("resets_at", at),
                None => fault,
            };
            out.push(Output::Warning(Box::new(fault.to_stream_error(Default::default()))));
        }
    }

    fn result(&mut self, result: &ResultMessage, out: &mut Vec<Output>) {
        self.has_result = true;
        if !result.is_error {
            self.goes_on(out);
        }
        let mut usage: Map<String, Value> = result.usage.clone().unwrap_or_default();
        if let Some(cost) = result.total_cost_usd {
            usage.insert("total_cost_usd".into(), cost.into());
        }
        if !usage.is_empty() {
            out.push(Output::Usage(usage));
        }
        if let (false, Some("max_tokens" | "model_context_window_exceeded")) =
            (result.is_error, result.stop_reason.as_deref())
        {
            out.push(Output::Reason("length".into()));
        }
    }

    /// How the run ended by its last result; `None` if there was none.
    pub fn finish(&mut self, out: &mut Vec<Output>) -> Option<Result<(), Fault>> {
        let outcome = std::mem::take(&mut self.assembler).finish();
        if self.has_asked {
            return Some(Ok(()));
        }
        let result = outcome.result.as_ref()?;
        let refusal = self.refusal.take();
        let is_refused = refusal.is_some() || result.stop_reason.as_deref() == Some("refusal");
        let category = refusal.flatten();
        if !result.is_error && is_refused {
            return Some(Err(refused(category)));
        }
        if !result.is_error {
            self.text.settle(out);
            return Some(Ok(()));
        }
        let own =
            outcome.messages.iter().rev().filter(|message| message.parent_tool_use_id.is_none());
        let words = own.filter_map(|message| message.error_text.clone()).next();
        let words =
            words.or_else(|| result.result.clone()).unwrap_or_else(|| result.errors.join(" "));
        let fault = match (typed(result, &words), outcome.error()) {
            (_, error) if is_refused => with_word(refused(category), error),
            (Some(kind), error) => with_word(Fault::new(kind), error),
            (None, Some(error)) => Fault::from_assistant_error(error, result.api_error_status),
            (None, None) => unnamed(result.api_error_status),
        };
        let fault = if result.subtype == "success" {
            fault
        } else {
            fault.with_detail("result", result.subtype.as_str())
        };
        // It may name hosts and files: nothing for callers.
        let fault =
            fault.with_cause(Cause { error_type: "AgentSaid".into(), chain: vec![short(&words)] });
        Some(Err(self.waiting(fault)))
    }

    /// A rate limit that is used up says how long.
    fn waiting(&self, fault: Fault) -> Fault {
        let now = Timestamp::now().as_millis() / 1000;
        match self.resets_at.map(|at| at - now).and_then(|wait| u32::try_from(wait).ok()) {
            Some(wait) if fault.severity() == ErrorSeverity::Transient => {
                fault.with_retry_after(wait)
            }
            _ => fault,
        }
    }
}

/// The model does not answer this, and no other one does in its place.
fn refused(category: Option<String>) -> Fault {
    let fault = Fault::new(FaultKind::ContentRefused);
    match category {
        Some(category) => fault.with_detail("refusal_category", category),
        None => fault,
    }
}

/// A failed result without any error word.
fn unnamed(status: Option<u16>) -> Fault {
    match status {
        Some(_) => {
            UpstreamFailure { status, ..UpstreamFailure::default() }.to_fault(&ApiKey::none())
        }
        None => Fault::new(FaultKind::UpstreamError)
            .with_severity(ErrorSeverity::Fatal)
            .with_retryable(false),
    }
}

/// What the reasons of the end tell that no error word does: a conversation that is too long, a
/// refusal.
fn typed(result: &ResultMessage, words: &str) -> Option<FaultKind> {
    let reasons =
        [&result.terminal_reason, &result.stop_reason].into_iter().flatten().cloned().collect();
    let told = UpstreamFailure {
        status: result.api_error_status.filter(|status| *status < 500),
        words: reasons,
        text: words.to_owned(),
        ..UpstreamFailure::default()
    };
    told.kind()
        .filter(|kind| matches!(kind, FaultKind::ContextLengthExceeded | FaultKind::ContentRefused))
}

fn with_word(fault: Fault, error: Option<&AssistantError>) -> Fault {
    match error {
        Some(error) => fault.with_detail("assistant_error", error.as_str()),
        None => fault,
    }
}

/// A call of the CLI's own that will be made again: its status and its wait, for whoever looks on.
fn tries_again(news: &Map<String, Value>) -> Output {
    let member = |names: &[&str]| {
        names.iter().find_map(|name| news.get(*name).filter(|value| value.is_number()))
    };
    let status = member(&["error_status", "status", "status_code"]).and_then(Value::as_u64);
    let status = status.filter(|status| (400..600).contains(status));
    let wait =
        member(&["retry_delay_ms", "retry_in_ms"]).and_then(Value::as_f64).map(|ms| ms / 1000.0);
    let word = news.get("error").and_then(Value::as_str).map(AssistantError::from);
    let fault = match &word {
        Some(error) => Fault::from_assistant_error(error, None),
        None => Fault::new(FaultKind::UpstreamError),
    };
    let fault = status.map_or(fault.clone(), |status| fault.with_detail("upstream_status", status));
    let fault = wait.map_or(fault.clone(), |wait| fault.with_retry_after(wait));
    let attempt = news.get("attempt").filter(|attempt| attempt.is_u64()).cloned();
    let fault = attempt.map_or(fault.clone(), |attempt| fault.with_detail("retry", attempt));
    Output::Warning(Box::new(
        fault.with_severity(ErrorSeverity::Warning).to_stream_error(Default::default()),
    ))
}

/// What this run said is not whole on the agent's disk, so that a later run may miss it. Which
/// sessions those are is the agent's own business.
fn writes_lost(news: &Map<String, Value>) -> Output {
    let fault = Fault::new(FaultKind::UpstreamError)
        .with_message("The agent could not save its session; a later run may miss a part of it.")
        .with_severity(ErrorSeverity::Warning);
    let copy = |fault: Fault, name: &str| match news.get(name) {
        Some(value) => fault.with_detail(name, value.clone()),
        None => fault,
    };
    let fault = copy(copy(fault, "error_code"), "lost");
    Output::Warning(Box::new(fault.to_stream_error(Default::default())))
}

/// A failure that the run survived. What was said about it stays inside: it may name hosts and
/// files.
fn warning(error: &AssistantError) -> Output {
    let fault = Fault::from_assistant_error(error, None).with_severity(ErrorSeverity::Warning);
    Output::Warning(Box::new(fault.to_stream_error(Default::default())))
}

/// Thoughts and tool calls of a message; its text has a way of its own.
fn blocks(blocks: &[Block], out: &mut Vec<Output>) {
    for block in blocks {
        match block {
            // Of some thoughts only a signature is shown.
            Block::Thinking(thought) if thought.is_empty() => {}
            Block::Thinking(thought) => {
                let trace = ThoughtTrace { thought: thought.clone() };
                out.extend(make(PresentationEventType::ThoughtTrace.as_str(), &trace));
            }
            Block::ToolUse { id, name, input } => tools::whole(id, name, input, out),
            Block::ToolResult { tool_use_id, content, is_error } => {
                tools::result(tool_use_id, content, *is_error, out);
            }
            Block::Text(_) => {}
        }
    }
}

/// What tools answered, in the user's frames.
fn results(all: &[Block], out: &mut Vec<Output>) {
    for block in all {
        if let Block::ToolResult { tool_use_id, content, is_error } = block {
            tools::result(tool_use_id, content, *is_error, out);
        }
    }
}
