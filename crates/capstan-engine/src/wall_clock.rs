//! The time of day, with a record of steps. The system clock may be set while the server runs or
//! while it is down. All stored times come from here, so that retention can compute the time that
//! really passed between two of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_agent::Clock;
use capstan_journal::ClockSteps;
use capstan_protocol::Timestamp;

/// Smaller differences are drift or a small correction, not a step.
const DRIFT: Duration = Duration::from_secs(10);
/// If the journal's newest time is older than this at the start, either the server was down or the
/// clock was set. Nothing can tell the two apart.
const SILENCE: Duration = Duration::from_secs(3600);
/// How long the clock is distrusted then. A wrong clock is probably corrected within this time.
const DOUBT_PERIOD: Duration = Duration::from_secs(3600);

/// The time of day. It detects and counts steps of the system clock.
pub struct WallClock {
    clock: Clock,
    began: (Timestamp, Instant),
    watch: Mutex<Watch>,
}

/// The last reading of the clock, and the steps so far.
struct Watch {
    last: (Timestamp, Instant),
    steps: ClockSteps,
    /// How many steps this process has seen.
    count: u64,
    silence: Option<Silence>,
}

/// A gap without writes, or a step of the clock that looks like one.
struct Silence {
    from: Timestamp,
    to: Timestamp,
    doubted_until: Instant,
}

impl WallClock {
    /// Watches this clock.
    pub fn new(clock: Clock) -> Self {
        let now = (clock.now(), Instant::now());
        Self { clock, began: now, watch: Mutex::new(Watch::new(now)) }
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the clock was set while this process ran.
    pub fn step_count(&self) -> u64 {
        self.lock().count
    }

    /// The time of day, for a record.
    pub fn now(&self) -> Timestamp {
        let now = self.clock.now();
        self.lock().update(now, Instant::now());
        now
    }

    /// The time of day, computed from the start of the process: later steps of the clock do not
    /// change it.
    pub fn unset(&self) -> Timestamp {
        later(self.began.0, self.began.1.elapsed())
    }

    /// Compares the clock with the newest time in the journal, at the start.
    pub(crate) fn compare(&self, newest: Option<Timestamp>) {
        if let Some(newest) = newest {
            self.lock().compare(newest);
        }
    }

    /// The steps of the clock, for retention.
    pub fn steps(&self) -> ClockSteps {
        let now = (self.clock.now(), Instant::now());
        let mut watch = self.lock();
        watch.update(now.0, now.1);
        watch.effective_steps(now.1)
    }
}

impl Watch {
    fn new(now: (Timestamp, Instant)) -> Self {
        Self { last: now, steps: ClockSteps::default(), count: 0, silence: None }
    }

    fn update(&mut self, now: Timestamp, at: Instant) {
        // Two threads may arrive here in another order than they read the clock.
        let expected = later(self.last.0, at.saturating_duration_since(self.last.1));
        let step = now.as_micros() - expected.as_micros();
        self.last = (now, at.max(self.last.1));
        if Duration::from_micros(step.unsigned_abs()) <= DRIFT {
            return;
        }
        // Now it is unknown whether the gap was real, so it counts as a step.
        if let Some(silence) = self.silence.take() {
            self.steps.add(silence.from, silence.to);
        }
        self.steps.add(expected, now);
        self.count += 1;
        tracing::warn!(
            seconds = step as f64 / 1e6,
            "the clock was set; retention keeps to the time that really passed and deletes \
             nothing early"
        );
    }

    fn compare(&mut self, newest: Timestamp) {
        let (now, at) = self.last;
        let silent = now.as_micros() - newest.as_micros();
        let hours = silent as f64 / 3.6e9;
        if silent < -(DRIFT.as_micros() as i64) {
            tracing::warn!(
                hours = -hours,
                "the clock is behind the newest time in the journal: one of them was wrong"
            );
        } else if silent > SILENCE.as_micros() as i64 {
            tracing::warn!(
                hours,
                "the clock is far ahead of the newest time in the journal; unless it is set, \
                 retention believes it in an hour"
            );
            self.silence =
                Some(Silence { from: newest, to: now, doubted_until: at + DOUBT_PERIOD });
        }
    }

    /// The steps, with a silence that is still doubted as one of them.
    fn effective_steps(&mut self, at: Instant) -> ClockSteps {
        match &self.silence {
            Some(silence) if at < silence.doubted_until => {
                // It is the first of all: every later one ends the doubt.
                let mut steps = ClockSteps::default();
                steps.add(silence.from, silence.to);
                steps
            }
            Some(_) => {
                self.silence = None;
                self.steps.clone()
            }
            None => self.steps.clone(),
        }
    }
}

/// A time that lies so much later.
pub(crate) fn later(time: Timestamp, by: Duration) -> Timestamp {
    let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(time.as_micros().saturating_add(by))
}

/// How much later `to` is than `from`; nothing if it is not.
pub fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::from_micros(
        u64::try_from(to.as_micros().saturating_sub(from.as_micros())).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn at(days: u64) -> Timestamp {
        later(Timestamp::from_micros(0), days.try_into().map(|days: u32| DAY * days).unwrap())
    }

    fn is_past(watch: &mut Watch, stamped: Timestamp, age: Duration) -> bool {
        let (now, at) = watch.last;
        watch.effective_steps(at).is_past(stamped, age, now)
    }

    #[test]
    fn a_clock_that_drifts_was_not_set_and_one_that_jumps_was() {
        let began = Instant::now();
        let mut watch = Watch::new((at(1000), began));
        for minute in 1..1000 {
            // Nine seconds too many, each minute.
            watch.update(
                later(at(1000), (MINUTE + Duration::from_secs(9)) * minute),
                began + MINUTE * minute,
            );
        }
        assert_eq!(watch.count, 0);
        let (now, instant) = watch.last;
        watch.update(later(now, DAY * 8), instant + MINUTE);
        assert_eq!(watch.count, 1);
        assert!(!is_past(&mut watch, now, DAY), "a stream of seconds");
        assert!(is_past(&mut watch, at(999), DAY), "an old one");
        watch.update(now, instant + MINUTE * 2);
        assert_eq!(watch.count, 2, "and back");
        assert!(!is_past(&mut watch, now, DAY) && !is_past(&mut watch, later(now, DAY * 8), DAY));
    }

    #[test]
    fn a_machine_that_was_off_for_a_month_is_believed_after_an_hour() {
        let began = Instant::now();
        let mut watch = Watch::new((at(1030), began));
        watch.compare(at(1000));
        assert!(!is_past(&mut watch, at(999), DAY * 7) && is_past(&mut watch, at(993), DAY * 7));
        watch.update(later(at(1030), MINUTE * 59), began + MINUTE * 59);
        assert!(!is_past(&mut watch, at(999), DAY * 7));
        watch.update(later(at(1030), MINUTE * 60), began + MINUTE * 60);
        assert!(is_past(&mut watch, at(1000), DAY * 7));
        assert!(!is_past(&mut watch, at(1030), DAY * 7));
        assert_eq!(watch.count, 0);
    }

    #[test]
    fn a_clock_that_was_a_month_ahead_at_the_start_and_is_corrected_does_no_harm() {
        let began = Instant::now();
        let mut watch = Watch::new((at(1030), began));
        watch.compare(at(1000));
        watch.update(later(at(1000), MINUTE), began + MINUTE);
        watch.update(later(at(1000), MINUTE * 90), began + MINUTE * 90);
        assert!(!is_past(&mut watch, at(999), DAY * 7), "after the hour as well");
        assert!(is_past(&mut watch, at(993), DAY * 7));
    }

    #[test]
    fn a_clock_that_is_behind_the_journal_keeps_everything() {
        let mut watch = Watch::new((at(1000), Instant::now()));
        watch.compare(at(1030));
        for stamped in [994, 1000, 1030] {
            assert!(!is_past(&mut watch, at(stamped), DAY * 7));
        }
        assert!(is_past(&mut watch, at(993), DAY * 7));
    }
}
