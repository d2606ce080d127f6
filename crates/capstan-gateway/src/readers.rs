//! Who reads a run in this process. A run that its face leaves nobody to come back for is stopped when its last
//! reader has been gone for a while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_agent::Timer;
use capstan_journal::{Run, RunState};
use tokio::runtime::Handle;
use tokio::time::Instant;
use uuid::Uuid;

use crate::app::App;
use crate::runs;

/// Nobody is waited for any longer, whatever was said.
const LONGEST: Duration = Duration::from_secs(600);

/// How many read each run, and when those will be back who were told to wait.
#[derive(Default)]
pub(crate) struct Readers {
    counts: Mutex<HashMap<Uuid, usize>>,
    expected: Mutex<HashMap<String, Instant>>,
}

impl Readers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody of this tenant was told to come back then, maybe for a run that nobody reads.
    pub(crate) fn expect(&self, tenant: &str, within: Duration) {
        let (now, mut expected) =
            (Instant::now(), self.expected.lock().unwrap_or_else(PoisonError::into_inner));
        expected.retain(|_, back| *back > now);
        let Some(back) = now.checked_add(within) else { return };
        let known = expected.entry(tenant.to_owned()).or_insert(back);
        *known = back.max(*known);
    }

    /// How long it is until then.
    fn expected_in(&self, tenant: &str) -> Duration {
        let expected = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        expected.get(tenant).map_or(Duration::ZERO, |back| back.saturating_duration_since(Instant::now()))
    }

    fn has(&self, stream: Uuid) -> bool {
        self.lock().contains_key(&stream)
    }

    /// One less; whether that was the last.
    fn leave(&self, stream: Uuid) -> bool {
        let mut all = self.lock();
        let left = all.get(&stream).map_or(0, |count| count.saturating_sub(1));
        if left > 0 {
            all.insert(stream, left);
            return false;
        }
        all.remove(&stream);
        true
    }
}

/// Somebody reads a run, as long as this lives.
pub(crate) struct Reading {
    app: App,
    stream: Uuid,
    /// Nobody can come back for it.
    ends_unread: bool,
}

impl Reading {
    /// One more reader.
    pub(crate) fn new(app: &App, run: &Run) -> Self {
        *app.readers.lock().entry(run.stream_id).or_default() += 1;
        Self::of(app, run)
    }

    /// The first reader, unless there is one: of many who come for a run that nobody reads, one gets it.
    pub(crate) fn alone(app: &App, run: &Run) -> Option<Self> {
        let mut all = app.readers.lock();
        if all.contains_key(&run.stream_id) {
            return None;
        }
        all.insert(run.stream_id, 1);
        drop(all);
        Some(Self::of(app, run))
    }

    fn of(app: &App, run: &Run) -> Self {
        let ends_unread = app.face(&run.face).is_some_and(|face| face.ends_unread(run));
        Self { app: app.clone(), stream: run.stream_id, ends_unread }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let is_last = self.app.readers.leave(self.stream);
        // Others may read it in other processes, of which nothing is known here.
        if !is_last || !self.ends_unread || self.app.journal.store().is_shared() {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(stop_unread(self.app.clone(), self.stream));
        }
    }
}

/// Stops a run that nobody has come back to in time.
async fn stop_unread(app: App, stream: Uuid) {
    let grace = app.settings.timeouts.unread_chat;
    if grace.is_zero() || !is_open(&app, stream).await {
        return;
    }
    let sleep = async |long| {
        tokio::select! {
            () = app.clock.sleep(Timer::Grace, long) => !app.readers.has(stream),
            () = app.draining.cancelled() => false,
        }
    };
    if !sleep(grace).await {
        return;
    }
    // Whoever was told to come back later than that may come for this one. Once: others are told so all the time.
    let Ok(Some(run)) = app.journal.store().run(stream).await else { return };
    let longer = app.readers.expected_in(&run.tenant).min(LONGEST);
    if !longer.is_zero() && !sleep(longer).await {
        return;
    }
    if let Ok(Some(run)) = app.journal.store().run(stream).await
        && run.state != RunState::Closed
    {
        tracing::info!(%stream, "nobody reads the run any more, nor can come back for it; it is stopped");
        // A run that cannot be stopped now ends by itself.
        let _ = runs::stop(&app, run).await;
    }
}

async fn is_open(app: &App, stream: Uuid) -> bool {
    matches!(app.journal.store().run(stream).await, Ok(Some(run)) if run.state != RunState::Closed)
}
