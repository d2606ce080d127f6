//! A store with the live tails of this process. The gateway reads and writes through it.

use std::fmt;
use std::sync::Arc;

use capstan_protocol::Timestamp;
use uuid::Uuid;

use crate::backend::failpoint::{self, Point};
use crate::backend::planted_bug::{self, Bug};
use crate::finish::Finish;
use crate::split::SplitStore;
use crate::tails::{TailHandle, TailLimits, Tails};
use crate::write_retry::WriteRetry;
use crate::{
    Claim, Claimed, Cluster, ErrorKind, Frame, JournalError, Quota, Reader, Run, RunState, Store,
    StoredTurn, Transition,
};

/// A store that wakes its readers. Cheap to clone.
///
/// All claims, frames and transitions must be written through it. Otherwise the readers of this
/// process are not woken.
#[derive(Clone)]
pub struct Journal {
    store: Arc<dyn Store>,
    tails: Arc<Tails>,
}

impl Journal {
    /// Creates a journal over a store.
    pub fn new(store: Arc<dyn Store>, limits: TailLimits) -> Self {
        let tails = Arc::new(Tails::new(limits));
        if let Some(mut notifications) = store.cluster().and_then(Cluster::notifications) {
            let (tails, store) = (Arc::downgrade(&tails), Arc::downgrade(&store));
            // The task ends when the store or the last journal is dropped.
            tokio::spawn(async move {
                while let Some(notification) = notifications.recv().await
                    && let (Some(tails), Some(store)) = (tails.upgrade(), store.upgrade())
                {
                    tails.apply(&*store, notification);
                }
            });
        }
        Self { store, tails }
    }

    fn handle(&self, stream: Uuid) -> TailHandle {
        self.tails.handle(&self.store, stream)
    }

    /// The store, for operations that wake no readers.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Claims a key; see `Records::claim`. Once polled it completes, even if the future is dropped.
    pub async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed, JournalError> {
        let (store, handle, quota) = (self.store.clone(), self.handle(claim.stream_id), *quota);
        Finish::new(async move {
            let claimed = store.claim(claim, &quota).await?;
            if claimed.is_new {
                failpoint::hit(Point::AfterClaim);
                handle.begin((claimed.run.attempt, claimed.run.state));
            }
            Ok(claimed)
        })
        .await
    }

    /// Appends frames, then wakes the readers; see `Records::append`. Once polled it completes,
    /// even if the future is dropped. It waits while the store cannot write.
    pub async fn append(
        &self,
        stream: Uuid,
        attempt: u32,
        frames: Vec<Frame>,
    ) -> Result<(), JournalError> {
        let (store, handle) = (self.store.clone(), self.handle(stream));
        let standing = (attempt, RunState::Running);
        Finish::new(async move {
            if planted_bug::is(Bug::EarlyDelivery) {
                handle.record(standing, &frames);
            }
            let mut retry = WriteRetry::new(&*store);
            // Frames are reference-counted, so this clone copies no bytes.
            while let Err(error) = store.append(stream, attempt, frames.clone()).await {
                if error.kind() == ErrorKind::Fenced {
                    handle.follow();
                }
                retry.after(error).await?;
            }
            failpoint::hit(Point::BeforeWake);
            handle.record(standing, &frames);
            Ok(())
        })
        .await
    }

    /// Changes a run's state, then wakes the readers; see `Records::transition`. Once polled it
    /// completes, even if the future is dropped. It waits while the store cannot write.
    pub async fn transition(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        turn: Option<StoredTurn>,
    ) -> Result<bool, JournalError> {
        self.step(Transition::new(from, to, frames, turn)).await
    }

    /// Changes a run to `Waiting`, if the tenant's quota allows another waiting run. Otherwise like
    /// `transition`.
    pub async fn suspend(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        quota: &Quota,
    ) -> Result<bool, JournalError> {
        self.step(Transition { quota: *quota, ..Transition::new(from, to, frames, None) }).await
    }

    async fn step(&self, step: Transition) -> Result<bool, JournalError> {
        let (store, handle) = (self.store.clone(), self.handle(step.to.stream_id));
        let standing = (step.to.attempt, step.to.state);
        Finish::new(async move {
            let (mut retry, mut has_failed) = (WriteRetry::new(&*store), false);
            let is_done = loop {
                let outcome = match store.transition(step.clone()).await {
                    // An earlier try may have been written but not synced. It takes effect when the
                    // store has recovered.
                    Ok(false) if has_failed => is_as(&*store, &step.to).await,
                    outcome => outcome,
                };
                match outcome {
                    Ok(is_done) => break is_done,
                    Err(error) => retry.after(error).await?,
                }
                has_failed = true;
            };
            if is_done {
                failpoint::hit(Point::BeforeWake);
                handle.record(standing, &step.frames);
            } else {
                handle.follow();
            }
            Ok(is_done)
        })
        .await
    }

    /// Erases a closed stream, and drops it from memory; see `Records::purge`. Once polled it
    /// completes, even if the future is dropped. Readers of the stream find nothing more.
    pub async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool, JournalError> {
        let (store, handle) = (self.store.clone(), self.handle(stream));
        Finish::new(async move {
            let is_gone = store.purge(stream, now).await?;
            if is_gone {
                handle.forget();
            }
            Ok(is_gone)
        })
        .await
    }

    /// The same journal, except that the data of private tenants stays in memory, as long as the
    /// returned journal lives. `is_private` is called for each claim, so its answer may change.
    #[must_use]
    pub fn keeping_in_memory(
        self,
        is_private: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let store: Arc<dyn Store> = Arc::new(SplitStore::new(self.store, Arc::new(is_private)));
        self.tails.split(&store);
        Self { store, tails: self.tails }
    }

    /// A reader that starts after the packet `after`, and never reports a state older than that of
    /// `run`.
    ///
    /// Between the commit that starts the next attempt and its wake-up, the tail still has
    /// `Waiting`. A caller that has read the run as running must not get that old state.
    pub fn reader_of(&self, run: &Run, after: u64) -> Reader {
        self.reader(run.stream_id, after).not_before((run.attempt, run.state))
    }

    /// A reader that starts after the packet `after`.
    pub fn reader(&self, stream: Uuid, after: u64) -> Reader {
        Reader::new(self.store.clone(), self.handle(stream), stream, after)
    }
}

/// Whether the run's record is already as this transition would make it.
async fn is_as(store: &dyn Store, to: &Run) -> Result<bool, JournalError> {
    let is_same = |run: Run| {
        (run.state, run.attempt, run.updated_at, run.owner)
            == (to.state, to.attempt, to.updated_at, to.owner.clone())
    };
    Ok(store.run(to.stream_id).await?.is_some_and(is_same))
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}
