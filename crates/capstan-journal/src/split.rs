//! `SplitStore` routes `no_store` tenants to a memory store and everyone else to the durable store.
//!
//! The rule of a tenant decides where a new claim goes, and its stream stays there. Queries by
//! tenant read both stores, so that no stream disappears when the rule changes. The memory store is
//! not read before the first claim of a `no_store` tenant.
//!
//! In a shared store, one process hosts each `no_store` tenant ([`TenantHosts`]). The durable
//! store records the hashes of the keys in use, so that a repeated request starts no second run
//! even after its host is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use capstan_protocol::Timestamp;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::backend::rules::expired;
use crate::memory::MemoryStore;
use crate::{
    Catalog, Claim, Claimed, Cluster, Expired, Found, JournalError, KeyRecord, Layer, Named, Piece,
    Query, Quota, Records, Result, Retention, Run, RunPage, Sessions, Stats, Store, StoredTurn,
    TenantHosts, Transition, TurnRange, Usage,
};

/// Whether a tenant's data must not be stored.
pub(crate) type IsPrivate = Arc<dyn Fn(&str) -> bool + Send + Sync>;

pub(crate) struct SplitStore {
    stored: Arc<dyn Store>,
    memory: MemoryStore,
    /// Whether the memory store may have data.
    is_used: AtomicBool,
    is_private: IsPrivate,
    /// Locks by hash of the key. Between the record of a key and its claim the key has no run yet,
    /// so other requests for it have to wait.
    claim_locks: [Mutex<()>; CLAIM_LOCKS],
}

const CLAIM_LOCKS: usize = 64;

impl SplitStore {
    pub(crate) fn new(stored: Arc<dyn Store>, is_private: IsPrivate) -> Self {
        let claim_locks = std::array::from_fn(|_| Mutex::new(()));
        Self {
            stored,
            memory: MemoryStore::default(),
            is_used: AtomicBool::new(false),
            is_private,
            claim_locks,
        }
    }

    /// The memory store, if it may have data.
    fn memory(&self) -> Option<&MemoryStore> {
        self.is_used.load(Ordering::Acquire).then_some(&self.memory)
    }

    /// The hosts of `no_store` tenants, if other processes share the durable store.
    fn hosts(&self) -> Option<&dyn TenantHosts> {
        self.stored.cluster().map(Cluster::tenant_hosts)
    }

    /// Records the key in the durable store, then claims it in memory. A refused claim leaves no
    /// record.
    async fn claim_recorded(
        &self,
        hosts: &dyn TenantHosts,
        claim: Claim,
        quota: &Quota,
    ) -> Result<Claimed, JournalError> {
        let (tenant, key, stream) = (claim.tenant.clone(), hashed_key(&claim.key), claim.stream_id);
        let _lock = self.claim_lock(&key).lock().await;
        if self.memory.find(&tenant, &claim.key).await?.is_none()
            && let KeyRecord::InUse(_) =
                hosts.record_key(&tenant, &key, stream, claim.created_at).await?
            && self.memory.find(&tenant, &claim.key).await?.is_none()
        {
            // The process that hosted the tenant is gone, with all of its data.
            return Err(expired(&claim.key));
        }
        let claimed = self.memory.claim(claim, quota).await;
        if !claimed.as_ref().is_ok_and(|claimed| claimed.run.stream_id == stream) {
            hosts.release_key(&tenant, &key, stream).await?;
        }
        claimed
    }

    fn claim_lock(&self, key_hash: &str) -> &Mutex<()> {
        let hash = key_hash
            .bytes()
            .fold(0_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let [first, ..] = &self.claim_locks;
        self.claim_locks.get(hash % CLAIM_LOCKS).unwrap_or(first)
    }

    /// Finds a key of a `no_store` tenant in a shared store: its run, or a record of a lost one.
    async fn find_recorded(&self, tenant: &str, key: &str) -> Result<Option<Found>, JournalError> {
        let hash = hashed_key(key);
        let _lock = self.claim_lock(&hash).lock().await;
        match self.memory.find(tenant, key).await? {
            None => {}
            found => return Ok(found),
        }
        match self.stored.find(tenant, key).await? {
            None => self.stored.find(tenant, &hash).await,
            found => Ok(found),
        }
    }

    /// The store that has a stream.
    fn store_of(&self, stream: Uuid) -> &dyn Store {
        match self.memory() {
            Some(memory) if memory.holds(stream) => memory,
            Some(_) | None => &*self.stored,
        }
    }
}

impl Layer for SplitStore {
    fn below(&self) -> Option<&dyn Store> {
        Some(&*self.stored)
    }

    fn at(&self, stream: Uuid) -> Option<&dyn Store> {
        Some(self.store_of(stream))
    }
}

#[async_trait]
impl Records for SplitStore {
    async fn claim(&self, mut claim: Claim, quota: &Quota) -> Result<Claimed> {
        let is_private = (self.is_private)(&claim.tenant);
        if is_private {
            self.is_used.store(true, Ordering::Release);
        }
        let Some(memory) = self.memory() else { return self.stored.claim(claim, quota).await };
        let (own, other): (&dyn Store, &dyn Store) = match is_private {
            true => (memory, &*self.stored),
            false => (&*self.stored, memory),
        };
        // The key may have been used before the tenant's rule changed.
        match other.find(&claim.tenant, &claim.key).await? {
            Some(Found::Run(run)) => Ok(Claimed { run, is_new: false }),
            Some(Found::Expired) => Err(expired(&claim.key)),
            None => {
                claim.turns_elsewhere = last_turn(other, &claim.tenant, &claim.session).await?;
                // No new run begins in the other store, so the remaining quota can only grow.
                let elsewhere = other.usage(&claim.tenant, &claim.session).await?;
                let left = quota.less(&elsewhere, claim.created_at);
                if is_private && let Some(hosts) = self.hosts() {
                    return self.claim_recorded(hosts, claim, &left).await;
                }
                own.claim(claim, &left).await
            }
        }
    }

    /// Counts the waiting runs of both stores.
    async fn transition(&self, mut step: Transition) -> Result<bool> {
        let to = &step.to;
        if step.quota.waiting.is_some() {
            let is_here = self.memory.holds(to.stream_id);
            let other: &dyn Store = if is_here { &*self.stored } else { &self.memory };
            let elsewhere = other.usage(&to.tenant, &to.session).await?;
            step.quota = step.quota.less(&elsewhere, to.updated_at);
        }
        self.store_of(to.stream_id).transition(step).await
    }

    async fn read_on(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Piece> {
        self.store_of(id).read_on(id, after, most, bytes).await
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>> {
        if self.stored.is_shared() && (self.is_private)(tenant) {
            return self.find_recorded(tenant, key).await;
        }
        let Some(memory) = self.memory() else { return self.stored.find(tenant, key).await };
        match memory.find(tenant, key).await? {
            None => self.stored.find(tenant, key).await,
            found => Ok(found),
        }
    }

    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool> {
        Ok(self.memory.is_expired(tenant, stream).await?
            || self.stored.is_expired(tenant, stream).await?)
    }
}

#[async_trait]
impl Sessions for SplitStore {
    /// If the rule changed within a session, its turns are in both stores. They are sorted by
    /// stream id, which does not depend on steps of the clock, and renumbered.
    async fn turns(&self, range: TurnRange<'_>) -> Result<Vec<StoredTurn>> {
        let TurnRange { tenant, session, from, limit, .. } = range;
        let Some(memory) = self.memory() else { return self.stored.turns(range).await };
        if memory.turn_count(tenant, session).await? == 0 {
            return self.stored.turns(range).await;
        }
        if self.stored.turn_count(tenant, session).await? == 0 {
            return memory.turns(range).await;
        }
        let mut turns = memory.turns(TurnRange::all(tenant, session)).await?;
        turns.extend(self.stored.turns(TurnRange::all(tenant, session)).await?);
        turns.sort_by_key(|turn| turn.stream_id);
        let numbered =
            turns.into_iter().zip(1..).map(|(turn, number)| StoredTurn { number, ..turn });
        Ok(numbered.filter(|turn| turn.number >= from).take(limit).collect())
    }

    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64> {
        let stored = self.stored.turn_count(tenant, session).await?;
        let Some(memory) = self.memory() else { return Ok(stored) };
        Ok(stored + memory.turn_count(tenant, session).await?)
    }

    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool> {
        Ok(self.memory.has_session(tenant, session).await?
            || self.stored.has_session(tenant, session).await?)
    }

    /// A session in both stores counts twice until its older half expires.
    async fn sessions(&self, tenant: &str) -> Result<u64> {
        Ok(self.memory.sessions(tenant).await? + self.stored.sessions(tenant).await?)
    }

    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage> {
        let (here, stored) =
            (self.memory.usage(tenant, session).await?, self.stored.usage(tenant, session).await?);
        Ok(Usage {
            running: here.running + stored.running,
            waiting: here.waiting + stored.waiting,
            sessions: here.sessions + stored.sessions,
            bytes: here.bytes + stored.bytes,
            has_session: here.has_session || stored.has_session,
            messages: here.messages + stored.messages,
            session_bytes: here.session_bytes + stored.session_bytes,
            tokens: here.tokens.and(stored.tokens),
        })
    }

    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool> {
        let here = self.memory.purge_session(tenant, session).await?;
        Ok(self.stored.purge_session(tenant, session).await? || here)
    }
}

#[async_trait]
impl Catalog for SplitStore {
    async fn list(&self, tenant: &str, before: Option<Uuid>, limit: usize) -> Result<Vec<Run>> {
        let stored = self.stored.list(tenant, before, limit).await?;
        let Some(memory) = self.memory() else { return Ok(stored) };
        Ok(newest(memory.list(tenant, before, limit).await?, stored, limit))
    }

    async fn named(&self, named: Named<'_>) -> Result<Vec<Run>> {
        let stored = self.stored.named(named).await?;
        let Some(memory) = self.memory() else { return Ok(stored) };
        Ok(newest(memory.named(named).await?, stored, named.limit))
    }

    async fn page(&self, query: Query) -> Result<RunPage> {
        let Some(memory) = self.memory() else { return self.stored.page(query).await };
        let here = memory.page(query.clone()).await?;
        let limit = query.limit.clamp(1, Query::MOST);
        Ok(here.and(self.stored.page(query).await?, limit))
    }

    /// No other process has runs in this memory. In a shared store `orphans` is called
    /// periodically, and must not return them.
    async fn orphans(&self, limit: usize) -> Result<Vec<Run>> {
        if self.stored.is_shared() {
            return self.stored.orphans(limit).await;
        }
        let mut runs = self.memory.orphans(limit).await?;
        runs.extend(self.stored.orphans(limit - runs.len()).await?);
        Ok(runs)
    }

    async fn unarmed(&self, limit: usize) -> Result<Vec<Run>> {
        let mut runs = self.memory.unarmed(limit).await?;
        runs.extend(self.stored.unarmed(limit - runs.len()).await?);
        Ok(runs)
    }

    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>> {
        let mut runs = self.memory.waiting(before, limit).await?;
        runs.extend(self.stored.waiting(before, limit - runs.len()).await?);
        Ok(runs)
    }

    async fn open_runs(&self) -> Result<Vec<Run>> {
        let mut runs = self.memory.open_runs().await?;
        runs.extend(self.stored.open_runs().await?);
        Ok(runs)
    }
}

#[async_trait]
impl Store for SplitStore {
    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired> {
        let mut report = self.memory.expire(retention, now).await?;
        report += self.stored.expire(retention, now).await?;
        Ok(report)
    }

    async fn close(&self) -> Result<()> {
        self.memory.close().await?;
        self.stored.close().await
    }

    fn stats(&self) -> Stats {
        let stored = self.stored.stats();
        Stats { streams: stored.streams + self.memory.stats().streams, ..stored }
    }
}

/// The hashed key, which tells the store nothing about the original.
fn hashed_key(key: &str) -> String {
    use sha2::{Digest as _, Sha256};
    use std::fmt::Write as _;
    Sha256::digest(key.as_bytes()).iter().fold("unstored:".to_owned(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The number of the session's last turn.
async fn last_turn(store: &dyn Store, tenant: &str, session: &str) -> Result<u64, JournalError> {
    if store.turn_count(tenant, session).await? == 0 {
        return Ok(0);
    }
    let turns = store.turns(TurnRange::all(tenant, session)).await?;
    Ok(turns.last().map_or(0, |turn| turn.number))
}

fn newest(mut runs: Vec<Run>, others: Vec<Run>, limit: usize) -> Vec<Run> {
    runs.extend(others);
    runs.sort_by_key(|run| std::cmp::Reverse(run.stream_id));
    runs.truncate(limit);
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn memory_is_read_only_after_a_private_claim() {
        let split = SplitStore::new(
            Arc::new(MemoryStore::default()),
            Arc::new(|tenant| tenant == "private"),
        );
        let claim = |tenant: &str| Claim::new(tenant, "k", Uuid::now_v7(), Timestamp::now());
        // Nothing can write there without the split store; a read of memory would find this claim.
        let hidden = claim("acme");
        split.memory.claim(hidden.clone(), &Quota::UNLIMITED).await.unwrap();
        assert_eq!(split.run(hidden.stream_id).await.unwrap(), None);
        assert_eq!(split.find("acme", "k").await.unwrap(), None);
        assert!(split.list("acme", None, 9).await.unwrap().is_empty());
        assert!(split.claim(claim("private"), &Quota::UNLIMITED).await.unwrap().is_new);
        assert!(split.run(hidden.stream_id).await.unwrap().is_some());
        assert!(!split.claim(claim("acme"), &Quota::UNLIMITED).await.unwrap().is_new);
    }
}
