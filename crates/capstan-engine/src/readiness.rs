//! Whether the gateway accepts runs, and how long requests wait until it does.

use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_journal::Health;
use capstan_protocol::{Fault, FaultKind};

use crate::Engine;
use crate::faults::{JOURNAL_RETRY, NEARLY_FULL};

/// How long a request waits for a journal that does not accept writes. Shorter interruptions should
/// not cause a refusal.
pub(crate) const UNWELL: Duration = Duration::from_millis(500);
/// How long a request waits for recovery.
const RECOVERY: Duration = Duration::from_secs(10);

impl Engine {
    /// The current health of the journal.
    pub fn journal_health(&self) -> Health {
        self.journal.store().health().borrow().clone()
    }

    /// Waits for the end of recovery, and returns early if a longer wait is pointless. The caller
    /// then checks [`Self::unready`] for the refusal.
    pub(crate) async fn is_open(&self) {
        if self.recovered.is_cancelled() {
            return;
        }
        tokio::select! {
            () = self.recovered.cancelled() => {}
            () = self.draining.cancelled() => {}
            () = self.unwell_for(UNWELL) => {}
            () = tokio::time::sleep(RECOVERY) => {}
        }
    }

    /// Returns when the journal has refused writes for this long without a break.
    pub async fn unwell_for(&self, grace: Duration) {
        let mut health = self.journal.store().health();
        loop {
            if health.wait_for(|health| *health != Health::Well).await.is_err() {
                std::future::pending::<()>().await;
            }
            let is_well = health.wait_for(|health| *health == Health::Well);
            if tokio::time::timeout(grace, is_well).await.is_err() {
                return;
            }
        }
    }

    /// The fault if the gateway accepts no new runs at the moment.
    pub fn unready(&self) -> Option<Fault> {
        if self.draining.is_cancelled() {
            return Some(Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0));
        }
        if !self.recovered.is_cancelled() {
            let left = self.unrecovered.load(Ordering::Relaxed);
            let message = format!(
                "The gateway is recovering runs that the previous process left open: {left} to go."
            );
            return Some(
                Fault::new(FaultKind::ServiceUnavailable)
                    .with_message(message)
                    .with_retry_after(1.0),
            );
        }
        if self.journal.store().stats().is_low_on_space {
            let fault = Fault::new(FaultKind::JournalUnavailable);
            return Some(fault.with_message(NEARLY_FULL).with_retry_after(JOURNAL_RETRY));
        }
        self.journal_unwell()
    }

    /// The fault if the journal accepts no writes. The store has logged the cause.
    pub(crate) fn journal_unwell(&self) -> Option<Fault> {
        let fault = Fault::new(FaultKind::JournalUnavailable);
        match self.journal_health() {
            Health::Well => None,
            Health::Unavailable(_) => Some(fault.with_retry_after(JOURNAL_RETRY)),
            Health::Broken(_) => Some(fault),
        }
    }

    /// Returns the cause when the journal has failed for good. Only a restart can fix that.
    pub async fn journal_broken(&self) -> String {
        let mut health = self.journal.store().health();
        let is_broken = |health: &Health| matches!(health, Health::Broken(_));
        if let Ok(health) = health.wait_for(is_broken).await
            && let Health::Broken(why) = &*health
        {
            return why.clone();
        }
        // A store whose health channel is closed never breaks.
        std::future::pending().await
    }
}
