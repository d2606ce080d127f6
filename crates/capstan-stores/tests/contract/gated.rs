//! A store whose appends wait at a gate, and which counts what is read from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use capstan_journal::{
    Claim, Claimed, Expired, Found, Frame, JournalError, NameKind, Quota, Retention, Run, RunState,
    Secret, Store, StoredTurn, Usage,
};
use capstan_protocol::Timestamp;
use tokio::sync::Semaphore;
use uuid::Uuid;

pub(crate) struct Gated {
    store: Arc<dyn Store>,
    /// Each append takes a permit.
    pub(crate) gate: Semaphore,
    pub(crate) reads: AtomicUsize,
}

impl Gated {
    pub(crate) fn new(store: Arc<dyn Store>, permits: usize) -> Arc<Self> {
        Arc::new(Self { store, gate: Semaphore::new(permits), reads: AtomicUsize::new(0) })
    }
}

#[async_trait]
impl Store for Gated {
    async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed, JournalError> {
        self.store.claim(claim, quota).await
    }
    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>, JournalError> {
        self.store.body(stream).await
    }
    async fn append(
        &self,
        stream: Uuid,
        attempt: u32,
        frames: Vec<Frame>,
    ) -> Result<(), JournalError> {
        self.gate.acquire().await.unwrap().forget();
        self.store.append(stream, attempt, frames).await
    }
    async fn transition(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        turn: Option<StoredTurn>,
    ) -> Result<bool, JournalError> {
        self.store.transition(from, to, frames, turn).await
    }
    async fn suspend(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        quota: &Quota,
    ) -> Result<bool, JournalError> {
        self.store.suspend(from, to, frames, quota).await
    }

    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage, JournalError> {
        self.store.usage(tenant, session).await
    }

    async fn read(
        &self,
        stream: Uuid,
        after: u64,
        packets: usize,
        bytes: usize,
    ) -> Result<Vec<Frame>, JournalError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.store.read(stream, after, packets, bytes).await
    }
    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool, JournalError> {
        self.store.is_expired(tenant, stream).await
    }
    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError> {
        self.store.has_session(tenant, session).await
    }
    async fn run(&self, stream: Uuid) -> Result<Option<Run>, JournalError> {
        self.store.run(stream).await
    }
    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>, JournalError> {
        self.store.find(tenant, key).await
    }
    async fn list(
        &self,
        tenant: &str,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        self.store.list(tenant, before, limit).await
    }
    async fn open_runs(&self) -> Result<Vec<Run>, JournalError> {
        self.store.open_runs().await
    }
    async fn named(
        &self,
        tenant: &str,
        kind: NameKind,
        name: &str,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        self.store.named(tenant, kind, name, before, limit).await
    }
    async fn orphans(&self, limit: usize) -> Result<Vec<Run>, JournalError> {
        self.store.orphans(limit).await
    }
    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>, JournalError> {
        self.store.waiting(before, limit).await
    }
    async fn turns(
        &self,
        tenant: &str,
        session: &str,
        from: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<StoredTurn>, JournalError> {
        self.store.turns(tenant, session, from, limit, max_bytes).await
    }
    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64, JournalError> {
        self.store.turn_count(tenant, session).await
    }
    async fn sessions(&self, tenant: &str) -> Result<u64, JournalError> {
        self.store.sessions(tenant).await
    }
    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool, JournalError> {
        self.store.purge(stream, now).await
    }
    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError> {
        self.store.purge_session(tenant, session).await
    }
    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired, JournalError> {
        self.store.expire(retention, now).await
    }
    async fn secret(&self) -> Result<Secret, JournalError> {
        self.store.secret().await
    }
    async fn close(&self) -> Result<(), JournalError> {
        self.store.close().await
    }
}
