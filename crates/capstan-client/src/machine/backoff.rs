//! How often and how long: the numbers of a call.

use std::time::Duration;

use capstan_protocol::Profile;

/// What a call puts up with.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Interruptions since the last new packet; also TRANSIENT errors in one call.
    pub max_retries: u32,
    /// The longest wait that is slept through. A longer one fails at once, so that a UI can count down.
    pub max_wait: Duration,
    /// While resuming, go on beyond `max_retries` until nothing new came for this long: a deploy takes its time.
    pub resume_patience: Duration,
    /// The longest that the whole call may take, from its first poll on.
    pub deadline: Option<Duration>,
    /// The waits between tries.
    pub backoff: Backoff,
    /// A gap in seq is an error rather than a notice.
    pub is_strict: bool,
    /// How packets are spelled.
    pub profile: Profile,
    /// The call watches a run that is somebody else's: 204 means that it is over.
    pub is_viewer: bool,
    /// Errors are packets like all others, and the call goes on to CLOSE.
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

/// Waits that double.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    /// The first.
    pub first: Duration,
    /// The longest.
    pub max: Duration,
    /// No wait is shorter, whatever a server asks for: a client must not hammer.
    pub least: Duration,
    /// Spread each wait over its upper half, so that a thousand clients do not come back as one.
    pub jitter: bool,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            max: Duration::from_secs(30),
            least: Duration::from_millis(100),
            jitter: true,
        }
    }
}

impl Backoff {
    /// The wait before the try that follows `step` others.
    pub(crate) fn delay(&self, step: u32, random: &mut fastrand::Rng) -> Duration {
        let whole = self.first.saturating_mul(2_u32.saturating_pow(step)).min(self.max);
        let share = if self.jitter { 0.5 + random.f64() / 2.0 } else { 1.0 };
        whole.mul_f64(share).max(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_stay_in_the_upper_half() {
        let mut random = fastrand::Rng::with_seed(1);
        let plain = Backoff { jitter: false, ..Backoff::default() };
        let delays: Vec<_> = (0..8).map(|step| plain.delay(step, &mut random).as_millis()).collect();
        assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        for step in 0..100 {
            let (whole, delay) =
                (plain.delay(step, &mut random), Backoff::default().delay(step, &mut random));
            assert!(whole / 2 <= delay && delay <= whole);
        }
    }

    #[test]
    fn no_wait_is_short_enough_to_hammer() {
        let policy = Policy { max_wait: Duration::ZERO, ..Policy::default() };
        assert_eq!(policy.clamp(Duration::ZERO), Duration::from_millis(100));
        let none = Backoff { first: Duration::ZERO, max: Duration::ZERO, ..Backoff::default() };
        assert_eq!(none.delay(0, &mut fastrand::Rng::with_seed(1)), Duration::from_millis(100));
    }
}
