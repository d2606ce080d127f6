//! Limits of this process: running runs, open responses, and memory. It also remembers which
//! tenants exceeded their rate. The journal checks a tenant's quota itself, in the claim.

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

/// Memory that a tenant's listings may take beyond its limit: a tenant with too many runs must be
/// able to list them in order to stop some.
const RESERVE: usize = 16 * 1024 * 1024;

/// Counts the runs, readers and memory of this process.
pub(crate) struct Limiter {
    limits: Limits,
    runs: Counts,
    readers: Counts,
    bytes: Counts,
    /// Long CPU work.
    pub(crate) cpu_offload: CpuOffload,
    /// Notifies waiters that a run has released its slot.
    freed: Arc<Notify>,
    /// How many started attempts wait for a slot.
    queued: AtomicUsize,
    /// Tenants that exceeded their rate, and until when. The engine refuses their requests without
    /// a query.
    refused: Mutex<HashMap<String, Instant>>,
    /// The rates of requests that start no run. The journal does not count these.
    rates: Mutex<Rates<String>>,
}

/// How many slots or bytes are in use, by tenant and in total.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<Counted>>);

#[derive(Default)]
struct Counted {
    total: usize,
    by_tenant: HashMap<String, usize>,
}

/// A slot for one run or reader. Dropping it frees the slot.
pub struct Slot {
    share: Share,
    freed: Option<Arc<Notify>>,
}

impl Slot {
    /// Notifies the waiters when this slot is freed.
    fn notifying(mut self, freed: &Arc<Notify>) -> Self {
        self.freed = Some(Arc::clone(freed));
        self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.share.shrink_to(0);
        if let Some(freed) = &self.freed {
            freed.notify_waiters();
        }
    }
}

/// A tenant's share of a count. Dropping it gives the share back.
struct Share {
    tenant: String,
    counts: Counts,
    held: usize,
}

impl Share {
    /// Takes more if `check` allows the new total and the tenant's new sum. One lock covers check
    /// and change, so concurrent requests cannot exceed a limit.
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

    /// Gives back all but this much.
    fn shrink_to(&mut self, held: usize) {
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

impl Drop for Share {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// Reserved memory of a tenant. Dropping it releases the memory.
pub struct MemoryReservation {
    share: Share,
    /// The most bytes of all tenants, and of this one.
    most: usize,
    most_of_own: usize,
}

impl MemoryReservation {
    /// Reserves more bytes before they are allocated, or returns the fault if a limit is exceeded.
    pub fn grow(&mut self, more: usize) -> Result<(), Fault> {
        let (most, most_of_own) = (self.most, self.most_of_own);
        self.share.take(more, |total, own| {
            if own > most_of_own {
                return Err(takes_all());
            }
            let has_room = total <= most;
            has_room
                .then_some(())
                .ok_or_else(|| Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0))
        })
    }

    /// Reserves more bytes for an answer that a tenant must get even if its requests have used all
    /// of its memory. It may use the tenant's reserve.
    pub fn grow_beyond(&mut self, more: usize) -> Result<(), Fault> {
        let most = self.most_of_own.saturating_add(RESERVE);
        self.share.take(more, |_, own| if own > most { Err(takes_all()) } else { Ok(()) })
    }

    /// How many bytes are reserved.
    pub fn held(&self) -> usize {
        self.share.held
    }

    /// Counts bytes without a check of the limits.
    pub(crate) fn grow_anyway(&mut self, more: usize) {
        // The check accepts everything, so this cannot fail.
        let _ = self.share.take(more, |_, _| Ok(()));
    }

    /// Releases all but this many bytes.
    pub fn shrink_to(&mut self, held: usize) {
        self.share.shrink_to(held);
    }
}

impl Counts {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn share_of(&self, tenant: &str) -> Share {
        Share { tenant: tenant.to_owned(), counts: self.clone(), held: 0 }
    }

    /// Takes a slot, if `check` allows it.
    fn take(
        &self,
        tenant: &str,
        check: impl FnOnce(usize, usize) -> Result<(), Fault>,
    ) -> Result<Slot, Fault> {
        let mut share = self.share_of(tenant);
        share.take(1, check)?;
        Ok(Slot { share, freed: None })
    }
}

/// Counts a run in the queue.
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
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            runs: Counts::default(),
            readers: Counts::default(),
            bytes: Counts::default(),
            cpu_offload: CpuOffload::default(),
            freed: Arc::default(),
            queued: AtomicUsize::default(),
            refused: Mutex::default(),
            rates: Mutex::default(),
        }
    }

    /// Refuses a tenant that recently exceeded its rate. The fault has the remaining wait.
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

    /// Remembers that the journal refused a claim because of the tenant's rate.
    pub(crate) fn note_refusal(&self, tenant: &str, refused: Refused) {
        if let (Over::Rate, Some(wait)) = (refused.over, refused.wait) {
            let mut all = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            all.retain(|_, until| *until > now);
            all.insert(tenant.to_owned(), now + wait);
        }
    }

    /// Counts a request that starts no run against the tenant's rate.
    pub(crate) fn take_rate(&self, tenant: &str) -> Result<(), Fault> {
        self.check_rate(tenant)?;
        let per_minute = NonZeroU32::new(self.limits.requests_per_minute);
        let quota = Quota { per_minute, ..Quota::UNLIMITED };
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        rates.take(tenant.to_owned(), &quota, Instant::now()).map_err(refusal)
    }

    /// Takes a slot for a new run. Attempts that wait in the queue go first.
    pub(crate) fn take_run(&self, tenant: &str) -> Result<Slot, Fault> {
        let queued = self.queued.load(Ordering::Relaxed);
        let slot = self.runs.take(tenant, |total, _| {
            let has_room = total.saturating_add(queued) <= self.limits.runs;
            has_room
                .then_some(())
                .ok_or_else(|| Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0))
        })?;
        Ok(slot.notifying(&self.freed))
    }

    /// Waits for a slot for the next attempt of a run. The run was admitted when it started, so it
    /// is never refused.
    pub(crate) async fn wait_for_run(&self, tenant: &str) -> Slot {
        let limits = &self.limits;
        let _queued = Queued::new(self);
        loop {
            // Subscribe before the check, so that no notification is missed.
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            let full = |total: usize, own: usize| {
                let has_room = total <= limits.runs && own <= limits.runs_per_tenant;
                has_room.then_some(()).ok_or_else(|| Fault::new(FaultKind::ServiceUnavailable))
            };
            if let Ok(slot) = self.runs.take(tenant, full) {
                return slot.notifying(&self.freed);
            }
            freed.await;
        }
    }

    /// A slot for a run that does not count against the limits.
    pub(crate) fn uncounted_run(&self, tenant: &str) -> Slot {
        Slot { share: self.runs.share_of(tenant), freed: None }
    }

    /// Creates an empty memory reservation for a request.
    pub(crate) fn reserve(&self, tenant: &str) -> MemoryReservation {
        MemoryReservation {
            share: self.bytes.share_of(tenant),
            most: self.limits.bytes_in_flight,
            most_of_own: self.limits.bytes_in_flight_per_tenant,
        }
    }

    /// How many open responses a tenant has.
    pub(crate) fn readers_of(&self, tenant: &str) -> usize {
        self.readers.lock().by_tenant.get(tenant).copied().unwrap_or(0)
    }

    /// Takes a slot for an open response.
    pub(crate) fn take_reader(&self, tenant: &str) -> Result<Slot, Fault> {
        self.readers.take(tenant, |_, own| {
            let has_room = own <= self.limits.readers_per_tenant;
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

/// The fault for a tenant that has used up its tokens of a minute or a day.
fn tokens_used_up(refused: Refused, window: &str) -> Fault {
    too_fast(refused.wait.unwrap_or_default())
        .with_message(format!("The tokens of this {window} are used up."))
        .with_detail("limit", format!("tokens_per_{window}"))
}

/// Translates a refusal of the journal into a fault.
pub(crate) fn refusal(refused: Refused) -> Fault {
    match refused.over {
        Over::Rate => too_fast(refused.wait.unwrap_or_default()),
        Over::TokensPerMinute => tokens_used_up(refused, "minute"),
        Over::TokensPerDay => tokens_used_up(refused, "day"),
        Over::Running => {
            Fault::new(FaultKind::SessionLimitExceeded).with_message("Too many runs are under way.")
        }
        Over::Waiting => Fault::new(FaultKind::SessionLimitExceeded)
            .with_message("Too many runs wait to be tried again."),
        Over::Messages => Fault::new(FaultKind::MessageLimitExceeded),
        Over::SessionBytes => Fault::new(FaultKind::MessageLimitExceeded)
            .with_message("This conversation is as large as it may be."),
        Over::Bytes => Fault::new(FaultKind::StorageLimitExceeded),
        // `Over` is non-exhaustive: a later journal may have more limits.
        Over::Sessions | _ => Fault::new(FaultKind::SessionLimitExceeded),
    }
}
