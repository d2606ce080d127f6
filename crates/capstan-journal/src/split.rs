//! Two stores as one: what belongs to tenants of whom nothing may be stored lives in memory, the
//! rest where it always did.
//!
//! A new claim goes where its tenant's rule says at that moment, and everything of its stream stays
//! there. Whatever is asked by tenant is asked of both, so that a rule that changes while streams
//! exist makes none of them vanish. Until the first claim of such a tenant nothing is in memory,
//! and nothing is asked there.
//!
//! Where several processes share the store such a tenant lives in the memory of one of them
//! ([`Cluster::home`]), and the store notes which of its keys are taken, as hashes: a duplicate
//! starts no second run even if that process is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use capstan_protocol::Timestamp;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::backend::rules::expired;
use crate::memory::MemoryStore;
use crate::{
    Catalog, Claim, Claimed, Cluster, Expired, Found, JournalError, Layer, Named, Noted, Piece,
    Query, Quota, Records, Result, Retention, Run, RunPage, Sessions, Stats, Store, StoredTurn,
    Transition, TurnRange, Usage,
};

/// Says of whom nothing may be stored.
pub(crate) type IsPrivate = Arc<dyn Fn(&str) -> bool + Send + Sync>;

pub(crate) struct SplitStore {
    stored: Arc<dyn Store>,
    memory: MemoryStore,
    /// Something may be in memory.
    is_used: AtomicBool,
    is_private: IsPrivate,
    /// Between a note and its claim a key is taken and has no run: whoever asks for it waits. By
    /// the key's hash.
    claiming: [Mutex<()>; CLAIMING],
}

const CLAIMING: usize = 64;

impl SplitStore {
    pub(crate) fn new(stored: Arc<dyn Store>, is_private: IsPrivate) -> Self {
        let claiming = std::array::from_fn(|_| Mutex::new(()));
        Self {
            stored,
            memory: MemoryStore::default(),
            is_used: AtomicBool::new(false),
            is_private,
            claiming,
        }
    }

    /// What is in memory, if anything can be.
    fn memory(&self) -> Option<&MemoryStore> {
        self.is_used.load(Ordering::Acquire).then_some(&self.memory)
    }

    /// Claims in memory what the store has noted as taken; what is refused leaves no note.
    async fn claim_noted(&self, claim: Claim, quota: &Quota) -> Result<Claimed, JournalError> {
        let (tenant, key, stream) = (claim.tenant.clone(), noted_key(&claim.key), claim.stream_id);
        let _claiming = self.claiming(&key).lock().await;
        if self.memory.find(&tenant, &claim.key).await?.is_none()
            && let Noted::Taken(_) =
                self.stored.note(&tenant, &key, stream, claim.created_at).await?
            && self.memory.find(&tenant, &claim.key).await?.is_none()
        {
            // The process that had it is gone, and all that it knew.
            return Err(expired(&claim.key));
        }
        let claimed = self.memory.claim(claim, quota).await;
        if !claimed.as_ref().is_ok_and(|claimed| claimed.run.stream_id == stream) {
            self.stored.unnote(&tenant, &key, stream).await?;
        }
        claimed
    }

    fn claiming(&self, noted: &str) -> &Mutex<()> {
        let hash = noted
            .bytes()
            .fold(0_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let [first, ..] = &self.claiming;
        self.claiming.get(hash % CLAIMING).unwrap_or(first)
    }

    /// A key of a tenant that lives in memory while others share the store: a run, or a note of one
    /// that is gone.
    async fn find_noted(&self, tenant: &str, key: &str) -> Result<Option<Found>, JournalError> {
        let noted = noted_key(key);
        let _claiming = self.claiming(&noted).lock().await;
        match self.memory.find(tenant, key).await? {
            None => {}
            found => return Ok(found),
        }
        match self.stored.find(tenant, key).await? {
            None => self.stored.find(tenant, &noted).await,
            found => Ok(found),
        }
    }

    /// Where a stream lives.
    fn home_of(&self, stream: Uuid) -> &dyn Store {
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
        Some(self.home_of(stream))
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
        let (home, other): (&dyn Store, &dyn Store) = match is_private {
            true => (memory, &*self.stored),
            false => (&*self.stored, memory),
        };
        // From before the tenant's rule was changed.
        match other.find(&claim.tenant, &claim.key).await? {
            Some(Found::Run(run)) => Ok(Claimed { run, is_new: false }),
            Some(Found::Expired) => Err(expired(&claim.key)),
            None => {
                claim.turns_elsewhere = last_turn(other, &claim.tenant, &claim.session).await?;
                // Nothing new begins there, so that what is left only grows.
                let elsewhere = other.usage(&claim.tenant, &claim.session).await?;
                let left = quota.less(&elsewhere, claim.created_at);
                if is_private && self.stored.is_shared() {
                    return self.claim_noted(claim, &left).await;
                }
                home.claim(claim, &left).await
            }
        }
    }

    /// What may wait is counted in both.
    async fn transition(&self, mut step: Transition) -> Result<bool> {
        let to = &step.to;
        if step.quota.waiting.is_some() {
            let is_here = self.memory.holds(to.stream_id);
            let other: &dyn Store = if is_here { &*self.stored } else { &self.memory };
            let elsewhere = other.usage(&to.tenant, &to.session).await?;
            step.quota = step.quota.less(&elsewhere, to.updated_at);
        }
        self.home_of(to.stream_id).transition(step).await
    }

    async fn read_on(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Piece> {
        self.home_of(id).read_on(id, after, most, bytes).await
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>> {
        if self.stored.is_shared() && (self.is_private)(tenant) {
            return self.find_noted(tenant, key).await;
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
    /// A session that lives in both, since the rule was changed under it, is put in order of its
    /// runs, by ids that no clock that is set puts out of order, and numbered anew.
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

    /// A session from before and after a change of the rule counts twice, until its older half
    /// expires.
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

    /// What lives in memory has no other process. Where the store is asked again and again for what
    /// others have left, that is never theirs.
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

/// No lease ends what lives in this process's memory, and nobody else reads it.
impl Cluster for SplitStore {}

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

/// A key as the store may know it: it tells nothing.
fn noted_key(key: &str) -> String {
    use sha2::{Digest as _, Sha256};
    use std::fmt::Write as _;
    Sha256::digest(key.as_bytes()).iter().fold("unstored:".to_owned(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The number of a session's last turn.
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
    async fn memory_is_asked_only_once_somebody_may_not_be_stored() {
        let split = SplitStore::new(
            Arc::new(MemoryStore::default()),
            Arc::new(|tenant| tenant == "private"),
        );
        let claim = |tenant: &str| Claim::new(tenant, "k", Uuid::now_v7(), Timestamp::now());
        // Nobody can put anything there behind its back; whoever asks would find it.
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
