//! A store with faults of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use capstan_agent::async_trait;
use capstan_journal::{
    Catalog, Claim, Claimed, ErrorKind, Found, Frame, Health, Journal, JournalError, Layer, Named,
    Query, Quota, Records, Result, Run, RunPage, RunState, Sessions, Store, StoredTurn, TailLimits,
    Transition, TurnRange, Usage,
};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use tokio::sync::{Barrier, Notify, oneshot, watch};
use uuid::Uuid;

/// A store in memory that does as it likes.
pub(crate) struct OddStore {
    pub store: Arc<dyn Store>,
    /// A session whose runs it cannot end.
    pub never_ends: String,
    /// Takes its time over each append, so that whoever writes is faster.
    pub is_slow: bool,
    /// How often all open runs were looked through.
    pub scans: AtomicUsize,
    /// How often something was looked for.
    pub looks: AtomicUsize,
    /// How many frames were read.
    pub frames: AtomicUsize,
    /// How many turns were read.
    pub turns: AtomicUsize,
    /// Lists and pages that are read now.
    pub reading: AtomicUsize,
    /// And the most that were read at once.
    pub most_reading: AtomicUsize,
    /// While it is not well, it takes no writes.
    pub health: watch::Sender<Health>,
    /// Looking through open runs waits for this, and fails then.
    pub fails_after: Option<Arc<Notify>>,
    /// Transitions wait until so many come at once.
    pub together: Option<Arc<Barrier>>,
    /// The next claim is made, and answered only when this says so.
    pub late_claim: Mutex<Option<oneshot::Receiver<()>>>,
    /// A packet from which on what is read is damaged.
    pub damaged_from: AtomicU64,
    /// What the next looks at a run find: it as it was a moment ago.
    pub old_looks: Mutex<VecDeque<Run>>,
}

impl OddStore {
    pub(crate) fn new() -> Self {
        let store = open("memory:", Durability::default()).unwrap();
        Self {
            store,
            never_ends: String::new(),
            is_slow: false,
            scans: AtomicUsize::new(0),
            looks: AtomicUsize::new(0),
            frames: AtomicUsize::new(0),
            turns: AtomicUsize::new(0),
            reading: AtomicUsize::new(0),
            most_reading: AtomicUsize::new(0),
            health: watch::Sender::new(Health::Well),
            fails_after: None,
            together: None,
            late_claim: Mutex::default(),
            damaged_from: AtomicU64::new(u64::MAX),
            old_looks: Mutex::default(),
        }
    }

    pub(crate) fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    fn check(&self) -> Result<(), JournalError> {
        let is_well = *self.health.borrow() == Health::Well;
        is_well.then_some(()).ok_or_else(|| JournalError::new(ErrorKind::Unavailable, "on purpose"))
    }

    /// Takes its time, so that others that come meanwhile are seen.
    async fn take_time(&self) {
        let reading = self.reading.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_reading.fetch_max(reading, Ordering::Relaxed);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        self.reading.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn journal(self: &Arc<Self>) -> Journal {
        Journal::new(Arc::clone(self) as Arc<dyn Store>, TailLimits::default())
    }
}

impl Layer for OddStore {
    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.store)
    }
}

#[async_trait]
impl Records for OddStore {
    async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed> {
        self.check()?;
        let claimed = self.store.claim(claim, quota).await;
        let late = self.late_claim.lock().unwrap().take();
        if let Some(late) = late {
            let _ = late.await;
        }
        claimed
    }

    async fn append(&self, stream: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<()> {
        for _ in 0..if self.is_slow { 1000 } else { 0 } {
            tokio::task::yield_now().await;
        }
        self.check()?;
        self.store.append(stream, attempt, frames).await
    }

    async fn transition(&self, step: Transition) -> Result<bool> {
        if step.to.state == RunState::Closed && step.to.session == self.never_ends {
            return Err(JournalError::new(ErrorKind::NotFound, "on purpose"));
        }
        if let Some(together) = &self.together {
            together.wait().await;
        }
        self.check()?;
        self.store.transition(step).await
    }

    async fn read(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Vec<Frame>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let damaged_from = self.damaged_from.load(Ordering::Relaxed);
        if after + 1 >= damaged_from {
            return Err(JournalError::new(ErrorKind::Corrupt, "on purpose"));
        }
        let mut frames = self.store.read(id, after, most, bytes).await?;
        frames.retain(|frame| frame.seq < damaged_from);
        self.frames.fetch_add(frames.len(), Ordering::Relaxed);
        Ok(frames)
    }

    async fn run(&self, stream: Uuid) -> Result<Option<Run>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        if let Some(old) = self.old_looks.lock().unwrap().pop_front() {
            return Ok(Some(old));
        }
        self.store.run(stream).await
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.store.find(tenant, key).await
    }
}

#[async_trait]
impl Sessions for OddStore {
    async fn turns(&self, range: TurnRange<'_>) -> Result<Vec<StoredTurn>> {
        self.take_time().await;
        let turns = self.store.turns(range).await?;
        self.turns.fetch_add(turns.len(), Ordering::Relaxed);
        Ok(turns)
    }

    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.store.usage(tenant, session).await
    }
}

#[async_trait]
impl Catalog for OddStore {
    async fn list(&self, tenant: &str, before: Option<Uuid>, limit: usize) -> Result<Vec<Run>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.take_time().await;
        self.store.list(tenant, before, limit).await
    }

    async fn named(&self, named: Named<'_>) -> Result<Vec<Run>> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.store.named(named).await
    }

    async fn page(&self, query: Query) -> Result<RunPage> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.take_time().await;
        self.store.page(query).await
    }

    async fn orphans(&self, limit: usize) -> Result<Vec<Run>> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        if let Some(fails_after) = &self.fails_after {
            fails_after.notified().await;
            return Err(JournalError::new(ErrorKind::Broken, "on purpose"));
        }
        self.store.orphans(limit).await
    }

    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.store.waiting(before, limit).await
    }

    async fn open_runs(&self) -> Result<Vec<Run>> {
        self.scans.fetch_add(1, Ordering::Relaxed);
        self.store.open_runs().await
    }
}

impl Store for OddStore {
    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }
}
