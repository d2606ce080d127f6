//! A store and the live tails of this process: what the gateway writes through and reads from.

use std::fmt;
use std::sync::Arc;

use capstan_protocol::Timestamp;
use uuid::Uuid;

use crate::backend::failpoint::{self, Point};
use crate::backend::planted_bug::{self, Bug};
use crate::finish::Finish;
use crate::hold::Hold;
use crate::split::SplitStore;
use crate::tails::{Lease, TailLimits, Tails};
use crate::{
    Claim, Claimed, ErrorKind, Frame, JournalError, Quota, Reader, Run, RunState, Store,
    StoredTurn, Transition,
};

/// A store whose readers are woken. Cheap to clone.
///
/// All writes of claims, frames and transitions must go through it, else the readers of this
/// process sleep on.
#[derive(Clone)]
pub struct Journal {
    store: Arc<dyn Store>,
    tails: Arc<Tails>,
}

impl Journal {
    /// A journal over a store.
    pub fn new(store: Arc<dyn Store>, limits: TailLimits) -> Self {
        let tails = Arc::new(Tails::new(limits));
        if let Some(mut news) = store.news() {
            let (tails, store) = (Arc::downgrade(&tails), Arc::downgrade(&store));
            // It ends with the store, which sends them, or with the last who could be told.
            tokio::spawn(async move {
                while let Some(news) = news.recv().await
                    && let (Some(tails), Some(store)) = (tails.upgrade(), store.upgrade())
                {
                    tails.hear(&*store, news);
                }
            });
        }
        Self { store, tails }
    }

    fn lease(&self, stream: Uuid) -> Lease {
        self.tails.lease(&self.store, stream)
    }

    /// The store, for everything that wakes nobody.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Claims a key; see `Records::claim`. Once begun it is carried out, even if the future is
    /// dropped.
    pub async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed, JournalError> {
        let (store, lease, quota) = (self.store.clone(), self.lease(claim.stream_id), *quota);
        Finish::new(async move {
            let claimed = store.claim(claim, &quota).await?;
            if claimed.is_new {
                failpoint::hit(Point::AfterClaim);
                lease.begin((claimed.run.attempt, claimed.run.state));
            }
            Ok(claimed)
        })
        .await
    }

    /// Appends frames, then wakes readers; see `Records::append`. Once begun it is carried out,
    /// even if the future is dropped. While the store cannot write it is held back.
    pub async fn append(
        &self,
        stream: Uuid,
        attempt: u32,
        frames: Vec<Frame>,
    ) -> Result<(), JournalError> {
        let (store, lease) = (self.store.clone(), self.lease(stream));
        let standing = (attempt, RunState::Running);
        Finish::new(async move {
            if planted_bug::is(Bug::EarlyDelivery) {
                lease.note(standing, &frames);
            }
            let mut hold = Hold::new(&*store);
            // Frames are shared bytes: this copies handles.
            while let Err(error) = store.append(stream, attempt, frames.clone()).await {
                if error.kind() == ErrorKind::Fenced {
                    lease.follow();
                }
                hold.after(error).await?;
            }
            failpoint::hit(Point::BeforeWake);
            lease.note(standing, &frames);
            Ok(())
        })
        .await
    }

    /// Moves a run on, then wakes readers; see `Records::transition`. Once begun it is carried
    /// out, even if the future is dropped. While the store cannot write it is held back.
    pub async fn transition(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        turn: Option<StoredTurn>,
    ) -> Result<bool, JournalError> {
        self.step(Transition::new(from, to, frames, turn)).await
    }

    /// Lets a run wait, if one more of its tenant's may; see `Records::transition`. Else as
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
        let (store, lease) = (self.store.clone(), self.lease(step.to.stream_id));
        let standing = (step.to.attempt, step.to.state);
        Finish::new(async move {
            let (mut hold, mut has_failed) = (Hold::new(&*store), false);
            let is_done = loop {
                let outcome = match store.transition(step.clone()).await {
                    // What was written and could not be synced is in force once the store has
                    // mended itself.
                    Ok(false) if has_failed => is_as(&*store, &step.to).await,
                    outcome => outcome,
                };
                match outcome {
                    Ok(is_done) => break is_done,
                    Err(error) => hold.after(error).await?,
                }
                has_failed = true;
            };
            if is_done {
                failpoint::hit(Point::BeforeWake);
                lease.note(standing, &step.frames);
            } else {
                lease.follow();
            }
            Ok(is_done)
        })
        .await
    }

    /// Erases a closed stream for good, then what this process remembers of it; see
    /// `Records::purge`. Once begun it is carried out, even if the future is dropped. Readers
    /// that are not through find nothing more.
    pub async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool, JournalError> {
        let (store, lease) = (self.store.clone(), self.lease(stream));
        Finish::new(async move {
            let is_gone = store.purge(stream, now).await?;
            if is_gone {
                lease.forget();
            }
            Ok(is_gone)
        })
        .await
    }

    /// The same journal, but what tenants claim of whom this says yes lives in memory only, as long
    /// as what is returned. It is asked at each claim, so that the answer may change.
    #[must_use]
    pub fn keeping_in_memory(
        self,
        is_private: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let store: Arc<dyn Store> = Arc::new(SplitStore::new(self.store, Arc::new(is_private)));
        self.tails.split(&store);
        Self { store, tails: self.tails }
    }

    /// A reader of a run as the caller has found it, strictly after `after`: it is told nothing
    /// older than that.
    ///
    /// Between the commit that arms a waiting run and its wake-up the tail still says `Waiting`.
    /// Who has found the run running must not be sent away with that.
    pub fn reader_of(&self, run: &Run, after: u64) -> Reader {
        self.reader(run.stream_id, after).not_before((run.attempt, run.state))
    }

    /// A reader that continues strictly after `after`.
    pub fn reader(&self, stream: Uuid, after: u64) -> Reader {
        Reader::new(self.store.clone(), self.lease(stream), stream, after)
    }
}

/// Whether a run stands where this transition would have brought it.
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
