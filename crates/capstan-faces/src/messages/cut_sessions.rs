//! The sessions in which a connection broke off within an answer. Only there a client may have
//! acted on the beginning of an answer, so that others need not be looked through.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::request::Parts;
use tokio::time::Instant;

use super::routes::SESSION;

/// How long a run may be repeated, and so how long a cut matters.
const WITHIN: Duration = Duration::from_secs(600);

/// The sessions, each with the time of its last cut.
#[derive(Debug, Clone)]
pub(super) struct CutSessions {
    sessions: Arc<Mutex<HashMap<String, Instant>>>,
    /// Before it, another process wrote the answers.
    began: Instant,
}

impl Default for CutSessions {
    fn default() -> Self {
        Self { sessions: Arc::default(), began: Instant::now() }
    }
}

impl CutSessions {
    /// Watches an answer to this request, until its end or until its connection breaks off.
    pub(super) fn watch(&self, parts: &Parts) -> Watch {
        Watch { all: self.clone(), session: session_of(parts) }
    }

    /// Whether an answer of the request's session may have been cut, here or by the end of another
    /// process.
    pub(super) fn may_have(&self, parts: &Parts, is_shared: bool) -> bool {
        let is_known = || session_of(parts).is_some_and(|id| self.lock().contains_key(&id));
        is_shared || self.began.elapsed() < WITHIN || is_known()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records a cut when it is dropped before the end of its answer.
#[derive(Debug)]
pub(super) struct Watch {
    all: CutSessions,
    session: Option<String>,
}

impl Watch {
    /// The answer has its end.
    pub(super) fn end(&mut self) {
        self.session = None;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let mut all = self.all.lock();
            all.retain(|_, at| at.elapsed() < WITHIN);
            all.insert(session, Instant::now());
        }
    }
}

fn session_of(parts: &Parts) -> Option<String> {
    Some(parts.headers.get(SESSION.name)?.to_str().ok()?.to_owned())
}
