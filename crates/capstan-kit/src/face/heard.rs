//! Which answers were handed to a connection to their end, as far as this process knows.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::ConnectInfo;
use capstan_journal::Run;
use http::request::Parts;
use tokio::time::Instant;
use uuid::Uuid;

use crate::face::repeats;

/// What ended earlier is not looked for any more.
const KEPT: Duration = Duration::from_secs(600);

/// So long after its end an answer that was handed to a connection may have been lost on its way:
/// the longest wait of a coding agent's client before a repeat, and some more.
const LOST_WITHIN: Duration = Duration::from_secs(60);

/// The answers, by stream: when, and by which connection.
#[derive(Debug, Clone, Default)]
pub struct Heard(Arc<Mutex<HashMap<Uuid, Handed>>>);

/// When an answer was handed over, and by which connection.
type Handed = (Instant, Option<SocketAddr>);

/// Notes that one answer was handed over.
#[derive(Debug)]
pub struct Note {
    heard: Heard,
    stream: Uuid,
    by: Option<SocketAddr>,
}

impl Heard {
    /// One who asks by this request is about to hear this answer.
    pub fn note(&self, stream: Uuid, parts: &Parts) -> Note {
        Note { heard: self.clone(), stream, by: peer_of(parts) }
    }

    /// Whether this may be the run that a client lost which asks the same again: one that says so,
    /// or one that names its session. A failed run is started anew.
    pub fn may_repeat(&self, run: &Run, parts: &Parts) -> bool {
        let may_be_lost =
            || repeats::is_repeat(parts) || run.is_open() || self.may_be_lost(run, parts);
        repeats::is_worth_it(run) && may_be_lost()
    }

    /// Whether an answer that is complete may not have reached whoever asks now. On the connection
    /// by which it went nobody asks again before it was read.
    fn may_be_lost(&self, run: &Run, parts: &Parts) -> bool {
        let told = self.lock().get(&run.stream_id).map(|(at, by)| (at.elapsed(), *by));
        let Some((since, by)) = told else { return true };
        since < LOST_WITHIN && by.zip(peer_of(parts)).is_some_and(|(by, now)| by != now)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, (Instant, Option<SocketAddr>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Note {
    pub fn take(&self) {
        let (mut all, now) = (self.heard.lock(), Instant::now());
        all.retain(|_, (at, _)| now.saturating_duration_since(*at) < KEPT);
        all.insert(self.stream, (now, self.by));
    }
}

fn peer_of(parts: &Parts) -> Option<SocketAddr> {
    parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| *peer)
}
