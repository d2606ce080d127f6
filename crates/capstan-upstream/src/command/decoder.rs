//! Lines of stream-json, with ADR 0004's errors, into outputs.
//!
//! Messages and their errors are put together by the protocol crate's [`Assembler`]; this file
//! decides what a reader sees while they come, and what the run's end is.

use capstan_agent::Output;
use capstan_protocol::assistant::{
    Assembler, AssistantError, AssistantMessage, Block, Frame, Line, RateLimitEvent, ResultMessage,
    StreamEvent,
};
use capstan_protocol::fault::Cause;
use capstan_protocol::{
    ErrorSeverity, Fault, FaultKind, PresentationEventType, ThoughtTrace, Timestamp,
};
use serde_json::{Map, Value};

use super::text::Text;
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
}

impl Decoder {
    /// A decoder at the beginning of a run.
    pub fn new() -> Self {
        Self::default()
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
        Ok(self.frame(&frame, out))
    }

    fn frame(&mut self, frame: &Frame, out: &mut Vec<Output>) -> Step {
        match frame {
            Frame::Assistant(message) if message.parent_tool_use_id.is_some() => {
                // A subagent's failure is not the run's.
                out.extend(message.any_error().map(warning));
            }
            Frame::Assistant(message) => self.assistant(message, out),
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
                out.push(tries_again(&message.data))
            }
            Frame::System(message) => {
                self.speaks(text(&Value::Object(message.data.clone()), "model"), out);
                return Step::Quiet;
            }
            Frame::User(_) | Frame::StreamEvent(_) => {}
            Frame::ConversationReset | Frame::Unknown(_) => return Step::Quiet,
        }
        Step::Heard
    }

    fn assistant(&mut self, message: &AssistantMessage, out: &mut Vec<Output>) {
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
                self.text.whole(message.id.as_deref(), &said, out);
            }
            blocks(&message.blocks, out);
        }
        self.pending = error;
    }

    fn piece(&mut self, event: &StreamEvent, out: &mut Vec<Output>) {
        match text(&event.event, "type") {
            Some("message_start") => {
                self.goes_on(out);
                let id = event.event.pointer("/message/id").and_then(Value::as_str);
                self.text.open(id);
            }
            Some("content_block_delta") => {
                if let Some(piece) = text(member(&event.event, "delta"), "text") {
                    self.text.piece(piece, out);
                }
            }
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
        let result = outcome.result.as_ref()?;
        if !result.is_error {
            self.text.settle(out);
            let is_refused = result.stop_reason.as_deref() == Some("refusal");
            return Some(if is_refused {
                Err(Fault::new(FaultKind::ContentRefused))
            } else {
                Ok(())
            });
        }
        let own =
            outcome.messages.iter().rev().filter(|message| message.parent_tool_use_id.is_none());
        let words = own.filter_map(|message| message.error_text.clone()).next();
        let words =
            words.or_else(|| result.result.clone()).unwrap_or_else(|| result.errors.join(" "));
        let fault = match (typed(result, &words), outcome.error()) {
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
