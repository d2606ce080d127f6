//! Exponential backoff. The caller passes the random number, so the result is a pure function.

use std::time::Duration;

/// The shortest wait, except in tests: no client may flood a server.
const LEAST_WAIT: Duration = Duration::from_millis(100);

/// Waits that double.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first.
    pub first: Duration,
    /// The longest.
    pub max: Duration,
    /// No wait is shorter.
    pub least: Duration,
    /// Spread each wait over its upper half, so that a thousand clients do not come back as one.
    pub jitter: bool,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Backoff {
    /// Half a second, doubling up to half a minute, spread.
    pub const DEFAULT: Self = Self {
        first: Duration::from_millis(500),
        max: Duration::from_secs(30),
        least: LEAST_WAIT,
        jitter: true,
    };

    /// The wait before the try that follows `step` others; `chance` is a random number from 0 to 1.
    ///
    /// ```
    /// use capstan_protocol::Backoff;
    /// let wait = |step| Backoff::DEFAULT.delay(step, 1.0).as_millis();
    /// assert_eq!([wait(0), wait(1), wait(2)], [500, 1000, 2000]);
    /// ```
    pub fn delay(&self, step: u32, chance: f64) -> Duration {
        let whole = self.first.saturating_mul(2_u32.saturating_pow(step)).min(self.max);
        let share = if self.jitter { 0.5 + chance.clamp(0.0, 1.0) / 2.0 } else { 1.0 };
        whole.mul_f64(share).max(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_stay_in_the_upper_half() {
        let plain = Backoff { jitter: false, ..Backoff::DEFAULT };
        let delays: Vec<_> = (0..8).map(|step| plain.delay(step, 0.5).as_millis()).collect();
        assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        for step in 0..100 {
            let (least, most) =
                (Backoff::DEFAULT.delay(step, 0.0), Backoff::DEFAULT.delay(step, 1.0));
            assert_eq!((least * 2, most), (plain.delay(step, 0.5), plain.delay(step, 0.5)));
        }
    }

    #[test]
    fn no_wait_is_short_enough_to_hammer() {
        let none = Backoff { first: Duration::ZERO, max: Duration::ZERO, ..Backoff::DEFAULT };
        assert_eq!(none.delay(0, 0.0), LEAST_WAIT);
    }
}
