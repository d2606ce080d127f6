//! The relays of this process, by stream. A stop reaches the writer of a stream through them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc, oneshot};
use uuid::Uuid;

/// The relays of this process, by stream.
#[derive(Default)]
pub(crate) struct Relays {
    stops: Mutex<HashMap<Uuid, StopSender>>,
    changed: Notify,
}

/// Sends a stop to a relay. The relay drops the inner sender when the run has ended.
pub(crate) type StopSender = mpsc::Sender<oneshot::Sender<()>>;

impl Relays {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, StopSender>> {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(&self, stream: Uuid, stop: StopSender) {
        self.lock().insert(stream, stop);
        self.changed.notify_waiters();
    }

    /// Removes a relay that has ended. If the next attempt's relay has registered already, that one
    /// stays.
    pub(crate) fn forget(&self, stream: Uuid) {
        let mut stops = self.lock();
        if stops.get(&stream).is_some_and(StopSender::is_closed) {
            stops.remove(&stream);
            self.changed.notify_waiters();
        }
    }

    /// Asks the relay of a run to stop, if it is here, and does not wait for it.
    pub(crate) fn request_stop(&self, stream: Uuid) {
        let relay = self.lock().get(&stream).cloned();
        // A full channel means that the relay has a stop request already.
        let _ = relay.map(|relay| relay.try_send(oneshot::channel().0));
    }

    /// How many relays are registered.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn has(&self, stream: Uuid) -> bool {
        self.lock().contains_key(&stream)
    }

    /// Waits for the relay of a run. Returns `None` if the relay has ended; `is_ending` says that
    /// the caller has seen it before.
    pub(crate) async fn wait_for(&self, stream: Uuid, mut is_ending: bool) -> Option<StopSender> {
        loop {
            // Subscribe before the check, so that no change is missed.
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.lock().get(&stream) {
                Some(relay) if !relay.is_closed() => return Some(relay.clone()),
                Some(_) => is_ending = true,
                None if is_ending => return None,
                None => {}
            }
            changed.await;
        }
    }
}
