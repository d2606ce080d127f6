//! Decodes lines of stream-json: ADR 0004's errors, and the notices of later CLIs.
//!
//! The protocol crate's [`Assembler`] puts messages and their errors together. This file decides
//! what readers see meanwhile, and how the run ends.

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

/// The model name of messages that the CLI itself writes.
const SYNTHETIC: &str = "<synthetic>";
/// The CLI's notice that it will repeat a failed call.
const API_RETRY: &str = "api_retry";
/// A model refused. Another one answers instead, or none does.
const REFUSAL_FALLBACK: &str = "model_refusal_fallback";
const REFUSAL: &str = "model_refusal_no_fallback";
/// Another model answers, for another reason than a refusal.
const FALLBACK: &str = "model_fallback";
/// The CLI could not save its session, which a later run would continue.
const WRITES_LOST: &str = "session_writes_lost";
/// The fallback concerns a subagent only.
const LOCAL: &str = "local";
/// A rate limit is used up, or soon will be.
const REJECTED: &str = "rejected";
const NEARLY: &str = "allowed_warning";

/// Decodes one run of a process.
#[derive(Debug, Default)]
pub struct Decoder {
    assembler: Assembler,
    text: Text,
    model: Option<String>,
    /// An error of the agent itself. The result decides how serious it is.
    pending: Option<AssistantError>,
    /// When a used-up rate limit resets, in seconds since the Unix epoch.
    resets_at: Option<i64>,
    has_result: bool,
    /// A refusal without another model's answer: its category, if it is known.
    refusal: Option<Option<String>>,
    /// Answers of people to the questions of earlier processes, oldest first.
    answers: Vec<ResumeEntry>,
    /// Replies that the process waits for on its standard input.
    replies: Vec<String>,
    /// The process has asked a question that only a person can answer.
    has_asked: bool,
}

impl Decoder {
    /// Creates a decoder for a run.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a decoder that has people's answers.
    pub(super) fn with_answers(answers: Vec<ResumeEntry>) -> Self {
        Self { answers, ..Self::default() }
    }

    /// Takes the replies for the process, in the order of its requests.
    pub(super) fn take_replies(&mut self) -> Vec<String> {
        std::mem::take(&mut self.replies)
    }

    /// Whether the run has to stop for a person's answer.
    pub(super) fn has_asked(&self) -> bool {
        self.has_asked
    }

    /// Decodes a line.
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

    /// Answers a request of the process, or turns it into a question to a person.
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

    /// Takes a call that the process put off until a person decides.
    fn deferred(&mut self, call: Option<&Value>, out: &mut Vec<Output>) {
        let Some(call) = call.filter(|call| call.is_object()) else { return };
        if let Some(tool) = text(call, "name") {
            self.ask(
                permission::question(tool, member(call, "input"), text(call, "id"), None),
                out,
            );
        }
    }

    /// Removes the text of these frames from the answer.
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
                // A failure of a subagent does not fail the run.
                out.extend(message.any_error().map(warning));
            }
            Frame::Assistant(message) => self.assistant(message, uuid, out),
            Frame::StreamEvent(event) if event.parent_tool_use_id.is_none() => {
                self.piece(event, out)
            }
            Frame::User(message) if message.parent_tool_use_id.is_none() => {
                self.downgrade_errors(out);
                self.text.close();
                results(&message.blocks, out);
            }
            Frame::Result(result) => {
                self.result(result, out);
                return Step::Ending;
            }
            Frame::RateLimit(event) => self.rate_limit(event, out),
            // The CLI repeats a call: it is not silent, and viewers get a notice.
            Frame::System(message) if message.subtype == API_RETRY => {
                self.text.abandon();
                out.push(retry_notice(&message.data))
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
        self.downgrade_errors(out);
        let error = message.any_error().cloned();
        let is_synthetic = message.model == SYNTHETIC;
        if !is_synthetic {
            self.speaks(Some(&message.model), out);
        }
        // Text of the CLI itself, for example about a failure, is not the agent's answer.
        if !is_synthetic {
            let text = message.text();
            if !text.is_empty() {
                let stated = Stated { id: message.id.as_deref(), frame: uuid, text: &text };
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
                self.downgrade_errors(out);
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

    /// The run continues after an error, so the error becomes a warning to viewers.
    fn downgrade_errors(&mut self, out: &mut Vec<Output>) {
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
            self.downgrade_errors(out);
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

    /// How the run ended, by its last result. `None` if there was none.
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
        // The text may contain hosts and paths, so callers do not get it.
        let fault =
            fault.with_cause(Cause { error_type: "AgentSaid".into(), chain: vec![short(&words)] });
        Some(Err(self.waiting(fault)))
    }

    /// Adds the wait, if a rate limit is used up.
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

/// The fault for a refusal of the model that no other model made up for.
fn refused(category: Option<String>) -> Fault {
    let fault = Fault::new(FaultKind::ContentRefused);
    match category {
        Some(category) => fault.with_detail("refusal_category", category),
        None => fault,
    }
}

/// The fault for a failed result without an error code.
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

/// The fault kind that only the stop reason shows: a conversation that is too long, or a refusal.
fn typed(result: &ResultMessage, words: &str) -> Option<FaultKind> {
    let reasons =
        [&result.terminal_reason, &result.stop_reason].into_iter().flatten().cloned().collect();
    let failure = UpstreamFailure {
        status: result.api_error_status.filter(|status| *status < 500),
        words: reasons,
        text: words.to_owned(),
        ..UpstreamFailure::default()
    };
    failure
        .kind()
        .filter(|kind| matches!(kind, FaultKind::ContextLengthExceeded | FaultKind::ContentRefused))
}

fn with_word(fault: Fault, error: Option<&AssistantError>) -> Fault {
    match error {
        Some(error) => fault.with_detail("assistant_error", error.as_str()),
        None => fault,
    }
}

/// The notice to viewers that the CLI repeats a call: its status and its wait.
fn retry_notice(news: &Map<String, Value>) -> Output {
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

/// The warning that the session is not complete on the agent's disk, so that a later run may lack
/// it. It does not name the session's files.
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

/// A failure that the run survived, as a warning. Its text stays inside, because it may contain
/// hosts and paths.
fn warning(error: &AssistantError) -> Output {
    let fault = Fault::from_assistant_error(error, None).with_severity(ErrorSeverity::Warning);
    Output::Warning(Box::new(fault.to_stream_error(Default::default())))
}

/// Sends the thoughts and tool calls of a message. `text` handles its text.
fn blocks(blocks: &[Block], out: &mut Vec<Output>) {
    for block in blocks {
        match block {
            // Some thoughts have only a signature.
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

/// Sends the results of tools, from the user's frames.
fn results(all: &[Block], out: &mut Vec<Output>) {
    for block in all {
        if let Block::ToolResult { tool_use_id, content, is_error } = block {
            tools::result(tool_use_id, content, *is_error, out);
        }
    }
}
