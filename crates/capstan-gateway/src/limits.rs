//! Limits per tenant, asked only when a POST would start a run, before the claim: a refusal leaves no trace.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_protocol::{Fault, FaultKind};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::settings::Limits;

/// How fast requests come, what runs and who reads.
pub(crate) struct Limiter {
    rate: Option<DefaultKeyedRateLimiter<String>>,
    runs: Counts,
    readers: Counts,
    clock: DefaultClock,
}

/// Things under way, by tenant and in all.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    total: usize,
    by_tenant: HashMap<String, usize>,
}

/// One thing under way; dropping it makes room for the next.
pub(crate) struct Slot {
    tenant: String,
    counts: Counts,
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more, if `check` lets it through, given the total and the tenant's own. Both under one lock, so that
    /// a rush does not get past a limit.
    fn take(
        &self,
        tenant: &str,
        check: impl FnOnce(usize, usize) -> Result<(), Fault>,
    ) -> Result<Slot, Fault> {
        let mut counted = self.lock();
        check(counted.total, counted.by_tenant.get(tenant).copied().unwrap_or(0))?;
        Ok(self.add(&mut counted, tenant))
    }

    fn add(&self, counted: &mut Counted, tenant: &str) -> Slot {
        counted.total += 1;
        *counted.by_tenant.entry(tenant.to_owned()).or_default() += 1;
        Slot { tenant: tenant.to_owned(), counts: self.clone() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counted = self.counts.lock();
        counted.total -= 1;
        if let Some(own) = counted.by_tenant.get_mut(&self.tenant) {
            *own -= 1;
            if *own == 0 {
                counted.by_tenant.remove(&self.tenant);
            }
        }
    }
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        let rate =
            NonZeroU32::new(limits.requests_per_minute).map(|n| RateLimiter::keyed(Quota::per_minute(n)));
        Self { rate, runs: Counts::default(), readers: Counts::default(), clock: DefaultClock::default() }
    }

    /// A request counts against the tenant's rate; the refusal carries the true wait.
    pub(crate) fn check_rate(&self, tenant: &str) -> Result<(), Fault> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.check_key(&tenant.to_owned()).map_err(|not_until| {
            let wait = not_until.wait_time_from(self.clock.now());
            Fault::new(FaultKind::RateLimitExceeded).with_retry_after(wait.as_secs_f64().max(1.0))
        })
    }

    /// Room for one more run, or why not.
    pub(crate) fn take_run(&self, tenant: &str, limits: &Limits) -> Result<Slot, Fault> {
        self.runs.take(tenant, |total, own| {
            if total >= limits.runs {
                return Err(Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0));
            }
            if own >= limits.runs_per_tenant {
                let fault = Fault::new(FaultKind::SessionLimitExceeded);
                return Err(fault.with_message("Too many runs are under way."));
            }
            Ok(())
        })
    }

    /// A run that goes on counts, but is not refused: it was admitted when it started.
    pub(crate) fn keep_run(&self, tenant: &str) -> Slot {
        self.runs.add(&mut self.runs.lock(), tenant)
    }

    /// Room for one more open response.
    pub(crate) fn take_reader(&self, tenant: &str, limits: &Limits) -> Result<Slot, Fault> {
        self.readers.take(tenant, |_, own| {
            let has_room = own < limits.readers_per_tenant;
            has_room
                .then_some(())
                .ok_or_else(|| Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0))
        })
    }
}
