//! Circuit breakers: an upstream that fails too often is not called for a while. Then one probe
//! call at a time tests it.
//!
//! A breaker counts over all runs of this process. Gateways with a shared journal tell each other
//! when a breaker opens or closes ([`Breakers`]). They do not share single calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_agent::BreakerState;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The breakers of upstreams, by name.
pub(crate) trait Breaker: Send + Sync {
    /// The state of an upstream's breaker.
    fn state(&self, upstream: &str, now: Instant) -> BreakerState;

    /// Requests a call. While the breaker is half-open, only the first request is admitted, as the
    /// probe.
    fn admit(&self, upstream: &str, now: Instant) -> bool;

    /// Reports a successful call.
    fn succeeded(&self, upstream: &str);

    /// Reports a failure of the upstream.
    fn failed(&self, upstream: &str, policy: Policy, now: Instant);

    /// Reports a call that ended without a result.
    fn abandoned(&self, upstream: &str);
}

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BreakerConfig {
    /// The number of failures in a row that open it.
    pub(crate) failures: u32,
    /// How long it stays open. The time doubles after each failed probe, up to [`LONGEST`].
    pub(crate) seconds: f64,
}

/// The longest time that a breaker stays open.
const LONGEST: Duration = Duration::from_secs(120);
/// A probe without a result counts as lost after this time.
const PROBE_LIMIT: Duration = Duration::from_secs(60);

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { failures: 5, seconds: 10.0 }
    }
}

/// The checked form of [`BreakerConfig`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    failures: u32,
    pause: Duration,
}

impl Policy {
    /// `None` if the number of seconds is invalid.
    pub(crate) fn new(config: BreakerConfig) -> Option<Self> {
        let pause = Duration::try_from_secs_f64(config.seconds).ok()?;
        Some(Self { failures: config.failures.max(1), pause })
    }
}

/// The report that a breaker has opened or closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerChange {
    /// The name of the upstream's agent.
    pub upstream: String,
    /// How often in a row it has opened; 0 if it is closed.
    pub opened: u32,
    /// How long it stays open from now.
    pub left: Duration,
}

/// A handle on the breakers of this process's routes, for code that shares them with other
/// processes.
#[derive(Clone, Default)]
pub struct Breakers(pub(super) Arc<LocalBreaker>);

/// The capacity of the queue of changes. Further changes are dropped: other gateways notice
/// failures themselves.
const CHANGES: usize = 256;

impl Breakers {
    /// Returns a receiver of changes from now on. It replaces an earlier one.
    pub fn changes(&self) -> mpsc::Receiver<BreakerChange> {
        let (reports, changes) = mpsc::channel(CHANGES);
        self.0.lock().reports = Some(reports);
        changes
    }

    /// Takes a change that another process reported at `now`.
    pub fn apply(&self, change: &BreakerChange, now: Instant) {
        self.0.apply(change, now);
    }
}

/// The breakers of one process.
#[derive(Default)]
pub(crate) struct LocalBreaker(Mutex<Known>);

#[derive(Default)]
struct Known {
    upstreams: HashMap<String, Upstream>,
    reports: Option<mpsc::Sender<BreakerChange>>,
}

impl Known {
    fn report(&self, upstream: &str, opened: u32, left: Duration) {
        if let Some(reports) = &self.reports {
            let _ = reports.try_send(BreakerChange { upstream: upstream.to_owned(), opened, left });
        }
    }
}

#[derive(Default)]
struct Upstream {
    /// The failures in a row.
    failures: u32,
    /// How often it opened in a row.
    opened: u32,
    open_until: Option<Instant>,
    probed_at: Option<Instant>,
}

impl LocalBreaker {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, change: &BreakerChange, now: Instant) {
        let mut known = self.lock();
        if change.opened == 0 {
            known.upstreams.remove(&change.upstream);
            return;
        }
        // An expired report about an unknown upstream changes nothing.
        if change.left.is_zero() && !known.upstreams.contains_key(&change.upstream) {
            return;
        }
        let upstream = known.upstreams.entry(change.upstream.clone()).or_default();
        (upstream.opened, upstream.open_until, upstream.probed_at) =
            (change.opened, Some(now + change.left.min(LONGEST)), None);
    }
}

impl Upstream {
    fn state(&self, now: Instant) -> BreakerState {
        match self.open_until {
            None => BreakerState::Closed,
            Some(until) if now < until => BreakerState::Open,
            Some(_) => BreakerState::HalfOpen,
        }
    }

    fn is_probed(&self, now: Instant) -> bool {
        self.probed_at.is_some_and(|at| now.saturating_duration_since(at) < PROBE_LIMIT)
    }
}

impl Breaker for LocalBreaker {
    fn state(&self, upstream: &str, now: Instant) -> BreakerState {
        self.lock()
            .upstreams
            .get(upstream)
            .map_or(BreakerState::Closed, |upstream| upstream.state(now))
    }

    fn admit(&self, upstream: &str, now: Instant) -> bool {
        let mut known = self.lock();
        let Some(upstream) = known.upstreams.get_mut(upstream) else { return true };
        match upstream.state(now) {
            BreakerState::Closed => true,
            BreakerState::Open => false,
            BreakerState::HalfOpen if upstream.is_probed(now) => false,
            BreakerState::HalfOpen => {
                upstream.probed_at = Some(now);
                true
            }
        }
    }

    fn succeeded(&self, upstream: &str) {
        let mut known = self.lock();
        if known.upstreams.remove(upstream).is_some_and(|was| was.open_until.is_some()) {
            known.report(upstream, 0, Duration::ZERO);
        }
    }

    fn failed(&self, name: &str, policy: Policy, now: Instant) {
        let mut known = self.lock();
        let upstream = known.upstreams.entry(name.to_owned()).or_default();
        upstream.failures = upstream.failures.saturating_add(1);
        upstream.probed_at = None;
        let opens = match upstream.state(now) {
            BreakerState::Closed => upstream.failures >= policy.failures,
            BreakerState::HalfOpen => true,
            // It was called although its breaker is open, because no other member was left.
            BreakerState::Open => false,
        };
        if opens {
            let longer = policy.pause.saturating_mul(1 << upstream.opened.min(10));
            let pause = longer.min(LONGEST.max(policy.pause));
            upstream.open_until = Some(now + pause);
            upstream.opened += 1;
            let opened = upstream.opened;
            known.report(name, opened, pause);
        }
    }

    fn abandoned(&self, upstream: &str) {
        if let Some(upstream) = self.lock().upstreams.get_mut(upstream) {
            upstream.probed_at = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn of(failures: u32) -> (LocalBreaker, Policy) {
        let policy = Policy::new(BreakerConfig { failures, seconds: 10.0 });
        (LocalBreaker::default(), policy.unwrap())
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_with_a_probe_that_goes_well() {
        let (breaker, policy) = of(3);
        let now = Instant::now();
        breaker.failed("a", policy, now);
        breaker.failed("a", policy, now);
        breaker.succeeded("a");
        breaker.failed("a", policy, now);
        breaker.failed("a", policy, now);
        assert!(breaker.admit("a", now), "not in a row");
        breaker.failed("a", policy, now);
        assert_eq!(breaker.state("a", now), BreakerState::Open);
        assert!(!breaker.admit("a", now + SECOND * 9) && breaker.admit("b", now));
        let later = now + SECOND * 10;
        assert_eq!(breaker.state("a", later), BreakerState::HalfOpen);
        assert!(breaker.admit("a", later) && !breaker.admit("a", later), "one probe at a time");
        breaker.succeeded("a");
        assert_eq!(breaker.state("a", later), BreakerState::Closed);
    }

    #[test]
    fn only_state_changes_are_reported_and_others_reports_apply() {
        let (policy, now) = (of(2).1, Instant::now());
        let (here, there) = (Breakers::default(), Breakers::default());
        let (mut changes, mut echo) = (here.changes(), there.changes());
        here.0.succeeded("a");
        here.0.failed("a", policy, now);
        assert!(changes.try_recv().is_err(), "a call that fails is no change");
        here.0.failed("a", policy, now);
        let opened = changes.try_recv().unwrap();
        assert_eq!((opened.opened, opened.left), (1, SECOND * 10));
        there.apply(&opened, now);
        assert_eq!(there.0.state("a", now + SECOND * 9), BreakerState::Open);
        let later = now + SECOND * 10;
        assert!(there.0.admit("a", later) && !there.0.admit("a", later), "one probe at a time");
        there.0.failed("a", policy, later);
        let longer = echo.try_recv().unwrap();
        assert_eq!((longer.opened, longer.left), (2, SECOND * 20), "it goes on from what was told");
        here.apply(&longer, later);
        assert_eq!(here.0.state("a", later + SECOND * 19), BreakerState::Open);
        assert!(here.0.admit("a", later + SECOND * 20));
        here.0.succeeded("a");
        let closed = changes.try_recv().unwrap();
        there.apply(&closed, later);
        assert_eq!((closed.opened, there.0.state("a", later)), (0, BreakerState::Closed));
        there
            .apply(&BreakerChange { upstream: "b".into(), opened: 3, left: Duration::ZERO }, later);
        assert_eq!(there.0.state("b", later), BreakerState::Closed, "it is over");
        assert!(
            changes.try_recv().is_err() && echo.try_recv().is_err(),
            "what was heard is not told"
        );
    }

    #[test]
    fn a_probe_that_fails_opens_it_for_twice_as_long_and_one_that_is_given_up_lets_another_be_made()
    {
        let (breaker, policy) = of(1);
        let now = Instant::now();
        breaker.failed("a", policy, now);
        let later = now + SECOND * 10;
        assert!(breaker.admit("a", later));
        breaker.abandoned("a");
        assert!(breaker.admit("a", later));
        breaker.failed("a", policy, later);
        assert_eq!(breaker.state("a", later + SECOND * 19), BreakerState::Open);
        assert!(breaker.admit("a", later + SECOND * 20));
        assert!(
            breaker.admit("a", later + SECOND * 20 + PROBE_LIMIT),
            "a probe that nobody told of"
        );
    }
}
