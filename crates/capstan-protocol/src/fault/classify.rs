//! From any error to a fault: the chain of sources is searched for something that is known.

use std::any::Any;
use std::error::Error;
use std::io;

use super::{Cause, Fault, FaultKind, exceptions as ours};
use crate::decode::DecodeError;
use crate::error::{ErrorSeverity, StreamError};

type Known = fn(&(dyn Error + 'static)) -> Option<Fault>;

/// Tried in this order on each error of the chain, outermost first.
const CLASSIFIERS: &[Known] = &[
    from_ours,
    from_story,
    #[cfg(feature = "reqwest")]
    from_reqwest,
    #[cfg(feature = "tokio")]
    from_tokio,
    from_io,
    from_serde,
];

impl Fault {
    /// Classifies an error by its type and its sources. An unknown one becomes
    /// `agent_execution_error`, whose message reveals nothing internal.
    pub fn from_error<E: Error + 'static>(error: E) -> Self {
        Self::classify(&error, short_name(std::any::type_name::<E>()))
    }

    /// [`Self::from_error`] for an error without a static type.
    pub fn from_dyn(error: &(dyn Error + 'static)) -> Self {
        Self::classify(error, &debug_name(error))
    }

    /// A panic's payload. Its text is a cause, never a message.
    pub fn from_panic(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        let cause = Cause { error_type: "panic".into(), chain: vec![text] };
        Self::new(FaultKind::AgentExecutionError).with_cause(cause)
    }

    fn classify(error: &(dyn Error + 'static), error_type: &str) -> Self {
        let mut chain = Vec::new();
        let mut found = None;
        let mut next = Some(error);
        while let Some(current) = next {
            found = found.or_else(|| CLASSIFIERS.iter().find_map(|known| known(current)));
            chain.push(current.to_string());
            next = current.source();
        }
        let fault = found.unwrap_or_else(|| Self::new(FaultKind::AgentExecutionError));
        // A fault that travelled as an error has its cause already.
        if fault.cause.is_some() {
            return fault;
        }
        fault.with_cause(Cause { error_type: error_type.to_owned(), chain })
    }

    /// An upstream's HTTP status: what it means for this run.
    pub fn from_upstream_status(status: u16, retry_after: Option<f64>) -> Self {
        let severity = match status {
            408 | 409 | 425 | 429 | 500..=599 => ErrorSeverity::Transient,
            _ => ErrorSeverity::Fatal,
        };
        let fault = Self::new(FaultKind::UpstreamError)
            .with_severity(severity)
            .with_retryable(severity == ErrorSeverity::Transient)
            .with_detail("upstream_status", status);
        match retry_after {
            Some(seconds) => fault.with_retry_after(seconds),
            None => fault,
        }
    }
}

fn from_ours(error: &(dyn Error + 'static)) -> Option<Fault> {
    if let Some(fault) = error.downcast_ref::<Fault>() {
        return Some(fault.clone());
    }
    if let Some(error) = error.downcast_ref::<StreamError>() {
        return Some(Fault::from(error.clone()));
    }
    let error = error.downcast_ref::<DecodeError>()?;
    Some(Fault::new(FaultKind::InvalidRequest).with_message(error.to_string()))
}

fn from_story(error: &(dyn Error + 'static)) -> Option<Fault> {
    if let Some(limit) = error.downcast_ref::<ours::RateLimitExceeded>() {
        let fault = Fault::new(FaultKind::RateLimitExceeded);
        return Some(match limit.retry_after {
            Some(seconds) => fault.with_retry_after(seconds),
            None => fault,
        });
    }
    if let Some(status) = error.downcast_ref::<ours::UpstreamStatus>() {
        return Some(Fault::from_upstream_status(status.status, status.retry_after));
    }
    if let Some(validation) = error.downcast_ref::<ours::Validation>() {
        return Some(Fault::new(FaultKind::InvalidRequest).with_message(&validation.message));
    }
    let kind = if error.is::<ours::SessionLimitExceeded>() {
        FaultKind::SessionLimitExceeded
    } else if error.is::<ours::MessageLimitExceeded>() {
        FaultKind::MessageLimitExceeded
    } else if error.is::<ours::AgentNotFound>() {
        FaultKind::AgentNotFound
    } else if error.is::<ours::CapabilityNotFound>() {
        FaultKind::CapabilityNotFound
    } else if error.is::<ours::TenantRequired>() {
        FaultKind::TenantRequired
    } else if error.is::<ours::PermissionDenied>() {
        FaultKind::TenantUnauthorized
    } else if error.is::<ours::SessionNotFound>() {
        FaultKind::SessionNotFound
    } else if error.is::<ours::ServiceUnavailable>() {
        FaultKind::ServiceUnavailable
    } else if error.is::<ours::UpstreamTimeout>() {
        FaultKind::UpstreamTimeout
    } else {
        return None;
    };
    Some(Fault::new(kind))
}

fn from_io(error: &(dyn Error + 'static)) -> Option<Fault> {
    let error = error.downcast_ref::<io::Error>()?;
    // Only kinds of I/O errors with a clear meaning. A missing file inside an agent is not a failed
    // lookup of the caller.
    #[allow(clippy::wildcard_enum_match_arm)]
    let kind = match error.kind() {
        io::ErrorKind::TimedOut => FaultKind::Timeout,
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::NotConnected
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => FaultKind::UpstreamUnreachable,
        io::ErrorKind::UnexpectedEof => FaultKind::UpstreamTruncated,
        _ => return None,
    };
    Some(Fault::new(kind))
}

/// A document that does not fit its model. serde's text may quote the document, which may belong to
/// another party, so it stays a cause. [`DecodeError`] is for documents of the caller.
fn from_serde(error: &(dyn Error + 'static)) -> Option<Fault> {
    let error = error.downcast_ref::<serde_json::Error>()?;
    (!error.is_io()).then(|| Fault::new(FaultKind::InvalidRequest))
}

#[cfg(feature = "reqwest")]
fn from_reqwest(error: &(dyn Error + 'static)) -> Option<Fault> {
    let error = error.downcast_ref::<reqwest::Error>()?;
    if error.is_timeout() {
        return Some(Fault::new(FaultKind::UpstreamTimeout));
    }
    if let Some(status) = error.status() {
        return Some(Fault::from_upstream_status(status.as_u16(), None));
    }
    let kind = if error.is_connect() {
        FaultKind::UpstreamUnreachable
    } else if error.is_decode() {
        FaultKind::UpstreamMalformed
    } else if error.is_body() || error.is_request() {
        FaultKind::UpstreamTruncated
    } else {
        return None;
    };
    let fault = Fault::new(kind);
    // A certificate that does not verify will not verify next time either.
    Some(if is_tls_failure(error) {
        fault.with_severity(ErrorSeverity::Fatal).with_retryable(false)
    } else {
        fault
    })
}

/// Whether TLS failed: a certificate that does not verify, or no common version. A retry fails
/// again.
#[cfg(feature = "reqwest")]
pub fn is_tls_failure(error: &(dyn Error + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    // An I/O error hides the error that it was made of from `source`.
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inner.is_some_and(|inner| is_tls_failure(inner)) || error.source().is_some_and(is_tls_failure)
}

#[cfg(feature = "tokio")]
fn from_tokio(error: &(dyn Error + 'static)) -> Option<Fault> {
    error.downcast_ref::<tokio::time::error::Elapsed>().map(|_| Fault::new(FaultKind::Timeout))
}

/// `a::b::Error<x::Y>` as `Error<x::Y>`: paths of generics stay, they cannot be cut safely.
fn short_name(full: &str) -> &str {
    let head = full.split('<').next().unwrap_or(full);
    let start = head.rfind("::").map_or(0, |at| at + 2);
    full.get(start..).unwrap_or(full)
}

/// Finds the type name of a `dyn Error`: most `Debug` texts begin with it.
fn debug_name(error: &dyn Error) -> String {
    let text = format!("{error:?}");
    let name: String = text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    if name.starts_with(char::is_alphabetic) { name } else { "Error".into() }
}
