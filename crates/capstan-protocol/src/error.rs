//! `StreamError`: what an ERROR packet carries, strictly (RFC 005); where a failure comes from.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The effect of an error on the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum ErrorSeverity {
    /// The stream is dead and a retry cannot help. Raise it.
    Fatal,
    /// The stream was interrupted by something that passes. Retry, with backoff.
    Transient,
    /// A minor part failed and the stream continues. Log it.
    Warning,
}

impl ErrorSeverity {
    /// Every severity, worst first.
    pub const ALL: [Self; 3] = [Self::Fatal, Self::Transient, Self::Warning];

    /// The spelling on the wire (v1).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fatal => "FATAL",
            Self::Transient => "TRANSIENT",
            Self::Warning => "WARNING",
        }
    }
}

impl fmt::Display for ErrorSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The origin of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ErrorDomain {
    /// The request was wrong.
    Client,
    /// The platform failed.
    #[default]
    System,
    /// The model provider failed or refused.
    Llm,
    /// A tool failed.
    Tool,
    /// Authentication, authorization or governance refused.
    Security,
}

impl ErrorDomain {
    /// Every domain.
    pub const ALL: [Self; 5] = [Self::Client, Self::System, Self::Llm, Self::Tool, Self::Security];

    /// The spelling on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::System => "system",
            Self::Llm => "llm",
            Self::Tool => "tool",
            Self::Security => "security",
        }
    }
}

/// A failure of the stream itself: the payload of an ERROR packet.
///
/// For a failure that the user should read while the agent continues, see `UserError`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StreamError {
    /// Machine-readable, snake_case, such as `rate_limit_exceeded`.
    pub code: String,
    /// For people.
    pub message: String,
    /// The stream's next step.
    pub severity: ErrorSeverity,
    /// Further data, such as `{"retry_after": 60}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
}

impl StreamError {
    /// An error without details.
    pub fn new(
        code: impl Into<String>,
        message: impl Into<String>,
        severity: ErrorSeverity,
    ) -> Self {
        Self { code: code.into(), message: message.into(), severity, details: None }
    }

    /// Adds one member to the details.
    #[must_use]
    pub fn with_detail(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.details.get_or_insert_default().insert(name.into(), value.into());
        self
    }

    /// `details.retry_after` in seconds, if it is a number that makes sense as a wait.
    pub fn retry_after(&self) -> Option<f64> {
        let seconds = self.details.as_ref()?.get("retry_after")?.as_f64()?;
        (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
    }
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.code, self.message)
    }
}

impl std::error::Error for StreamError {}
