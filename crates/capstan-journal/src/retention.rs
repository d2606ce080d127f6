//! How long things are kept, and what an expiry removed.

use std::time::Duration;

use capstan_protocol::Timestamp;

/// What [`Store::expire`](crate::Store::expire) may delete. Runs that run or wait are never touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Closed streams go this long after their end, sessions this long after they were last used.
    pub max_age: Duration,
    /// Above this many bytes of frames and bodies the oldest closed streams go sooner.
    pub max_bytes: Option<u64>,
    /// Claims outlive their stream by this, so that a late duplicate does not start a second run.
    pub claim_age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        // A week is long enough to look into last week's failures. A day for claims is the contract's.
        Self { max_age: 7 * DAY, max_bytes: None, claim_age: DAY }
    }
}

/// What an expiry removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expired {
    /// Streams with their frames, bodies and records.
    pub streams: u64,
    /// Claims whose stream went long ago.
    pub claims: u64,
    /// Sessions with their turns.
    pub sessions: u64,
    /// Bytes of the removed streams' frames and bodies.
    pub bytes: u64,
}

/// Whether something of time `at` is at least `age` old.
pub(crate) fn is_past(at: Timestamp, age: Duration, now: Timestamp) -> bool {
    let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
    at.as_micros().saturating_add(age) <= now.as_micros()
}
