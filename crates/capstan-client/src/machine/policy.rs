//! How often and how long: the numbers of a call.

use std::time::Duration;

use capstan_protocol::{Backoff, Profile};

/// The limits of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Interruptions since the last new packet; also TRANSIENT errors in one call.
    pub max_retries: u32,
    /// The longest wait that is slept through. A longer one fails at once, so that a UI can count
    /// down.
    pub max_wait: Duration,
    /// While resuming, continue beyond `max_retries` until nothing new came for this long, because
    /// a deploy takes time.
    pub resume_patience: Duration,
    /// The longest time of the whole call, from its first poll on.
    pub deadline: Option<Duration>,
    /// The waits between tries.
    pub backoff: Backoff,
    /// A gap in seq is an error rather than a notice.
    pub is_strict: bool,
    /// The profile of packets.
    pub profile: Profile,
    /// The call watches a run that another client started: 204 means that the run is over.
    pub is_viewer: bool,
    /// Errors are packets like all others, and the call continues to CLOSE.
    pub is_observer: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_retries: 3,
            max_wait: Duration::from_secs(30),
            resume_patience: Duration::ZERO,
            deadline: None,
            backoff: Backoff::default(),
            is_strict: false,
            profile: Profile::V1,
            is_viewer: false,
            is_observer: false,
        }
    }
}

impl Policy {
    /// A server's wait within bounds.
    pub(super) fn clamp(&self, wait: Duration) -> Duration {
        wait.min(self.max_wait).max(self.backoff.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_wait_is_never_short_enough_to_hammer() {
        let policy = Policy { max_wait: Duration::ZERO, ..Policy::default() };
        assert_eq!(policy.clamp(Duration::ZERO), policy.backoff.least);
    }
}
