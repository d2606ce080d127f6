//! Retries a write while the store cannot write.

use std::time::Duration;

use tokio::sync::watch;

use crate::{ErrorKind, Health, JournalError, Store};

/// The longest pause before a retry, if the store reports that it is healthy.
const LONGEST: Duration = Duration::from_secs(1);

/// A write that is retried until the store accepts it.
pub(crate) struct WriteRetry {
    health: watch::Receiver<Health>,
    pause: Duration,
}

impl WriteRetry {
    pub(crate) fn new(store: &dyn Store) -> Self {
        Self { health: store.health(), pause: Duration::from_millis(10) }
    }

    /// Waits after a failed write until a retry makes sense. Returns the error if none does.
    pub(crate) async fn after(&mut self, error: JournalError) -> Result<(), JournalError> {
        if error.kind() != ErrorKind::Unavailable {
            return Err(error);
        }
        let health = self.health.borrow_and_update().clone();
        match health {
            Health::Broken(_) => return Err(error),
            // The store may have recovered already, or may not have noticed the failure yet.
            Health::Well => {
                tokio::time::sleep(self.pause).await;
                self.pause = (self.pause * 2).min(LONGEST);
            }
            Health::Unavailable(_) => {
                let is_settled = |health: &Health| !matches!(health, Health::Unavailable(_));
                if self.health.wait_for(is_settled).await.is_err() {
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}
