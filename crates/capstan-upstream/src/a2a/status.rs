//! The status of a task: its state, and its message.

use capstan_agent::{Interrupt, Output};
use capstan_protocol::{
    ErrorSeverity, Fault, FaultKind, PresentationEventType, ProgressStatus, ProgressUpdate,
    StreamError, event,
};
use serde_json::{Map, Value};

use crate::api_key::ApiKey;
use crate::decode::{member, text};
use crate::http::short;
use crate::thoughts::make;
use crate::upstream_failure::UpstreamFailure;

/// The error code of A2A for a request that does not fit the state of the task.
pub(super) const UNSUPPORTED: i64 = -32004;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Canceled,
    Failed,
    Rejected,
}

impl State {
    /// Parses the state in the form of either version. `None` if it is unknown.
    pub(super) fn of(status: &Value) -> Option<Self> {
        let word = text(status, "state")?;
        let word =
            word.strip_prefix("TASK_STATE_").unwrap_or(word).to_ascii_lowercase().replace('_', "-");
        Some(match word.as_str() {
            "submitted" | "working" => Self::Working,
            "input-required" => Self::InputRequired,
            "auth-required" => Self::AuthRequired,
            "completed" => Self::Completed,
            "canceled" | "cancelled" => Self::Canceled,
            "failed" => Self::Failed,
            "rejected" => Self::Rejected,
            _ => return None,
        })
    }

    pub(super) fn is_question(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

/// The texts of a message or an artifact, joined.
pub(super) fn text_of(of: &Value) -> String {
    let parts = of.get("parts").and_then(Value::as_array);
    parts.into_iter().flatten().filter_map(|part| part.get("text")?.as_str()).collect()
}

/// The first data part of a message.
fn data_of(message: &Value) -> Option<&Value> {
    let parts = message.get("parts").and_then(Value::as_array)?;
    parts.iter().find_map(|part| part.get("data").filter(|data| data.is_object()))
}

/// The typed error of a Capstan gateway, if the message has one.
fn typed(message: &Value) -> Option<StreamError> {
    let data = data_of(message)?;
    data.get("severity")?;
    serde_json::from_value(data.clone()).ok()
}

/// Converts the message of a running task. A Capstan gateway's message becomes the original event.
/// Any other becomes progress.
pub(super) fn note(label: &str, message: &Value) -> Option<Output> {
    if let Some(error) = typed(message) {
        return Some(Output::Warning(Box::new(StreamError {
            severity: ErrorSeverity::Warning,
            ..error
        })));
    }
    let progress = PresentationEventType::ProgressIndicator.as_str();
    let data = data_of(message).unwrap_or(&Value::Null);
    if let Some(kind) =
        text(data, "type").filter(|kind| [progress, event::USER_ERROR].contains(kind))
    {
        return make(kind, member(data, "data"));
    }
    let update = ProgressUpdate {
        label: short(label),
        status: ProgressStatus::Running,
        progress_percent: None,
    };
    make(progress, &update)
}

pub(super) fn question(id: String, state: State, message: &Value) -> Interrupt {
    let reason = if state == State::AuthRequired { "auth_required" } else { "input_required" };
    let mut asked = Interrupt::new(id, reason);
    asked.message = Some(text_of(message)).filter(|text| !text.is_empty());
    let Some(data) = data_of(message) else { return asked };
    // A single question of a Capstan gateway has a form.
    match data.get("interrupts").and_then(Value::as_array).map(Vec::as_slice) {
        Some([own]) => {
            asked.reason = text(own, "reason").unwrap_or(reason).to_owned();
            asked.response_schema = own.get("responseSchema").and_then(Value::as_object).cloned();
            asked.expires_at = text(own, "expiresAt").map(str::to_owned);
        }
        _ => asked.metadata = Some(Map::from_iter([("data".to_owned(), data.clone())])),
    }
    asked
}

/// Converts a failed task to a fault: the typed error if there is one, else a fatal fault with the
/// message's text.
pub(super) fn failure(state: State, message: &Value, secret: &ApiKey) -> Fault {
    if let Some(error) = typed(message) {
        return Fault::from(error);
    }
    let text = short(&secret.scrub(&text_of(message)));
    let fault =
        UpstreamFailure { text: text.clone(), ..UpstreamFailure::default() }.to_fault(secret);
    let fault = match (fault.kind(), state) {
        (FaultKind::UpstreamError, State::Rejected) => Fault::new(FaultKind::ContentRefused),
        (FaultKind::UpstreamError, _) => {
            fault.with_severity(ErrorSeverity::Fatal).with_retryable(false)
        }
        _ => fault,
    };
    if text.is_empty() { fault } else { fault.with_message(text) }
}

/// Converts an error of JSON-RPC or A2A by its code.
pub(super) fn refusal(error: &Value, secret: &ApiKey) -> Fault {
    let mut failure = UpstreamFailure::from_error(error);
    if failure.status.is_none() {
        failure.status = match error.get("code").and_then(Value::as_i64) {
            Some(-32001 | -32601 | -32009) => Some(404),
            Some(-32700 | -32600 | -32602 | -32008..=-32002) => Some(400),
            _ => Some(500),
        };
    }
    failure.to_fault(secret)
}
