//! The time that is waited for, and the time of day. A test moves both by hand, and so waits for
//! nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_protocol::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The kinds of timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timer {
    /// Another try: the next attempt of a run, the next call of an upstream.
    Again,
    /// The limit of a connection. HTTP clients enforce it themselves.
    Connect,
    /// The limit until an answer begins.
    FirstToken,
    /// The limit between two pieces of it.
    Idle,
    /// The same while a model thinks and shows nothing of it.
    Thinking,
    /// The limit of a complete call.
    Total,
    /// The wait before a second call starts beside a slow first one.
    Hedge,
    /// The wait for the rest after the end of an answer, and for a process to exit.
    Grace,
}

impl Timer {
    /// Its name on the wire and in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Again => "again",
            Self::Connect => "connect",
            Self::FirstToken => "first_token",
            Self::Idle => "idle",
            Self::Thinking => "thinking",
            Self::Total => "total",
            Self::Hedge => "hedge",
            Self::Grace => "grace",
        }
    }
}

/// Real time, or a test's. Clones are the same clock.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    hand: Option<Arc<Hand>>,
}

/// The state of a manual clock.
#[derive(Debug, Default)]
struct Hand {
    asked: Mutex<Vec<(Timer, Duration)>>,
    strikes: Mutex<HashMap<Timer, Arc<Semaphore>>>,
    /// By how many microseconds the time of day was set.
    set_by: AtomicI64,
    /// The microseconds that a test added to the real time.
    passed: AtomicU64,
}

impl Clock {
    /// A manual clock for tests. Backoffs end at once; other waits last until
    /// [`strike`](Self::strike). [`asked`](Self::asked) lists every wait.
    pub fn by_hand() -> Self {
        Self { hand: Some(Arc::default()) }
    }

    /// The time of day. It may jump forward and back, so it does not measure durations.
    pub fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        match &self.hand {
            None => now,
            Some(hand) => {
                Timestamp::from_micros(now.as_micros() + hand.set_by.load(Ordering::Relaxed))
            }
        }
    }

    /// Sets the time of day by so many seconds, forward or back. A real clock ignores this.
    pub fn set_by(&self, seconds: i64) {
        if let Some(hand) = &self.hand {
            hand.set_by.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
        }
    }

    /// A monotonic point in time.
    pub fn instant(&self) -> Instant {
        let passed = self.hand.as_ref().map_or(0, |hand| hand.passed.load(Ordering::Relaxed));
        Instant::now() + Duration::from_micros(passed)
    }

    /// Advances the time that [`instant`](Self::instant) returns; [`strike`](Self::strike) ends
    /// waits. A real clock ignores this.
    pub fn pass(&self, time: Duration) {
        if let Some(hand) = &self.hand {
            hand.passed
                .fetch_add(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Returns when the time has passed.
    pub async fn sleep(&self, timer: Timer, time: Duration) {
        match &self.hand {
            None => tokio::time::sleep(time).await,
            Some(hand) => hand.sleep(timer, time).await,
        }
    }

    /// Returns the result of a future, if it comes in time.
    pub async fn within<T>(
        &self,
        timer: Timer,
        time: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.sleep(timer, time) => None,
        }
    }

    /// Ends one wait of this kind: a current one, or else the next. A real clock ignores this.
    pub fn strike(&self, timer: Timer) {
        if let Some(hand) = &self.hand {
            hand.strikes_of(timer).add_permits(1);
        }
    }

    /// The durations of all waits of this kind, in order; empty for a real clock.
    pub fn asked(&self, timer: Timer) -> Vec<Duration> {
        let Some(hand) = &self.hand else { return Vec::new() };
        let asked = hand.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|(kind, _)| *kind == timer).map(|(_, time)| *time).collect()
    }
}

impl Hand {
    async fn sleep(&self, timer: Timer, time: Duration) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push((timer, time));
        if timer == Timer::Again {
            return;
        }
        // It is never closed.
        if let Ok(strike) = self.strikes_of(timer).acquire_owned().await {
            strike.forget();
        }
    }

    fn strikes_of(&self, timer: Timer) -> Arc<Semaphore> {
        let mut strikes = self.strikes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(strikes.entry(timer).or_insert_with(|| Arc::new(Semaphore::new(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn real_time_passes() {
        let (clock, began) = (Clock::default(), tokio::time::Instant::now());
        clock.sleep(Timer::Idle, HOUR).await;
        assert_eq!(began.elapsed(), HOUR);
        assert_eq!(clock.within(Timer::Idle, HOUR, std::future::pending::<()>()).await, None);
        assert_eq!(clock.within(Timer::Idle, Duration::ZERO, std::future::ready(1)).await, Some(1));
    }

    #[tokio::test]
    async fn by_hand_a_try_is_not_waited_for_and_a_limit_lasts_until_it_is_struck() {
        let clock = Clock::by_hand();
        clock.sleep(Timer::Again, HOUR).await;
        clock.strike(Timer::Total);
        let first = clock.within(Timer::Idle, HOUR, clock.sleep(Timer::Total, HOUR)).await;
        assert_eq!(first, Some(()), "only what was struck is over");
        clock.strike(Timer::Idle);
        let second = clock.within(Timer::Idle, HOUR, clock.sleep(Timer::Total, HOUR)).await;
        assert_eq!(second, None, "a strike ends one wait");
        assert_eq!((clock.asked(Timer::Again), clock.asked(Timer::Grace)), (vec![HOUR], vec![]));
    }
}
