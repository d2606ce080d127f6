//! The time that is waited for, and the time of day. A test moves both by hand, and so waits for
//! nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_protocol::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// What is timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timer {
    /// Another try: the next attempt of a run, the next call of an upstream.
    Again,
    /// The limit of a connection. HTTP clients keep it themselves.
    Connect,
    /// The limit until an answer begins.
    FirstToken,
    /// The limit between two pieces of it.
    Idle,
    /// The limit of a whole call.
    Total,
    /// The patience with a first call before a second is made beside it.
    Hedge,
    /// What may still come after the end of an answer, and a process that may still end by itself.
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

/// What a test knows and decides.
#[derive(Debug, Default)]
struct Hand {
    asked: Mutex<Vec<(Timer, Duration)>>,
    strikes: Mutex<HashMap<Timer, Arc<Semaphore>>>,
    /// By how many microseconds the time of day was set.
    set_by: AtomicI64,
    /// How many microseconds have passed beside those that did.
    passed: AtomicU64,
}

impl Clock {
    /// A clock for tests, moved by hand: nobody waits to try again, and all other waits last until
    /// they are [struck](Self::strike). Every wait is [noted](Self::asked).
    pub fn by_hand() -> Self {
        Self { hand: Some(Arc::default()) }
    }

    /// The time of day. It may be set, forward and back: how long something takes is not told by
    /// it.
    pub fn now(&self) -> Timestamp {
        let now = Timestamp::now();
        match &self.hand {
            None => now,
            Some(hand) => {
                Timestamp::from_micros(now.as_micros() + hand.set_by.load(Ordering::Relaxed))
            }
        }
    }

    /// Sets the time of day by so many seconds, forward or back. That of real time is the
    /// machine's.
    pub fn set_by(&self, seconds: i64) {
        if let Some(hand) = &self.hand {
            hand.set_by.fetch_add(seconds * 1_000_000, Ordering::Relaxed);
        }
    }

    /// A point in time from which others are told apart; it never goes back.
    pub fn instant(&self) -> Instant {
        let passed = self.hand.as_ref().map_or(0, |hand| hand.passed.load(Ordering::Relaxed));
        Instant::now() + Duration::from_micros(passed)
    }

    /// Lets time pass for whoever asks what time it is; a wait is [struck](Self::strike). Real time
    /// goes its own way.
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

    /// What comes in time, if anything does.
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

    /// Ends one wait of this kind: one that goes on, or else the next. Real time goes its own way.
    pub fn strike(&self, timer: Timer) {
        if let Some(hand) = &self.hand {
            hand.strikes_of(timer).add_permits(1);
        }
    }

    /// How long each wait of this kind was to be, in order; of real time nothing is known.
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
