//! How much is allowed. What a tenant may have is checked by the journal, in the claim; here is what costs this process:
//! runs at work, open responses, and requests of tenants of whom the journal has just said that they come too fast.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capstan_journal::{Over, Quota, Refused};
use capstan_protocol::{Fault, FaultKind};

use crate::settings::Limits;

/// What runs and who reads, here.
#[derive(Default)]
pub(crate) struct Limiter {
    runs: Counts,
    readers: Counts,
    /// Tenants that came too fast, and until when: the journal need not be asked again before.
    refused: Mutex<HashMap<String, Instant>>,
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

    /// Room in this process for one more run.
    pub(crate) fn take_run(&self, tenant: &str, limits: &Limits) -> Result<Slot, Fault> {
        self.runs.take(tenant, |total, _| {
            let has_room = total < limits.runs;
            has_room
                .then_some(())
                .ok_or_else(|| Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0))
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

/// What a tenant may have, as the journal checks it. Where zero is "no limit" it is none.
pub(crate) fn quota(limits: &Limits) -> Quota {
    let some = |most: u64| Some(most).filter(|most| *most > 0);
    Quota {
        per_minute: NonZeroU32::new(limits.requests_per_minute),
        running: Some(limits.runs_per_tenant as u64),
        waiting: Some(limits.waiting_per_tenant as u64),
        sessions: some(limits.sessions),
        messages_per_session: Some(limits.messages_per_session as u64),
        bytes_per_session: Some(limits.bytes_per_session),
        bytes: some(limits.bytes_per_tenant),
    }
}

fn too_fast(wait: Duration) -> Fault {
    Fault::new(FaultKind::RateLimitExceeded).with_retry_after(wait.as_secs_f64().max(1.0))
}

/// A refusal of the journal's as the client is told of it.
pub(crate) fn refusal(refused: Refused) -> Fault {
    match refused.over {
        Over::Rate => too_fast(refused.wait.unwrap_or_default()),
        Over::Running => {
            Fault::new(FaultKind::SessionLimitExceeded).with_message("Too many runs are under way.")
        }
        Over::Waiting => {
            Fault::new(FaultKind::SessionLimitExceeded).with_message("Too many runs wait to be tried again.")
        }
        Over::Messages => Fault::new(FaultKind::MessageLimitExceeded),
        Over::SessionBytes => Fault::new(FaultKind::MessageLimitExceeded)
            .with_message("This conversation is as large as it may be."),
        Over::Bytes => Fault::new(FaultKind::StorageLimitExceeded),
        // Sessions, and whatever a later journal limits.
        _ => Fault::new(FaultKind::SessionLimitExceeded),
    }
}
