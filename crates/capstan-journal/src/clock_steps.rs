//! Records when the system clock was set, so that retention can use the time that really passed.

use std::time::Duration;

use capstan_protocol::Timestamp;

/// The most steps that are remembered. A clock that is set more often cannot be trusted at all.
const KEPT: usize = 1024;

/// The steps of the clock, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClockSteps(Vec<ClockStep>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClockStep {
    from: Timestamp,
    to: Timestamp,
}

impl ClockSteps {
    /// Adds a step: the clock changed from `from` to `to`.
    pub fn add(&mut self, from: Timestamp, to: Timestamp) {
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push(ClockStep { from, to });
    }

    /// The reading of the clock `age` before `now`. Anything with an earlier time is at least that
    /// old. If the clock was set back, two moments have the same reading, and the later one counts.
    pub fn before(&self, now: Timestamp, age: Duration) -> Timestamp {
        let mut left = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
        let (mut end, mut least) = (now.as_micros(), i64::MAX);
        for step in self.0.iter().rev() {
            let passed = end.saturating_sub(step.to.as_micros()).max(0);
            if left <= passed {
                break;
            }
            left -= passed;
            least = least.min(step.to.as_micros().saturating_sub(1));
            end = step.from.as_micros();
        }
        Timestamp::from_micros(end.saturating_sub(left).min(least))
    }

    /// Whether something with the time `at` is at least `age` old.
    pub fn is_past(&self, at: Timestamp, age: Duration, now: Timestamp) -> bool {
        at <= self.before(now, age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;
    const DAY: u64 = 24 * HOUR;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_micros(i64::try_from(seconds).unwrap() * 1_000_000)
    }

    fn steps(all: &[(u64, u64)]) -> ClockSteps {
        let mut steps = ClockSteps::default();
        all.iter().for_each(|(from, to)| steps.add(at(*from), at(*to)));
        steps
    }

    fn is_past(steps: &ClockSteps, stamped: u64, age: u64, now: u64) -> bool {
        steps.is_past(at(stamped), Duration::from_secs(age), at(now))
    }

    #[test]
    fn age_is_exact_without_clock_steps() {
        let none = ClockSteps::default();
        assert!(is_past(&none, 100, 10, 110) && !is_past(&none, 101, 10, 110));
        assert!(!none.is_past(at(0), Duration::MAX, at(DAY)), "an age beyond all clocks");
    }

    #[test]
    fn step_forward_changes_no_age() {
        let (before, after) = (1000 * DAY, 1030 * DAY);
        let set = steps(&[(before, after)]);
        assert!(!is_past(&set, before - 1, HOUR, after + 60), "a stream of seconds");
        assert!(!is_past(&set, before - HOUR + 61, HOUR, after + 60));
        assert!(
            is_past(&set, before - HOUR + 60, HOUR, after + 60),
            "what was old before it was set"
        );
        // After the step only the new time counts.
        assert!(
            is_past(&set, after, HOUR, after + HOUR)
                && !is_past(&set, after + 1, HOUR, after + HOUR)
        );
    }

    #[test]
    fn step_back_makes_nothing_older() {
        let (before, after) = (1000 * DAY, 999 * DAY);
        let set = steps(&[(before, after)]);
        assert!(
            !is_past(&set, after + 1, HOUR, after + 60),
            "a stream of seconds, by the new time"
        );
        assert!(
            !is_past(&set, before - 1, HOUR, after + 60),
            "a stream of seconds, by the old one"
        );
        assert!(is_past(&set, after - HOUR, HOUR, after + 60));
        assert!(is_past(&set, after + 1, HOUR, after + HOUR + 1));
    }

    #[test]
    fn temporary_clock_error_does_no_harm() {
        let now = 1000 * DAY;
        // Eight days back for ten seconds.
        let set = steps(&[(now, now - 8 * DAY), (now - 8 * DAY + 10, now + 10)]);
        assert!(!is_past(&set, now - 8 * DAY + 5, 7 * DAY, now + 70), "it was closed a minute ago");
        assert!(is_past(&set, now - 9 * DAY, 7 * DAY, now + 70));
        // A month ahead for ten seconds.
        let set = steps(&[(now, now + 30 * DAY), (now + 30 * DAY + 10, now + 10)]);
        assert!(!is_past(&set, now - 60, 7 * DAY, now + 70));
        assert!(is_past(&set, now - 7 * DAY, 7 * DAY, now + 70));
    }

    #[test]
    fn number_of_steps_is_limited() {
        let mut set = ClockSteps::default();
        (0..2000).for_each(|n| set.add(at(n), at(n + 1)));
        assert_eq!(set.0.len(), KEPT);
    }
}
