//! The errors of the client, in RFC 004's three kinds. Their text says what happened and what to
//! do.

use std::fmt;
use std::time::Duration;

use capstan_protocol::{AguiErrorCode, ErrorSeverity, FaultKind, Problem, StreamError};
use url::Url;

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

/// The connection failed, or broke.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectionError {
    /// The last failure.
    pub message: String,
    /// The number of retries since the last new packet.
    pub retries: u32,
    /// The server: scheme, host and port. None if it never came to a request.
    pub address: Option<String>,
    /// The call's own deadline, if that is what ended it.
    pub deadline: Option<Duration>,
    /// The server was silent for too long, or the deadline has passed.
    pub is_timeout: bool,
}

/// Data that violates the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProtocolError {
    /// The mistake, with its place.
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
    /// The wait before a retry.
    pub retry_after: Option<Duration>,
    /// The text before a `stream_reset` took a part of it back, or before the failure; in text mode
    /// only.
    pub partial_text: Option<String>,
}

impl CapError {
    pub(crate) fn connection(message: impl Into<String>, retries: u32) -> Self {
        Self::Connection(ConnectionError { retries, ..ConnectionError::new(message) })
    }

    /// The call took longer than it may.
    pub(crate) fn late(deadline: Duration, retries: u32) -> Self {
        let message = format!("not done within the deadline of {} s", deadline.as_secs_f64());
        Self::Connection(ConnectionError {
            message,
            retries,
            address: None,
            deadline: Some(deadline),
            is_timeout: true,
        })
    }

    /// A redirect that the client does not follow. The message has only its origin, because the
    /// rest may be a secret.
    pub(crate) fn redirected(status: u16, location: Option<&str>) -> Self {
        let target =
            location.and_then(|location| Url::parse(location).ok()).map(|url| address(&url));
        let target = target.map_or(String::new(), |target| format!(" to {target}"));
        Self::protocol(format!(
            "status {status}: redirected{target}, which is not followed, because the \
             request would go to another server; if that is the right one, make it the base URL"
        ))
    }

    /// The same failure with the server that it is about.
    pub(crate) fn at(self, url: &Url) -> Self {
        match self {
            Self::Connection(e) => {
                Self::Connection(ConnectionError { address: Some(address(url)), ..e })
            }
            other @ (Self::Protocol(_) | Self::Runtime(_)) => other,
        }
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::Protocol(ProtocolError { message: message.into() })
    }

    /// The failure of a run, from its stream.
    pub fn stream(error: StreamError) -> Self {
        let retry_after = error.retry_after().and_then(|s| Duration::try_from_secs_f64(s).ok());
        Self::Runtime(Box::new(RuntimeError {
            error: Some(error),
            retry_after,
            ..RuntimeError::default()
        }))
    }

    pub(crate) fn refused(
        status: u16,
        problem: Option<Problem>,
        retry_after: Option<Duration>,
    ) -> Self {
        let told = problem.as_ref().and_then(|p| p.retry_after).map(Duration::from_secs);
        let retry_after = retry_after.or(told);
        let status = Some(status);
        Self::Runtime(Box::new(RuntimeError {
            status,
            problem,
            retry_after,
            ..RuntimeError::default()
        }))
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

    /// The wait before a retry, if the server named one.
    pub fn retry_after(&self) -> Option<Duration> {
        self.as_runtime().and_then(|error| error.retry_after)
    }
}

impl ConnectionError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// The server was silent for too long.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self { is_timeout: true, ..Self::new(message) }
    }
}

impl RuntimeError {
    /// The code of the failure: the stream's, else the problem's, else one for the status.
    pub fn code(&self) -> &str {
        let stream = self.error.as_ref().map(|error| error.code.as_str());
        let problem =
            self.problem.as_ref().map(|p| p.code.as_str()).filter(|code| !code.is_empty());
        stream.or(problem).unwrap_or("http_error")
    }

    /// The run's next step.
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
        let told =
            problem.and_then(|p| p.detail.clone()).or_else(|| problem.map(|p| p.title.clone()));
        told.filter(|text| !text.is_empty()).unwrap_or_else(|| {
            format!("The server answered with status {}.", self.status.unwrap_or_default())
        })
    }

    /// Whether a new request may succeed. The server's statement about this failure wins over the
    /// code's usual meaning.
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

/// Scheme, host and port; no user, no path, no query.
fn address(url: &Url) -> String {
    url.origin().ascii_serialization()
}

fn is_retryable_error(error: &StreamError) -> bool {
    let told = error
        .details
        .as_ref()
        .and_then(|details| details.get("retryable"))
        .and_then(|v| v.as_bool());
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
        match (&self.address, self.deadline) {
            (None, _) => return f.write_str(&self.message),
            (Some(address), Some(_)) => write!(f, "{address}: {}", self.message)?,
            (Some(address), None) => write!(f, "no connection to {address}: {}", self.message)?,
        }
        match self.retries {
            0 => {}
            1 => f.write_str(" (tried again once)")?,
            n => write!(f, " (tried again {n} times)")?,
        }
        f.write_str(match self.deadline {
            Some(_) => "; a run that has started continues: allow more time, or attach to it",
            None => "; check the address and the network, or try again later",
        })
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = env!("CARGO_PKG_VERSION");
        write!(f, "the server does not speak the protocol: {}", self.message)?;
        write!(f, "; check that client ({version}) and server fit together, or report it")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Url {
        "http://user:secret@localhost:8787/path?key=secret".parse().unwrap()
    }

    #[test]
    fn a_connection_error_names_the_address_and_what_to_do() {
        let told =
            CapError::connection("cannot connect: Connection refused", 3).at(&server()).to_string();
        assert_eq!(
            told,
            "no connection to http://localhost:8787: cannot connect: Connection refused (tried \
             again 3 times); check the \
             address and the network, or try again later"
        );
    }

    #[test]
    fn a_protocol_error_says_to_check_versions_or_to_report_it() {
        let told = CapError::protocol("op: unknown").to_string();
        let version = env!("CARGO_PKG_VERSION");
        assert!(told.ends_with(&format!(
            "check that client ({version}) and server fit together, or report it"
        )));
    }

    #[test]
    fn a_deadline_is_told_apart_and_says_that_the_run_goes_on() {
        let error = CapError::late(Duration::from_millis(1500), 0).at(&server());
        let CapError::Connection(e) = &error else { panic!("{error:?}") };
        assert_eq!(e.deadline, Some(Duration::from_millis(1500)));
        assert!(
            error
                .to_string()
                .starts_with("http://localhost:8787: not done within the deadline of 1.5 s; a run")
        );
    }

    #[test]
    fn of_a_redirect_only_the_origin_is_told() {
        let told = CapError::redirected(307, Some("https://other.example/assist?token=secret"))
            .to_string();
        assert!(
            told.contains("status 307: redirected to https://other.example, which is not followed"),
            "{told}"
        );
        assert!(!told.contains("secret"));
        assert!(CapError::redirected(302, None).to_string().contains("make it the base URL"));
    }
}
