//! Faults: one classified failure, in every dialect.
//!
//! [`catalogue`] is the only place where a kind of failure is described. Everything else here
//! derives from it.

pub mod catalogue;
mod classify;
mod dialect;
mod exceptions;

use std::fmt;

use serde_json::{Map, Value};

pub use catalogue::{AguiErrorCode, CATALOGUE, Entry, FaultKind};
#[cfg(feature = "reqwest")]
pub use classify::is_tls_failure;
pub use exceptions::{
    AgentNotFound, CapabilityNotFound, MessageLimitExceeded, PermissionDenied, RateLimitExceeded,
    ServiceUnavailable, SessionLimitExceeded, SessionNotFound, TenantRequired, UpstreamStatus,
    UpstreamTimeout, Validation,
};

use crate::error::{ErrorDomain, ErrorSeverity};

/// Whether callers see details that could leak (type names, causes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    /// They may not: for production.
    #[default]
    Production,
    /// They may: for development.
    Debug,
}

impl Exposure {
    /// The names of `CAPSTAN_ENV` that mean development.
    pub const DEBUG_ENVIRONMENTS: [&str; 4] = ["development", "dev", "test", "local"];

    /// Reads the value of `CAPSTAN_ENV`.
    pub fn from_environment(name: Option<&str>) -> Self {
        let is_debug = name.is_some_and(|name| {
            Self::DEBUG_ENVIRONMENTS.iter().any(|known| name.eq_ignore_ascii_case(known))
        });
        if is_debug { Self::Debug } else { Self::Production }
    }
}

/// One classified failure. Creating one writes no log line; the boundary that answers with it does,
/// once.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    kind: FaultKind,
    /// A code that a foreign system chose; ours are the kind's.
    pub(crate) foreign_code: Option<String>,
    message: String,
    pub(crate) severity: ErrorSeverity,
    pub(crate) retryable: bool,
    pub(crate) retry_after: Option<u64>,
    // Boxed, so that a `Result` with a fault stays small.
    pub(crate) details: Box<Map<String, Value>>,
    cause: Option<Box<Cause>>,
    upstream: Option<Box<Upstream>>,
}

/// The error behind a fault. Callers see it only under [`Exposure::Debug`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The name of the error's type.
    pub error_type: String,
    /// The error and its sources, outermost first.
    pub chain: Vec<String>,
}

/// The upstream that failed, for the operator's log. No dialect carries it, not even under
/// [`Exposure::Debug`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Upstream {
    /// The server that was called, with its port if that is unusual.
    pub host: Option<String>,
    /// The status that it answered with.
    pub status: Option<u16>,
    /// Its own id of the request, for its support.
    pub request_id: Option<String>,
    /// The last lines that a process wrote to standard error.
    pub stderr: Option<String>,
}

impl fmt::Display for Cause {
    /// The chain in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.chain.join(": "))
    }
}

impl Fault {
    /// A fault as its catalogue entry describes it.
    pub fn new(kind: FaultKind) -> Self {
        let entry = kind.entry();
        Self {
            kind,
            foreign_code: None,
            message: entry.message.to_owned(),
            severity: entry.severity,
            retryable: entry.retryable,
            retry_after: entry.retry_after,
            details: Box::default(),
            cause: None,
            upstream: None,
        }
    }

    /// Replaces the message. It is shown to users, so it must not hold anything internal.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }

    /// Replaces the severity: what this run does next.
    #[must_use]
    pub fn with_severity(mut self, severity: ErrorSeverity) -> Self {
        self.severity = severity;
        self
    }

    /// Replaces the answer to "may a new request succeed?".
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Sets the wait before a retry; fractions of a second are rounded up.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: impl Into<f64>) -> Self {
        self.retry_after = whole_seconds(seconds.into());
        self
    }

    /// Forgets the wait.
    #[must_use]
    pub fn without_retry_after(mut self) -> Self {
        self.retry_after = None;
        self
    }

    /// Adds a detail that callers may see.
    #[must_use]
    pub fn with_detail(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.details.insert(name.into(), value.into());
        self
    }

    /// Adds the error behind it.
    #[must_use]
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.cause = Some(Box::new(cause));
        self
    }

    /// Adds the upstream that failed, for the log.
    #[must_use]
    pub fn with_upstream(mut self, upstream: Upstream) -> Self {
        self.upstream = Some(Box::new(upstream));
        self
    }

    /// The kind.
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    /// The wire code: the kind's own, or the foreign one that was read.
    pub fn code(&self) -> &str {
        self.foreign_code.as_deref().unwrap_or(self.kind.entry().code)
    }

    /// For people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The run's next step.
    pub fn severity(&self) -> ErrorSeverity {
        self.severity
    }

    /// May a new request succeed?
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Whole seconds to wait before a retry.
    pub fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// Details that callers may see.
    pub fn details(&self) -> &Map<String, Value> {
        &self.details
    }

    /// The error behind it.
    pub fn cause(&self) -> Option<&Cause> {
        self.cause.as_deref()
    }

    /// The upstream that failed.
    pub fn upstream(&self) -> Option<&Upstream> {
        self.upstream.as_deref()
    }

    /// The origin of the failure.
    pub fn domain(&self) -> ErrorDomain {
        self.kind.entry().domain
    }

    /// The HTTP status of a response that carries this fault.
    pub fn status(&self) -> u16 {
        self.kind.entry().status
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code(), self.message)
    }
}

impl std::error::Error for Fault {}

impl From<FaultKind> for Fault {
    fn from(kind: FaultKind) -> Self {
        Self::new(kind)
    }
}

/// Rounded up; what is not a sensible wait is none.
pub(crate) fn whole_seconds(seconds: f64) -> Option<u64> {
    /// A year: beyond it a wait is a mistake.
    const LONGEST: f64 = 31_536_000.0;
    // In range by the guard, so the cast loses nothing.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (seconds.is_finite() && (0.0..=LONGEST).contains(&seconds)).then(|| seconds.ceil() as u64)
}
