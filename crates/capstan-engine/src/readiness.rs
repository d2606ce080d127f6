//! Whether the gateway takes runs, and how long somebody waits to see whether it will.

use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_journal::Health;
use capstan_protocol::{Fault, FaultKind};

use crate::Engine;
use crate::faults::{JOURNAL_RETRY, NEARLY_FULL};

/// How long a request waits for a journal that takes no writes: one that mends itself at once is
/// not worth a refusal.
pub(crate) const UNWELL: Duration = Duration::from_millis(500);
/// How long a request waits for recovery.
const RECOVERY: Duration = Duration::from_secs(10);

impl Engine {
    /// The journal failed for good: bodies must not look finished, and nobody should be sent here.
    pub(crate) fn break_off(&self) {
        self.broken.cancel();
        self.ended.cancel();
    }

    /// Nothing will come of this life: whoever is here is refused, whoever comes finds nobody.
    pub fn give_up(&self) {
        [&self.draining, &self.stopped, &self.closing, &self.ended]
            .into_iter()
            .for_each(|token| token.cancel());
    }

    /// How the journal feels now.
    pub fn journal_health(&self) -> Health {
        self.journal.store().health().borrow().clone()
    }

    /// Returns when runs may be started, armed and stopped, once recovery is through; or when there
    /// is no point in waiting for that any longer: then whoever asks is refused by
    /// [`Self::unready`].
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

    /// Returns when the journal has taken no writes for so long, without a break.
    pub async fn unwell_for(&self, patience: Duration) {
        let mut health = self.journal.store().health();
        loop {
            if health.wait_for(|health| *health != Health::Well).await.is_err() {
                std::future::pending::<()>().await;
            }
            let is_well = health.wait_for(|health| *health == Health::Well);
            if tokio::time::timeout(patience, is_well).await.is_err() {
                return;
            }
        }
    }

    /// Why no new run is taken, if none is.
    pub fn unready(&self) -> Option<Fault> {
        if self.draining.is_cancelled() {
            return Some(Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0));
        }
        if !self.recovered.is_cancelled() {
            let left = self.unrecovered.load(Ordering::Relaxed);
            let message = format!(
                "The runs that an earlier life left open are being recovered; {left} are left."
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

    /// Why nothing can be written, if nothing can. The cause is for the log, where the store has
    /// told it.
    pub(crate) fn journal_unwell(&self) -> Option<Fault> {
        let fault = Fault::new(FaultKind::JournalUnavailable);
        match self.journal_health() {
            Health::Well => None,
            Health::Unavailable(_) => Some(fault.with_retry_after(JOURNAL_RETRY)),
            Health::Broken(_) => Some(fault),
        }
    }

    /// Returns when the journal takes no writes any more, and only a new process can mend that;
    /// why.
    pub async fn journal_broken(&self) -> String {
        let mut health = self.journal.store().health();
        let is_broken = |health: &Health| matches!(health, Health::Broken(_));
        if let Ok(health) = health.wait_for(is_broken).await
            && let Health::Broken(why) = &*health
        {
            return why.clone();
        }
        // A store that tells nothing never breaks.
        std::future::pending().await
    }
}
