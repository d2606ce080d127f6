//! Waiting out a store that cannot write for a while.

use std::time::Duration;

use tokio::sync::watch;

use crate::{ErrorKind, Health, JournalError, Store};

/// The longest pause before a write is tried again at a store that says that it is well.
const LONGEST: Duration = Duration::from_secs(1);

/// One write that is to be done, however long the store cannot.
pub(crate) struct Hold {
    health: watch::Receiver<Health>,
    pause: Duration,
}

impl Hold {
    pub(crate) fn new(store: &dyn Store) -> Self {
        Self { health: store.health(), pause: Duration::from_millis(10) }
    }

    /// After a failed write: returns when it may be tried again, or the error if that is of no use.
    pub(crate) async fn after(&mut self, error: JournalError) -> Result<(), JournalError> {
        if error.kind() != ErrorKind::Unavailable {
            return Err(error);
        }
        let health = self.health.borrow_and_update().clone();
        match health {
            Health::Broken(_) => return Err(error),
            // It may have mended itself in the meantime, or has yet to notice.
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
