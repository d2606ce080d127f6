//! Records which answers this process has written completely to a connection. A repeated request
//! may attach to an answer that its client has probably not received.

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

/// How long an answer is remembered after it was sent.
const REMEMBERED: Duration = Duration::from_secs(600);

/// How long after its end a sent answer may still count as lost on its way. A little longer than
/// the longest delay of a coding agent's client before it repeats a request.
const LOST_WITHIN: Duration = Duration::from_secs(60);

/// The answers that were sent, by stream.
#[derive(Debug, Clone, Default)]
pub struct SentAnswers(Arc<Mutex<HashMap<Uuid, Sent>>>);

/// When an answer was sent, and the client's address on that connection.
type Sent = (Instant, Option<SocketAddr>);

/// An answer that is about to be sent.
#[derive(Debug)]
pub struct SentAnswer {
    all: SentAnswers,
    stream: Uuid,
    peer: Option<SocketAddr>,
}

impl SentAnswers {
    /// The answer to this request. Call `record` when all of it was written.
    pub fn answer(&self, stream: Uuid, parts: &Parts) -> SentAnswer {
        SentAnswer { all: self.clone(), stream, peer: peer_of(parts) }
    }

    /// Whether this request may repeat a request whose answer was lost. The client says so, or the
    /// run is open, or the answer may not have arrived. A failed run is started again instead.
    pub fn may_repeat(&self, run: &Run, parts: &Parts) -> bool {
        let may_be_lost =
            || repeats::is_repeat(parts) || run.is_open() || self.may_be_lost(run, parts);
        repeats::is_worth_it(run) && may_be_lost()
    }

    /// Whether a complete answer may not have reached this client. A client that asks again on the
    /// same connection has read the answer before.
    fn may_be_lost(&self, run: &Run, parts: &Parts) -> bool {
        let sent = self.lock().get(&run.stream_id).map(|(at, peer)| (at.elapsed(), *peer));
        let Some((since, peer)) = sent else { return true };
        since < LOST_WITHIN && peer.zip(peer_of(parts)).is_some_and(|(then, now)| then != now)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SentAnswer {
    /// Records that the answer was written completely.
    pub fn record(&self) {
        let (mut all, now) = (self.all.lock(), Instant::now());
        all.retain(|_, (at, _)| now.saturating_duration_since(*at) < REMEMBERED);
        all.insert(self.stream, (now, self.peer));
    }
}

fn peer_of(parts: &Parts) -> Option<SocketAddr> {
    parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| *peer)
}
