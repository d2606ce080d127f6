//! How long things are kept, and what an expiry removed.

use std::collections::{BTreeMap, HashMap};
use std::ops::AddAssign;
use std::time::Duration;

use capstan_protocol::Timestamp;

use crate::ClockSteps;

/// What [`Store::expire`](crate::Store::expire) may delete. Runs that run or wait are never
/// touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Closed streams go this long after their end, sessions this long after they were last used.
    pub max_age: Duration,
    /// Above this many bytes of frames, bodies and turns the oldest closed streams and unused
    /// sessions go sooner.
    pub max_bytes: Option<u64>,
    /// Claims outlive their stream by this, so that a late duplicate does not start a second run.
    pub claim_age: Duration,
    /// Tenants whose streams and sessions are kept for another time.
    pub tenants: BTreeMap<String, TenantRetention>,
    /// When the clock was set: ages are counted in time that has passed.
    pub steps: ClockSteps,
}

/// What holds for one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantRetention {
    /// In place of what holds for all.
    pub max_age: Duration,
    /// Above this many bytes of its own the tenant's oldest closed streams and unused sessions go
    /// sooner. The limit for all holds as well.
    pub max_bytes: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        // A week is long enough to look into last week's failures. A day for claims is the
        // contract's.
        Self {
            max_age: 7 * DAY,
            max_bytes: None,
            claim_age: DAY,
            tenants: BTreeMap::new(),
            steps: ClockSteps::default(),
        }
    }
}

impl Retention {
    /// How long a tenant's streams and sessions are kept.
    pub fn max_age_of(&self, tenant: &str) -> Duration {
        self.tenants.get(tenant).map_or(self.max_age, |own| own.max_age)
    }

    /// What is younger need not be looked at.
    pub fn shortest_age(&self) -> Duration {
        self.tenants.values().map(|own| own.max_age).fold(self.max_age, Duration::min)
    }

    /// What is of this time or earlier was `age` ago.
    pub fn before(&self, now: Timestamp, age: Duration) -> Timestamp {
        self.steps.before(now, age)
    }

    /// Whether something of time `at` is at least `age` old.
    pub fn is_past(&self, at: Timestamp, age: Duration, now: Timestamp) -> bool {
        self.steps.is_past(at, age, now)
    }
}

/// What an expiry removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired {
    /// Streams with their frames, bodies and records.
    pub streams: u64,
    /// Claims whose stream went long ago.
    pub claims: u64,
    /// Sessions with their turns.
    pub sessions: u64,
    /// Bytes of the removed streams' frames and bodies, and of the removed sessions' turns.
    pub bytes: u64,
}

impl AddAssign for Expired {
    fn add_assign(&mut self, other: Self) {
        self.streams += other.streams;
        self.claims += other.claims;
        self.sessions += other.sessions;
        self.bytes += other.bytes;
    }
}

/// Decides what has to go, closed streams and unused sessions one by one, the oldest first: once
/// for all backends.
pub struct Judge<'a> {
    retention: &'a Retention,
    now: Timestamp,
    /// Bytes that are too many: in all, and by tenant.
    over: u64,
    over_by_tenant: HashMap<&'a str, u64>,
}

impl<'a> Judge<'a> {
    /// `sizes` are those of all streams and turns, open ones included, by tenant.
    pub fn new(retention: &'a Retention, now: Timestamp, sizes: &HashMap<String, u64>) -> Self {
        let over = |size: u64, max: Option<u64>| max.map_or(0, |max| size.saturating_sub(max));
        let own = |(tenant, own): (&'a String, &TenantRetention)| {
            let size = sizes.get(tenant).copied().unwrap_or(0);
            (tenant.as_str(), over(size, own.max_bytes))
        };
        let over_by_tenant =
            retention.tenants.iter().map(own).filter(|(_, over)| *over > 0).collect();
        let total = sizes.values().fold(0, |sum: u64, size| sum.saturating_add(*size));
        Self { retention, now, over: over(total, retention.max_bytes), over_by_tenant }
    }

    /// Whether this has to go; if so, its bytes are off the account. What takes nothing helps
    /// nobody by going.
    pub fn is_due(&mut self, tenant: &str, closed_at: Timestamp, size: u64) -> bool {
        let own = self.over_by_tenant.get_mut(tenant);
        let is_over = size > 0 && (self.over > 0 || own.as_ref().is_some_and(|over| **over > 0));
        if !is_over
            && !self.retention.is_past(closed_at, self.retention.max_age_of(tenant), self.now)
        {
            return false;
        }
        self.over = self.over.saturating_sub(size);
        if let Some(over) = own {
            *over = over.saturating_sub(size);
        }
        true
    }

    /// Whether nothing that was closed then or later can be due.
    pub fn is_done(&self, closed_at: Timestamp) -> bool {
        let is_over = self.over > 0 || self.over_by_tenant.values().any(|over| *over > 0);
        !is_over && !self.retention.is_past(closed_at, self.retention.shortest_age(), self.now)
    }
}
