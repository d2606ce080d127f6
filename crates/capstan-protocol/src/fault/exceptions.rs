//! The errors of story 22-B2 as Rust types: what limiters, tenancy and lookups raise.
//!
//! Each becomes the fault of its name; see [`super::classify`].

use std::fmt;

/// Declares a unit-like error with its fixed text.
macro_rules! plain_errors {
    ($($(#[$doc:meta])* $name:ident: $text:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name;

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($text)
            }
        }

        impl std::error::Error for $name {}
    )*};
}

plain_errors! {
    /// The tenant has reached its limit of sessions.
    SessionLimitExceeded: "session limit exceeded";
    /// The session has reached its limit of messages.
    MessageLimitExceeded: "message limit exceeded";
    /// The agent is unknown.
    AgentNotFound: "agent not found";
    /// The capability is unknown.
    CapabilityNotFound: "capability not found";
    /// The request names no tenant.
    TenantRequired: "tenant required";
    /// The tenant may not do this.
    PermissionDenied: "permission denied";
    /// The session is unknown. A failed lookup of anything else is not this.
    SessionNotFound: "session not found";
    /// The service cannot serve at the moment.
    ServiceUnavailable: "service unavailable";
    /// A system behind the agent did not answer in time.
    UpstreamTimeout: "upstream timed out";
}

/// The tenant sends too fast.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RateLimitExceeded {
    /// Seconds until the next request may pass, if that is known.
    pub retry_after: Option<f64>,
}

impl fmt::Display for RateLimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rate limit exceeded")
    }
}

impl std::error::Error for RateLimitExceeded {}

/// The request is malformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    /// The mistake, as text for the caller.
    pub message: String,
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Validation {}

/// A system behind the agent answered with an error status.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpstreamStatus {
    /// The HTTP status.
    pub status: u16,
    /// Its `Retry-After` in seconds.
    pub retry_after: Option<f64>,
}

impl fmt::Display for UpstreamStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "upstream answered with status {}", self.status)
    }
}

impl std::error::Error for UpstreamStatus {}
