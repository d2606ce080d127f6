//! Which answers were handed to a connection to their end, as far as this process knows.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

/// What ended earlier is not looked for any more.
const KEPT: Duration = Duration::from_secs(600);

/// The answers, by stream: when, and by which connection.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<Mutex<HashMap<Uuid, (Instant, Option<SocketAddr>)>>>);

/// Notes that one answer was handed over.
pub(super) struct Note {
    heard: Heard,
    stream: Uuid,
    by: Option<SocketAddr>,
}

impl Heard {
    pub(super) fn by(&self, stream: Uuid, by: Option<SocketAddr>) -> Note {
        Note { heard: self.clone(), stream, by }
    }

    /// How long ago this answer was handed over, and to whom, if it was.
    pub(super) fn of(&self, stream: Uuid) -> Option<(Duration, Option<SocketAddr>)> {
        self.lock().get(&stream).map(|(at, by)| (at.elapsed(), *by))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, (Instant, Option<SocketAddr>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Note {
    pub(super) fn take(&self) {
        let (mut all, now) = (self.heard.lock(), Instant::now());
        all.retain(|_, (at, _)| now.saturating_duration_since(*at) < KEPT);
        all.insert(self.stream, (now, self.by));
    }
}
