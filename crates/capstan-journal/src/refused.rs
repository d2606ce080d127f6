//! Refused claims.

use std::time::Duration;

/// The limit that a claim exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Over {
    /// The rate of new runs.
    Rate,
    /// Concurrent runs.
    Running,
    /// Waiting runs.
    Waiting,
    /// Sessions.
    Sessions,
    /// Turns of the session.
    Messages,
    /// Bytes of the session.
    SessionBytes,
    /// Stored bytes of the tenant.
    Bytes,
    /// Tokens per minute.
    TokensPerMinute,
    /// Tokens per day.
    TokensPerDay,
}

/// A refused claim. The store has written nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The exceeded limit.
    pub over: Over,
    /// When a retry may succeed, if known.
    pub wait: Option<Duration>,
}
