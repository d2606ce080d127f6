//! Who reads a run in this process. A run that its face leaves nobody to come back for is stopped when its last
//! reader has been gone for a while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use capstan_agent::Timer;
use capstan_journal::{Run, RunState};
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::app::App;
use crate::runs;

/// How many read each run.
#[derive(Default)]
pub(crate) struct Readers(Mutex<HashMap<Uuid, usize>>);

impl Readers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    tokio::select! {
        () = app.clock.sleep(Timer::Grace, grace) => {}
        () = app.draining.cancelled() => return,
    }
    if app.readers.has(stream) {
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
