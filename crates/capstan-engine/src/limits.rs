//! How much is allowed. What a tenant may have is checked by the journal, in the claim; here is
//! what costs this process: runs at work, open responses, and requests of tenants of whom the
//! journal has just said that they come too fast.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_journal::backend::Rates;
use capstan_journal::{Over, Quota, Refused};
use capstan_protocol::{Fault, FaultKind};
use tokio::sync::Notify;

use crate::cpu_offload::CpuOffload;
use crate::settings::Limits;

/// What a tenant's listings may take beyond all else: whoever has too much under way has to see
/// what to stop.
const RESERVE: usize = 16 * 1024 * 1024;

/// What runs, who reads and what that takes, here.
#[derive(Default)]
pub struct Limiter {
    runs: Counts,
    readers: Counts,
    bytes: Counts,
    /// Work that would keep a thread busy for too long.
    pub cpu_offload: CpuOffload,
    /// A run has ended, or waits no more for another to end.
    freed: Arc<Notify>,
    /// Runs that were armed and wait for room.
    queued: AtomicUsize,
    /// Tenants that came too fast, and until when: the journal need not be asked again before.
    refused: Mutex<HashMap<String, Instant>>,
    /// How fast requests come that are no runs, of which the journal knows nothing.
    rates: Mutex<Rates<String>>,
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
pub struct Slot {
    load: MemoryReservation,
    freed: Option<Arc<Notify>>,
}

impl Slot {
    /// A place of something that takes none.
    pub fn none(limiter: &Limiter, tenant: &str) -> Self {
        Self { load: limiter.load(tenant), freed: None }
    }

    /// Whoever waits for room hears of it when this one goes.
    fn telling(mut self, freed: &Arc<Notify>) -> Self {
        self.freed = Some(Arc::clone(freed));
        self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.load.shrink_to(0);
        if let Some(freed) = &self.freed {
            freed.notify_waiters();
        }
    }
}

/// So much of something that is under way; dropping it gives it back.
pub struct MemoryReservation {
    tenant: String,
    counts: Counts,
    held: usize,
}

impl MemoryReservation {
    /// Takes more, if `check` lets it through, given the total and the tenant's own as they would
    /// be. Both under one lock, so that a rush does not get past a limit.
    fn take(
        &mut self,
        more: usize,
        check: impl FnOnce(usize, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut counted = self.counts.lock();
        let own = counted.by_tenant.get(&self.tenant).copied().unwrap_or(0);
        let (total, own) = (counted.total.saturating_add(more), own.saturating_add(more));
        check(total, own)?;
        counted.total = total;
        if own > 0 {
            counted.by_tenant.insert(self.tenant.clone(), own);
        }
        self.held += more;
        Ok(())
    }

    /// Takes so many bytes more, before they are there. Beyond the limits: why not.
    pub fn grow(&mut self, more: usize, limits: &Limits) -> Result<(), Fault> {
        let (most, most_of_own) = (limits.bytes_in_flight, limits.bytes_in_flight_per_tenant);
        self.take(more, |total, own| {
            if own > most_of_own {
                return Err(takes_all());
            }
            let has_room = total <= most;
            has_room
                .then_some(())
                .ok_or_else(|| Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0))
        })
    }

    /// Takes so many bytes more for what has to be seen even by a tenant whose requests take all
    /// that they may: that of its own reserve.
    pub fn grow_beyond(&mut self, more: usize, limits: &Limits) -> Result<(), Fault> {
        let most = limits.bytes_in_flight_per_tenant.saturating_add(RESERVE);
        self.take(more, |_, own| if own > most { Err(takes_all()) } else { Ok(()) })
    }

    /// How much it is.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Counts what is there in any case.
    pub(crate) fn grow_anyway(&mut self, more: usize) {
        // What is not checked is not refused.
        let _ = self.take(more, |_, _| Ok(()));
    }

    /// Gives back what is more than this.
    pub fn shrink_to(&mut self, held: usize) {
        let less = self.held.saturating_sub(held);
        if less == 0 {
            return;
        }
        self.held -= less;
        let mut counted = self.counts.lock();
        counted.total = counted.total.saturating_sub(less);
        if let Some(own) = counted.by_tenant.get_mut(&self.tenant) {
            *own = own.saturating_sub(less);
            if *own == 0 {
                counted.by_tenant.remove(&self.tenant);
            }
        }
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, tenant: &str) -> MemoryReservation {
        MemoryReservation { tenant: tenant.to_owned(), counts: self.clone(), held: 0 }
    }

    /// Counts one more, if `check` lets it through.
    fn take(
        &self,
        tenant: &str,
        check: impl FnOnce(usize, usize) -> Result<(), Fault>,
    ) -> Result<Slot, Fault> {
        let mut load = self.load(tenant);
        load.take(1, check)?;
        Ok(Slot { load, freed: None })
    }
}

/// One run in the queue.
struct Queued<'a>(&'a Limiter);

impl<'a> Queued<'a> {
    fn new(limiter: &'a Limiter) -> Self {
        limiter.queued.fetch_add(1, Ordering::Relaxed);
        Self(limiter)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Limiter {
    /// Whether the tenant may ask the journal for another run; the refusal carries the true wait.
    pub(crate) fn check_rate(&self, tenant: &str) -> Result<(), Fault> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(until) = refused.get(tenant) else { return Ok(()) };
        let wait = until.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            refused.remove(tenant);
            return Ok(());
        }
        Err(too_fast(wait))
    }

    /// The journal has refused a claim of the tenant's.
    pub(crate) fn note_refusal(&self, tenant: &str, refused: Refused) {
        if let (Over::Rate, Some(wait)) = (refused.over, refused.wait) {
            let mut all = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            all.retain(|_, until| *until > now);
            all.insert(tenant.to_owned(), now + wait);
        }
    }

    /// Counts a request that is no run by the rate of those that start one.
    pub fn take_rate(&self, tenant: &str, limits: &Limits) -> Result<(), Fault> {
        self.check_rate(tenant)?;
        let per_minute = NonZeroU32::new(limits.requests_per_minute);
        let quota = Quota { per_minute, ..Quota::UNLIMITED };
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.take(tenant.to_owned(), &quota, Instant::now()).map_err(refusal)
    }

    /// Room in this process for one more run. Those that were armed before go first.
    pub(crate) fn take_run(&self, tenant: &str, limits: &Limits) -> Result<Slot, Fault> {
        let queued = self.queued.load(Ordering::Relaxed);
        let slot = self.runs.take(tenant, |total, _| {
            let has_room = total.saturating_add(queued) <= limits.runs;
            has_room
                .then_some(())
                .ok_or_else(|| Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0))
        })?;
        Ok(slot.telling(&self.freed))
    }

    /// Room for a run that goes on. It was admitted when it started, so that it is not refused: it
    /// waits.
    pub(crate) async fn wait_for_run(&self, tenant: &str, limits: &Limits) -> Slot {
        let _queued = Queued::new(self);
        loop {
            // Listening begins before looking, so that nothing is missed in between.
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let full = |total: usize, own: usize| {
                let has_room = total <= limits.runs && own <= limits.runs_per_tenant;
                has_room.then_some(()).ok_or_else(|| Fault::new(FaultKind::ServiceUnavailable))
            };
            if let Ok(slot) = self.runs.take(tenant, full) {
                return slot.telling(&self.freed);
            }
            freed.await;
        }
    }

    /// What a request will take, nothing yet.
    pub fn load(&self, tenant: &str) -> MemoryReservation {
        self.bytes.load(tenant)
    }

    /// Open responses of a tenant.
    pub fn readers_of(&self, tenant: &str) -> usize {
        self.readers.lock().by_tenant.get(tenant).copied().unwrap_or(0)
    }

    /// Room for one more open response.
    pub fn take_reader(&self, tenant: &str, limits: &Limits) -> Result<Slot, Fault> {
        self.readers.take(tenant, |_, own| {
            let has_room = own <= limits.readers_per_tenant;
            has_room
                .then_some(())
                .ok_or_else(|| Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0))
        })
    }
}

fn takes_all() -> Fault {
    let fault = Fault::new(FaultKind::SessionLimitExceeded).with_retry_after(1.0);
    fault.with_message("Your requests under way take as much memory as they may.")
}

fn too_fast(wait: Duration) -> Fault {
    Fault::new(FaultKind::RateLimitExceeded).with_retry_after(wait.as_secs_f64().max(1.0))
}

/// The tokens of a minute or a day are used up.
fn dry(refused: Refused, window: &str) -> Fault {
    too_fast(refused.wait.unwrap_or_default())
        .with_message(format!("The tokens of this {window} are used up."))
        .with_detail("limit", format!("tokens_per_{window}"))
}

/// A refusal of the journal's as the client is told of it.
pub(crate) fn refusal(refused: Refused) -> Fault {
    match refused.over {
        Over::Rate => too_fast(refused.wait.unwrap_or_default()),
        Over::TokensPerMinute => dry(refused, "minute"),
        Over::TokensPerDay => dry(refused, "day"),
        Over::Running => {
            Fault::new(FaultKind::SessionLimitExceeded).with_message("Too many runs are under way.")
        }
        Over::Waiting => Fault::new(FaultKind::SessionLimitExceeded)
            .with_message("Too many runs wait to be tried again."),
        Over::Messages => Fault::new(FaultKind::MessageLimitExceeded),
        Over::SessionBytes => Fault::new(FaultKind::MessageLimitExceeded)
            .with_message("This conversation is as large as it may be."),
        Over::Bytes => Fault::new(FaultKind::StorageLimitExceeded),
        // And whatever a later journal limits.
        Over::Sessions | _ => Fault::new(FaultKind::SessionLimitExceeded),
    }
}
