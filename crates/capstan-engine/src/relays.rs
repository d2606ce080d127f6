//! The relays of this process: how a stop reaches the one who writes a stream.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc, oneshot};
use uuid::Uuid;

/// The relays of this process, by stream: how a stop reaches the one who writes.
#[derive(Default)]
pub(crate) struct Relays {
    stops: Mutex<HashMap<Uuid, StopSender>>,
    changed: Notify,
}

/// Who wants a run to end sends what is dropped when it has ended.
pub(crate) type StopSender = mpsc::Sender<oneshot::Sender<()>>;

impl Relays {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, StopSender>> {
        self.stops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(&self, stream: Uuid, stop: StopSender) {
        self.lock().insert(stream, stop);
        self.changed.notify_waiters();
    }

    /// Forgets a relay that is done. The next attempt's may have registered already, and that one
    /// stays.
    pub(crate) fn forget(&self, stream: Uuid) {
        let mut stops = self.lock();
        if stops.get(&stream).is_some_and(StopSender::is_closed) {
            stops.remove(&stream);
            self.changed.notify_waiters();
        }
    }

    /// Asks the relay of a run to stop, if it is here. Nobody waits for it.
    pub(crate) fn ask(&self, stream: Uuid) {
        let relay = self.lock().get(&stream).cloned();
        // One that has been asked already does.
        let _ = relay.map(|relay| relay.try_send(oneshot::channel().0));
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn has(&self, stream: Uuid) -> bool {
        self.lock().contains_key(&stream)
    }

    /// The relay of a run, once it is there; `None` if it was there, as the caller may know, and is
    /// gone.
    pub(crate) async fn wait_for(&self, stream: Uuid, mut is_ending: bool) -> Option<StopSender> {
        loop {
            // Listening begins before looking, so that nothing is missed in between.
            let news = self.changed.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            match self.lock().get(&stream) {
                Some(relay) if !relay.is_closed() => return Some(relay.clone()),
                Some(_) => is_ending = true,
                None if is_ending => return None,
                None => {}
            }
            news.await;
        }
    }
}
