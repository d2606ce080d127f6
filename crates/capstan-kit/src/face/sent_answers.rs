//! Records which answers were written completely to a connection. A repeated request may attach to
//! an answer that its client has probably not received. The run's record has the time, so that it
//! is known after a restart and at other gateways. Connections are known only to this process.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::ConnectInfo;
use capstan_engine::Engine;
use capstan_engine::wall_clock::between;
use capstan_journal::Run;
use http::request::Parts;
use tokio::time::Instant;
use uuid::Uuid;

use crate::face::{FaceContext, repeats};

/// How long after it was sent an answer may still count as lost on its way. A little longer than
/// the longest delay of a coding agent's client before it repeats a request.
const LOST_WITHIN: Duration = Duration::from_secs(60);

/// The answers that this process sent within [`repeats::WITHIN`], by stream.
#[derive(Debug, Clone, Default)]
pub struct SentAnswers(Arc<Mutex<HashMap<Uuid, Sent>>>);

/// When an answer was sent, and the client's address on that connection.
type Sent = (Instant, Option<SocketAddr>);

/// An answer that is about to be sent.
pub struct SentAnswer {
    all: SentAnswers,
    engine: Engine,
    stream: Uuid,
    /// A repeated request may attach to its run, because no request names it.
    is_repeatable: bool,
    /// The run's record has the time as well.
    is_stored: bool,
    peer: Option<SocketAddr>,
}

impl SentAnswers {
    /// The answer to this request. Call `record` when all of it was written. Requests that name a
    /// session may get it again without saying that they are repeats, so the run's record has the
    /// time of their answers.
    pub fn answer(
        &self,
        cx: &FaceContext,
        run: &Run,
        parts: &Parts,
        has_session: bool,
    ) -> SentAnswer {
        SentAnswer {
            all: self.clone(),
            engine: cx.engine.clone(),
            stream: run.stream_id,
            is_repeatable: repeats::is_keyless(run),
            is_stored: has_session,
            peer: peer_of(parts),
        }
    }

    /// Whether this request may repeat the request of this run: the run is open, or its answer may
    /// not have arrived.
    pub fn may_repeat(&self, cx: &FaceContext, run: &Run, parts: &Parts) -> bool {
        run.is_open() || self.may_be_lost(cx, run, parts)
    }

    /// Whether a complete answer may not have reached this client. A client that asks again on the
    /// same connection has read the answer before.
    fn may_be_lost(&self, cx: &FaceContext, run: &Run, parts: &Parts) -> bool {
        match self.lock().get(&run.stream_id) {
            Some((at, peer)) => {
                let is_other = peer.zip(peer_of(parts)).is_some_and(|(then, now)| then != now);
                is_other && at.elapsed() < LOST_WITHIN
            }
            None => run.sent_at.is_none_or(|at| between(at, cx.engine.now()) < LOST_WITHIN),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SentAnswer {
    /// Records that the answer was written completely. The run's record may follow a little later.
    pub fn record(&self) {
        if !self.is_repeatable {
            return;
        }
        let (mut all, now) = (self.all.lock(), Instant::now());
        // Only before the map would grow, so that an answer does not cost a look at all of them.
        if all.len() == all.capacity() {
            all.retain(|_, (at, _)| now.saturating_duration_since(*at) < repeats::WITHIN);
        }
        all.insert(self.stream, (now, self.peer));
        drop(all);
        if !self.is_stored {
            return;
        }
        let (engine, stream, at) = (self.engine.clone(), self.stream, self.engine.now());
        self.engine.spawn(async move {
            if let Err(error) = engine.store().mark_sent(stream, at).await {
                tracing::warn!(%stream, %error, "the journal did not record that an answer was \
                 sent; a repeated request may get it again");
            }
        });
    }
}

fn peer_of(parts: &Parts) -> Option<SocketAddr> {
    parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| *peer)
}
