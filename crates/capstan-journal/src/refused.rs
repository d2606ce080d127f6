//! Why a claim is refused.

use std::time::Duration;

/// What a claim asks too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Over {
    /// They come too fast.
    Rate,
    /// Too many runs are under way.
    Running,
    /// Too many runs wait.
    Waiting,
    /// There are too many sessions.
    Sessions,
    /// The session has too many turns.
    Messages,
    /// The session is too large.
    SessionBytes,
    /// Too much is kept of the tenant.
    Bytes,
    /// The tokens of this minute are used up.
    TokensPerMinute,
    /// The tokens of this day are used up.
    TokensPerDay,
}

/// Why a claim was refused. Nothing of it is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refused {
    /// What it asked too much of.
    pub over: Over,
    /// When it may be tried again, where that is known.
    pub wait: Option<Duration>,
}
