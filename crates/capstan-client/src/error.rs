//! What can go wrong, in RFC 004's three kinds. Displaying one tells a person what happened and what to do.

use std::fmt;
use std::time::Duration;

use capstan_protocol::{AguiErrorCode, ErrorSeverity, FaultKind, Problem, StreamError};

/// A failed call.
#[derive(Debug, Clone, PartialEq)]
pub enum CapError {
    /// No connection, or none that holds, after all retries. Check the network, or try again later.
    Connection(ConnectionError),
    /// The server sent what the protocol does not allow. Check versions, or report it.
    Protocol(ProtocolError),
    /// The server refused the request, or the run failed.
    Runtime(Box<RuntimeError>),
}

/// The connection could not be made, or not be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionError {
    /// What happened last.
    pub message: String,
    /// How often it was tried again since the last new packet.
    pub retries: u32,
}

/// Data that violates the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolError {
    /// What is wrong, with its place.
    pub message: String,
}

/// The server's own failure, from HTTP or from the stream.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuntimeError {
    /// The HTTP status, if a request was refused.
    pub status: Option<u16>,
    /// The problem that came with it.
    pub problem: Option<Problem>,
    /// The error of the stream, if the run failed.
    pub error: Option<StreamError>,
    /// How long to wait before trying again.
    pub retry_after: Option<Duration>,
    /// What was said before a `stream_reset` took part of it back, or before the failure; in text mode only.
    pub partial_text: Option<String>,
}

impl CapError {
    pub(crate) fn connection(message: impl Into<String>, retries: u32) -> Self {
        Self::Connection(ConnectionError { message: message.into(), retries })
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::Protocol(ProtocolError { message: message.into() })
    }

    /// The failure of a run, as its stream tells it.
    pub fn stream(error: StreamError) -> Self {
        let retry_after = error.retry_after().and_then(|s| Duration::try_from_secs_f64(s).ok());
        Self::Runtime(Box::new(RuntimeError { error: Some(error), retry_after, ..RuntimeError::default() }))
    }

    pub(crate) fn refused(status: u16, problem: Option<Problem>, retry_after: Option<Duration>) -> Self {
        let told = problem.as_ref().and_then(|p| p.retry_after).map(Duration::from_secs);
        let retry_after = retry_after.or(told);
        let status = Some(status);
        Self::Runtime(Box::new(RuntimeError { status, problem, retry_after, ..RuntimeError::default() }))
    }

    /// The failure of the server, if it is one.
    pub fn as_runtime(&self) -> Option<&RuntimeError> {
        if let Self::Runtime(error) = self { Some(error) } else { None }
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connection(_) => true,
            Self::Protocol(_) => false,
            Self::Runtime(error) => error.is_retryable(),
        }
    }

    /// How long to wait before trying again, if the server said so.
    pub fn retry_after(&self) -> Option<Duration> {
        self.as_runtime().and_then(|error| error.retry_after)
    }
}

impl RuntimeError {
    /// The code of the failure: the stream's, else the problem's, else one for the status.
    pub fn code(&self) -> &str {
        let stream = self.error.as_ref().map(|error| error.code.as_str());
        let problem = self.problem.as_ref().map(|p| p.code.as_str()).filter(|code| !code.is_empty());
        stream.or(problem).unwrap_or("http_error")
    }

    /// What the run does next.
    pub fn severity(&self) -> ErrorSeverity {
        match (&self.error, &self.problem) {
            (Some(error), _) => error.severity,
            (None, Some(problem)) => problem.severity,
            (None, None) if self.is_retryable() => ErrorSeverity::Transient,
            (None, None) => ErrorSeverity::Fatal,
        }
    }

    /// For people.
    pub fn message(&self) -> String {
        if let Some(error) = &self.error {
            return error.message.clone();
        }
        let problem = self.problem.as_ref();
        let told = problem.and_then(|p| p.detail.clone()).or_else(|| problem.map(|p| p.title.clone()));
        told.filter(|text| !text.is_empty()).unwrap_or_else(|| {
            format!("The server answered with status {}.", self.status.unwrap_or_default())
        })
    }

    /// Whether a new request may succeed. What the server says of this failure wins over what its code usually means.
    pub fn is_retryable(&self) -> bool {
        if let Some(error) = &self.error {
            return is_retryable_error(error);
        }
        match &self.problem {
            Some(problem) if !problem.code.is_empty() => problem.retryable,
            _ => matches!(self.status, Some(408 | 425 | 429 | 500 | 502 | 503 | 504 | 529)),
        }
    }
}

fn is_retryable_error(error: &StreamError) -> bool {
    let told = error.details.as_ref().and_then(|details| details.get("retryable")).and_then(|v| v.as_bool());
    let kind = || FaultKind::parse(&error.code).map(|kind| kind.entry().retryable);
    let agui = || AguiErrorCode::ALL.into_iter().find(|code| code.as_str() == error.code);
    told.or_else(kind)
        .or_else(|| agui().map(AguiErrorCode::is_retryable))
        .unwrap_or(error.severity == ErrorSeverity::Transient)
}

impl fmt::Display for CapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(e) => e.fmt(f),
            Self::Protocol(e) => e.fmt(f),
            Self::Runtime(e) => e.fmt(f),
        }
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no connection: {}", self.message)?;
        match self.retries {
            0 => Ok(()),
            1 => f.write_str(" (tried again once)"),
            n => write!(f, " (tried again {n} times)"),
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server does not speak the protocol: {}", self.message)
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.message(), self.code())?;
        if let Some(status) = self.status {
            write!(f, ", status {status}")?;
        }
        f.write_str(")")?;
        match self.retry_after {
            Some(wait) => write!(f, "; try again in {} s", wait.as_secs_f64().ceil()),
            None if self.is_retryable() => f.write_str("; try again later"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for CapError {}
impl std::error::Error for ConnectionError {}
impl std::error::Error for ProtocolError {}
impl std::error::Error for RuntimeError {}
