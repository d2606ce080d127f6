//! Two stores as one: what belongs to tenants of whom nothing may be stored lives in memory, the
//! rest where it always did.
//!
//! A new claim goes where its tenant's rule says at that moment, and everything of its stream stays
//! there. Whatever is asked by tenant is asked of both, so that a rule that changes while streams
//! exist makes none of them vanish. Until the first claim of such a tenant nothing is in memory,
//! and nothing is asked there.
//!
//! Where several processes share the store such a tenant lives in the memory of one of them
//! ([`Store::home`]), and the store notes which of its keys are taken, as hashes: a duplicate
//! starts no second run even if that process is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_protocol::Timestamp;
use tokio::sync::{Mutex, mpsc, watch};
use uuid::Uuid;

use crate::backend::rules::expired;
use crate::memory::MemoryStore;
use crate::{
    BreakerNotice, Claim, Claimed, Elsewhere, Expired, Found, Frame, Frames, Health, Home,
    JournalError, Load, NameKind, News, Noted, Query, Quota, ReplicaState, Retention, Rollup, Run,
    RunPage, RunState, Secret, Stats, Store, StoredTurn, Tenure, Usage, Watch,
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

#[async_trait]
impl Store for SplitStore {
    async fn claim(&self, mut claim: Claim, quota: &Quota) -> Result<Claimed, JournalError> {
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

    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>, JournalError> {
        self.home_of(stream).body(stream).await
    }

    async fn append(
        &self,
        stream: Uuid,
        attempt: u32,
        frames: Vec<Frame>,
    ) -> Result<(), JournalError> {
        self.home_of(stream).append(stream, attempt, frames).await
    }

    async fn transition(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        turn: Option<StoredTurn>,
    ) -> Result<bool, JournalError> {
        self.home_of(to.stream_id).transition(from, to, frames, turn).await
    }

    async fn suspend(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        quota: &Quota,
    ) -> Result<bool, JournalError> {
        let is_here = self.memory.holds(to.stream_id);
        let other: &dyn Store = if is_here { &*self.stored } else { &self.memory };
        let elsewhere = other.usage(&to.tenant, &to.session).await?;
        let left = quota.less(&elsewhere, to.updated_at);
        self.home_of(to.stream_id).suspend(from, to, frames, &left).await
    }

    async fn read(
        &self,
        stream: Uuid,
        after: u64,
        max_packets: usize,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, JournalError> {
        self.home_of(stream).read(stream, after, max_packets, max_bytes).await
    }

    async fn read_on(
        &self,
        stream: Uuid,
        after: u64,
        max_packets: usize,
        max_bytes: usize,
    ) -> Result<Option<(Frames, u64)>, JournalError> {
        self.home_of(stream).read_on(stream, after, max_packets, max_bytes).await
    }

    async fn run(&self, stream: Uuid) -> Result<Option<Run>, JournalError> {
        self.home_of(stream).run(stream).await
    }

    async fn is_tail_certain(&self, stream: Uuid) -> Result<bool, JournalError> {
        self.home_of(stream).is_tail_certain(stream).await
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>, JournalError> {
        if self.stored.is_shared() && (self.is_private)(tenant) {
            return self.find_noted(tenant, key).await;
        }
        let Some(memory) = self.memory() else { return self.stored.find(tenant, key).await };
        match memory.find(tenant, key).await? {
            None => self.stored.find(tenant, key).await,
            found => Ok(found),
        }
    }

    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool, JournalError> {
        Ok(self.memory.is_expired(tenant, stream).await?
            || self.stored.is_expired(tenant, stream).await?)
    }

    async fn list(
        &self,
        tenant: &str,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        let Some(memory) = self.memory() else {
            return self.stored.list(tenant, before, limit).await;
        };
        let runs = memory.list(tenant, before, limit).await?;
        Ok(newest(runs, self.stored.list(tenant, before, limit).await?, limit))
    }

    async fn named(
        &self,
        tenant: &str,
        kind: NameKind,
        name: &str,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        let Some(memory) = self.memory() else {
            return self.stored.named(tenant, kind, name, before, limit).await;
        };
        let runs = memory.named(tenant, kind, name, before, limit).await?;
        Ok(newest(runs, self.stored.named(tenant, kind, name, before, limit).await?, limit))
    }

    async fn page(&self, query: Query) -> Result<RunPage, JournalError> {
        let Some(memory) = self.memory() else { return self.stored.page(query).await };
        let here = memory.page(query.clone()).await?;
        let limit = query.limit.clamp(1, Query::MOST);
        Ok(here.and(self.stored.page(query).await?, limit))
    }

    /// What lives in memory has no other process. Where the store is asked again and again for what
    /// others have left, that is never theirs.
    async fn orphans(&self, limit: usize) -> Result<Vec<Run>, JournalError> {
        if self.stored.is_shared() {
            return self.stored.orphans(limit).await;
        }
        let mut runs = self.memory.orphans(limit).await?;
        runs.extend(self.stored.orphans(limit - runs.len()).await?);
        Ok(runs)
    }

    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>, JournalError> {
        let mut runs = self.memory.waiting(before, limit).await?;
        runs.extend(self.stored.waiting(before, limit - runs.len()).await?);
        Ok(runs)
    }

    async fn unarmed(&self, limit: usize) -> Result<Vec<Run>, JournalError> {
        let mut runs = self.memory.unarmed(limit).await?;
        runs.extend(self.stored.unarmed(limit - runs.len()).await?);
        Ok(runs)
    }

    async fn open_runs(&self) -> Result<Vec<Run>, JournalError> {
        let mut runs = self.memory.open_runs().await?;
        runs.extend(self.stored.open_runs().await?);
        Ok(runs)
    }

    /// A session that lives in both, since the rule was changed under it, is put in order of its
    /// runs, by ids that no clock that is set puts out of order, and numbered anew.
    async fn turns(
        &self,
        tenant: &str,
        session: &str,
        from: u64,
        limit: usize,
        max_bytes: usize,
    ) -> Result<Vec<StoredTurn>, JournalError> {
        let Some(memory) = self.memory() else {
            return self.stored.turns(tenant, session, from, limit, max_bytes).await;
        };
        if memory.turn_count(tenant, session).await? == 0 {
            return self.stored.turns(tenant, session, from, limit, max_bytes).await;
        }
        if self.stored.turn_count(tenant, session).await? == 0 {
            return memory.turns(tenant, session, from, limit, max_bytes).await;
        }
        let mut turns = memory.turns(tenant, session, 0, usize::MAX, usize::MAX).await?;
        turns.extend(self.stored.turns(tenant, session, 0, usize::MAX, usize::MAX).await?);
        turns.sort_by_key(|turn| turn.stream_id);
        let numbered =
            turns.into_iter().zip(1..).map(|(turn, number)| StoredTurn { number, ..turn });
        Ok(numbered.filter(|turn| turn.number >= from).take(limit).collect())
    }

    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64, JournalError> {
        let stored = self.stored.turn_count(tenant, session).await?;
        let Some(memory) = self.memory() else { return Ok(stored) };
        Ok(stored + memory.turn_count(tenant, session).await?)
    }

    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError> {
        Ok(self.memory.has_session(tenant, session).await?
            || self.stored.has_session(tenant, session).await?)
    }

    /// A session from before and after a change of the rule counts twice, until its older half
    /// expires.
    async fn sessions(&self, tenant: &str) -> Result<u64, JournalError> {
        Ok(self.memory.sessions(tenant).await? + self.stored.sessions(tenant).await?)
    }

    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage, JournalError> {
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

    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool, JournalError> {
        self.home_of(stream).purge(stream, now).await
    }

    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError> {
        let here = self.memory.purge_session(tenant, session).await?;
        Ok(self.stored.purge_session(tenant, session).await? || here)
    }

    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired, JournalError> {
        let mut report = self.memory.expire(retention, now).await?;
        report += self.stored.expire(retention, now).await?;
        Ok(report)
    }

    async fn add_rollups(&self, rollups: Vec<Rollup>) -> Result<(), JournalError> {
        self.stored.add_rollups(rollups).await
    }

    async fn rollups(&self, from: i64, to: i64) -> Result<Vec<Rollup>, JournalError> {
        self.stored.rollups(from, to).await
    }

    async fn secret(&self) -> Result<Secret, JournalError> {
        self.stored.secret().await
    }

    fn is_shared(&self) -> bool {
        self.stored.is_shared()
    }

    fn news(&self) -> Option<mpsc::Receiver<News>> {
        self.stored.news()
    }

    fn watch(&self, stream: Uuid) -> Option<Watch> {
        self.home_of(stream).watch(stream)
    }

    fn tenure(&self) -> Tenure {
        self.stored.tenure()
    }

    /// No lease ends what lives in this process's memory.
    fn tenure_of(&self, stream: Uuid) -> Tenure {
        self.home_of(stream).tenure_of(stream)
    }

    async fn home(&self, tenant: &str, may_move_in: bool) -> Result<Home, JournalError> {
        self.stored.home(tenant, may_move_in).await
    }

    async fn note(
        &self,
        tenant: &str,
        key: &str,
        stream: Uuid,
        now: Timestamp,
    ) -> Result<Noted, JournalError> {
        self.stored.note(tenant, key, stream, now).await
    }

    async fn unnote(&self, tenant: &str, key: &str, stream: Uuid) -> Result<(), JournalError> {
        self.stored.unnote(tenant, key, stream).await
    }

    async fn breakers(&self) -> Result<Vec<BreakerNotice>, JournalError> {
        self.stored.breakers().await
    }

    async fn set_breaker(&self, notice: &BreakerNotice) -> Result<(), JournalError> {
        self.stored.set_breaker(notice).await
    }

    fn outdated(&self) -> watch::Receiver<bool> {
        self.stored.outdated()
    }

    fn replica_name(&self) -> Option<&str> {
        self.stored.replica_name()
    }

    async fn ask_stop(&self, stream: Uuid, attempt: u32) -> Result<bool, JournalError> {
        self.home_of(stream).ask_stop(stream, attempt).await
    }

    async fn is_stop_asked(&self, stream: Uuid) -> Result<bool, JournalError> {
        self.home_of(stream).is_stop_asked(stream).await
    }

    /// Who lives in memory is read there alone.
    fn mark_read(&self, stream: Uuid, is_read: bool) {
        self.home_of(stream).mark_read(stream, is_read);
    }

    async fn take_unread(&self, stream: Uuid) -> Result<bool, JournalError> {
        self.home_of(stream).take_unread(stream).await
    }

    async fn elsewhere(&self, stream: Uuid, tenant: &str) -> Result<Elsewhere, JournalError> {
        self.home_of(stream).elsewhere(stream, tenant).await
    }

    fn expect(&self, tenant: &str, within: Duration) {
        self.stored.expect(tenant, within);
    }

    fn stops(&self) -> Option<mpsc::Receiver<Uuid>> {
        self.stored.stops()
    }

    async fn replicas(&self) -> Result<Vec<ReplicaState>, JournalError> {
        self.stored.replicas().await
    }

    fn set_load(&self, load: Load) {
        self.stored.set_load(load);
    }

    fn drain(&self) {
        self.stored.drain();
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.stored.health()
    }

    fn newest(&self) -> Option<Timestamp> {
        self.stored.newest()
    }

    fn stats(&self) -> Stats {
        let stored = self.stored.stats();
        Stats { streams: stored.streams + self.memory.stats().streams, ..stored }
    }

    async fn close(&self) -> Result<(), JournalError> {
        self.memory.close().await?;
        self.stored.close().await
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
    let turns = store.turns(tenant, session, 0, usize::MAX, usize::MAX).await?;
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
