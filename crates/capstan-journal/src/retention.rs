//! The rules of retention, and the result of applying them.

use std::collections::{BTreeMap, HashMap};
use std::ops::AddAssign;
use std::time::Duration;

use capstan_protocol::Timestamp;

use crate::ClockSteps;

/// The rules for [`Store::expire`](crate::Store::expire). Open runs are never deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Closed streams are deleted this long after their end, sessions this long after their last
    /// use.
    pub max_age: Duration,
    /// Above this size of frames, bodies and turns, the oldest closed streams and unused sessions
    /// are deleted earlier.
    pub max_bytes: Option<u64>,
    /// How long a claim outlives its stream, so that a late repeat does not start a second run.
    pub claim_age: Duration,
    /// Tenants with their own rules.
    pub tenants: BTreeMap<String, TenantRetention>,
    /// Steps of the clock, so that ages are real time.
    pub steps: ClockSteps,
}

/// The rules of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantRetention {
    /// Replaces the common age.
    pub max_age: Duration,
    /// Above this size of its own, the tenant's oldest closed streams and unused sessions are
    /// deleted earlier. The common limit applies too.
    pub max_bytes: Option<u64>,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        // A week is enough to analyse last week's failures. A day for claims is part of the
        // contract.
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
    /// The age at which a tenant's streams and sessions are deleted.
    pub fn max_age_of(&self, tenant: &str) -> Duration {
        self.tenants.get(tenant).map_or(self.max_age, |own| own.max_age)
    }

    /// The shortest age of all tenants. Younger entries need no check.
    pub fn shortest_age(&self) -> Duration {
        self.tenants.values().map(|own| own.max_age).fold(self.max_age, Duration::min)
    }

    /// The time that was `age` ago. Entries with this time or an earlier one are at least that old.
    pub fn before(&self, now: Timestamp, age: Duration) -> Timestamp {
        self.steps.before(now, age)
    }

    /// Whether something with the time `at` is at least `age` old.
    pub fn is_past(&self, at: Timestamp, age: Duration, now: Timestamp) -> bool {
        self.steps.is_past(at, age, now)
    }
}

/// What retention has deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired {
    /// Streams with their frames, bodies and records.
    pub streams: u64,
    /// Claims whose streams were deleted earlier.
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

/// Decides for closed streams and unused sessions, oldest first, whether to delete them. All stores
/// share this code.
pub struct Judge<'a> {
    retention: &'a Retention,
    now: Timestamp,
    /// Excess bytes: in total, and by tenant.
    over: u64,
    over_by_tenant: HashMap<&'a str, u64>,
}

impl<'a> Judge<'a> {
    /// `sizes` has the bytes of all streams and turns by tenant, including open ones.
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

    /// Whether to delete this entry; if so, its bytes are subtracted from the excess. Deleting an
    /// entry of size 0 would free nothing.
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

    /// Whether no entry of this time or later can be due.
    pub fn is_done(&self, closed_at: Timestamp) -> bool {
        let is_over = self.over > 0 || self.over_by_tenant.values().any(|over| *over > 0);
        !is_over && !self.retention.is_past(closed_at, self.retention.shortest_age(), self.now)
    }
}
