//! `memory:`: a store in memory, for tests and first steps. Its data is lost with the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_protocol::Timestamp;
use tokio::sync::watch;
use uuid::Uuid;

use crate::backend::planted_bug::{self, Bug};
use crate::backend::rules::{self, expired, not_found, shown};
use crate::page::Pager;
use crate::quota::{Rates, Tally};
use crate::retention::Judge;
use crate::rollup::Hours;
use crate::tokens::TokensBy;
use crate::{
    ArmedBy, Catalog, Claim, Claimed, ErrorKind, Expired, Found, Frame, Health, JournalError,
    Layer, Named, Piece, Query, Quota, Records, Result, Retention, Rollup, Run, RunPage, RunState,
    Secret, Sessions, Stats, Store, StoredTurn, Transition, TurnRange, Usage,
};

/// A store in memory.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    secret: OnceLock<Secret>,
    hours: Mutex<Hours>,
    health: watch::Sender<Health>,
}

#[derive(Debug, Default)]
struct State {
    streams: BTreeMap<Uuid, Stream>,
    claims: HashMap<(String, String), StoredClaim>,
    /// Tenants and keys of deleted streams whose claims are still held.
    gone: HashMap<Uuid, (String, String)>,
    sessions: BTreeMap<(String, String), Session>,
    /// The stored bytes and the number of sessions, by tenant.
    held: HashMap<String, TenantUsage>,
    open: Tally,
    rates: Rates<String>,
    tokens: TokensBy<String>,
    is_closed: bool,
}

#[derive(Debug)]
struct Stream {
    run: Run,
    body: Bytes,
    // In order of `seq`, with at most one gap.
    frames: Vec<Frame>,
}

#[derive(Debug)]
struct StoredClaim {
    stream: Uuid,
    gone_at: Option<Timestamp>,
}

/// An entry that retention can delete. Of the same time, streams go before sessions.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deletable {
    Stream(Uuid),
    Session((String, String)),
}

#[derive(Debug, Default, Clone, Copy)]
struct TenantUsage {
    bytes: u64,
    sessions: u64,
}

#[derive(Debug)]
struct Session {
    used_at: Timestamp,
    /// In order of their numbers.
    turns: Vec<EncodedTurn>,
    last_turn: u64,
    bytes: u64,
}

/// A turn as text, because a JSON tree would take many times the memory.
#[derive(Debug)]
struct EncodedTurn {
    number: u64,
    stream: Uuid,
    text: Box<str>,
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> Result<MutexGuard<'_, State>, JournalError> {
        let state = self.lock();
        if state.is_closed {
            return Err(JournalError::new(ErrorKind::Unavailable, "the journal is closed"));
        }
        Ok(state)
    }
}

impl MemoryStore {
    /// Whether this store has the stream.
    pub(crate) fn holds(&self, stream: Uuid) -> bool {
        self.lock().streams.contains_key(&stream)
    }
}

impl State {
    fn claim(&mut self, claim: Claim, quota: &Quota) -> Result<Claimed, JournalError> {
        let key = (claim.tenant.clone(), claim.key.clone());
        if let Some(held) = self.claims.get(&key)
            && !planted_bug::is(Bug::DoubleClaim)
        {
            let stream = self.streams.get(&held.stream).ok_or_else(|| expired(&claim.key))?;
            return Ok(Claimed { run: shown(stream.run.clone()), is_new: false });
        }
        if let Some(asker) = claim.answers {
            let asked = self.streams.get(&asker).map(|stream| stream.run.clone());
            let answered = rules::answer(asked, &claim)?;
            self.admit(&claim, quota)?;
            self.streams
                .get_mut(&asker)
                .into_iter()
                .for_each(|stream| stream.run = answered.clone());
        } else {
            self.admit(&claim, quota)?;
        }
        let mut run = claim.to_run();
        run.turns_before += self.touch(&claim.tenant, &claim.session, claim.created_at).last_turn;
        self.claims.insert(key, StoredClaim { stream: claim.stream_id, gone_at: None });
        self.open.add(&run, claim.body.len() as u64);
        self.change_bytes(&claim.tenant, 0, claim.body.len() as u64);
        self.streams.insert(
            claim.stream_id,
            Stream { run: run.clone(), body: claim.body, frames: Vec::new() },
        );
        Ok(Claimed { run, is_new: true })
    }

    /// Checks the claim against its tenant's quota. Call it last: it counts the claim towards the
    /// rate.
    fn admit(&mut self, claim: &Claim, quota: &Quota) -> Result<(), JournalError> {
        let used = self.usage(&claim.tenant, &claim.session);
        quota.check(&used, claim.body.len() as u64)?;
        quota.check_tokens(&used.tokens, claim.created_at)?;
        Ok(self.rates.take(claim.tenant.clone(), quota, Instant::now())?)
    }

    fn usage(&self, tenant: &str, session: &str) -> Usage {
        let open = self.open.usage(tenant, session);
        let held = self.held.get(tenant).copied().unwrap_or_default();
        let session = self.sessions.get(&(tenant.to_owned(), session.to_owned()));
        Usage {
            sessions: held.sessions,
            bytes: held.bytes,
            has_session: session.is_some(),
            messages: open.messages + session.map_or(0, |session| session.turns.len() as u64),
            session_bytes: open.session_bytes + session.map_or(0, |session| session.bytes),
            tokens: self.tokens.get(tenant),
            ..open
        }
    }

    /// Updates the stored bytes of a tenant.
    fn change_bytes(&mut self, tenant: &str, before: u64, after: u64) {
        self.change_usage(tenant, |held| {
            held.bytes = held.bytes.saturating_add(after).saturating_sub(before)
        });
    }

    fn change_usage(&mut self, tenant: &str, change: impl FnOnce(&mut TenantUsage)) {
        match self.held.get_mut(tenant) {
            Some(held) => change(held),
            None => change(self.held.entry(tenant.to_owned()).or_default()),
        }
        if self.held.get(tenant).is_some_and(|held| held.bytes == 0 && held.sessions == 0) {
            self.held.remove(tenant);
        }
    }

    /// Changes a run's state; false if another writer was faster.
    fn transition(&mut self, step: Transition) -> Result<bool, JournalError> {
        let Transition { from, to, frames, turn, quota } = step;
        let Self { streams, open, tokens, .. } = self;
        let stream = streams.get_mut(&to.stream_id).ok_or_else(|| not_found(to.stream_id))?;
        if !rules::check_transition(&stream.run, from, &frames)? {
            return Ok(false);
        }
        if to.state == RunState::Waiting && stream.run.state != RunState::Waiting {
            quota.check_waiting(open.waiting(&stream.run.tenant))?;
        }
        let body_bytes = stream.body.len() as u64;
        let turn = turn.map(|turn| (turn.closed_at, turn));
        open.remove(&stream.run, body_bytes);
        tokens.add(stream.run.tenant.clone(), rules::tokens_used(&stream.run, &to), to.updated_at);
        stream.run = rules::advance(&stream.run, to, &[]);
        open.add(&stream.run, body_bytes);
        let before = stream.size();
        stream.push(frames);
        let (after, Run { tenant, session, .. }) = (stream.size(), stream.run.clone());
        self.change_bytes(&tenant, before, after);
        if let Some((closed_at, turn)) = turn {
            let added = self.touch(&tenant, &session, closed_at).push(turn)?;
            self.change_bytes(&tenant, 0, added);
        }
        Ok(true)
    }

    fn append(&mut self, id: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<(), JournalError> {
        let Self { streams, held, .. } = self;
        let stream = streams.get_mut(&id).ok_or_else(|| not_found(id))?;
        rules::check_append(&stream.run, attempt, &frames)?;
        let before = stream.size();
        stream.push(frames);
        if let Some(held) = held.get_mut(&stream.run.tenant) {
            held.bytes = held.bytes.saturating_add(stream.size() - before);
        } else {
            let (tenant, after) = (stream.run.tenant.clone(), stream.size());
            self.change_bytes(&tenant, before, after);
        }
        Ok(())
    }

    fn open_in(&self, state: RunState, limit: usize, is_due: impl Fn(&Run) -> bool) -> Vec<Run> {
        let runs = self.streams.values().map(|stream| &stream.run);
        let runs = runs.filter(|run| run.state == state && is_due(run));
        runs.take(limit).map(|run| shown(run.clone())).collect()
    }

    fn touch(&mut self, tenant: &str, session: &str, now: Timestamp) -> &mut Session {
        let key = (tenant.to_owned(), session.to_owned());
        if !self.sessions.contains_key(&key) {
            self.change_usage(tenant, |held| held.sessions += 1);
        }
        let session = self.sessions.entry(key).or_insert_with(|| Session {
            used_at: now,
            turns: Vec::new(),
            last_turn: 0,
            bytes: 0,
        });
        session.used_at = session.used_at.max(now);
        session
    }

    /// Removes a session.
    fn forget(&mut self, key: &(String, String)) -> bool {
        let Some(session) = self.sessions.remove(key) else { return false };
        self.change_usage(&key.0, |held| {
            held.sessions = held.sessions.saturating_sub(1);
            held.bytes = held.bytes.saturating_sub(session.bytes);
        });
        true
    }

    /// The closed streams and unused sessions that retention has to delete, oldest first, with
    /// their sizes.
    fn due(&self, retention: &Retention, now: Timestamp) -> Vec<(Deletable, u64)> {
        let sizes = self.held.iter().map(|(tenant, held)| (tenant.clone(), held.bytes)).collect();
        let closed = self.streams.iter().filter_map(|(id, stream)| {
            Some((stream.run.closed_at?, Deletable::Stream(*id), &stream.run.tenant, stream.size()))
        });
        let is_idle = |key: &(String, String)| self.open.usage(&key.0, &key.1).messages == 0;
        let unused = self.sessions.iter().filter(|(key, _)| is_idle(key));
        let unused = unused.map(|(key, session)| {
            (session.used_at, Deletable::Session(key.clone()), &key.0, session.bytes)
        });
        let mut all: Vec<_> = closed.chain(unused).collect();
        all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut judge = Judge::new(retention, now, &sizes);
        all.retain(|(at, _, tenant, size)| judge.is_due(tenant, *at, *size));
        all.into_iter().map(|(_, kept, _, size)| (kept, size)).collect()
    }

    fn retire(&mut self, id: Uuid, now: Timestamp) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.change_bytes(&stream.run.tenant, stream.size(), 0);
        let owner = (stream.run.tenant, stream.run.key);
        if let Some(held) = self.claims.get_mut(&owner) {
            held.gone_at = Some(now);
            self.gone.insert(id, owner);
        }
    }
}

impl Session {
    /// Stores a turn under the next number. Returns its size.
    fn push(&mut self, turn: StoredTurn) -> Result<u64, JournalError> {
        let (number, stream) = (self.last_turn + 1, turn.stream_id);
        let text = serde_json::to_string(&StoredTurn { number, ..turn })
            .map_err(unreadable)?
            .into_boxed_str();
        let bytes = text.len() as u64;
        self.turns.push(EncodedTurn { number, stream, text });
        (self.last_turn, self.bytes) = (number, self.bytes + bytes);
        Ok(bytes)
    }

    /// Removes the turn of a stream. Returns its size.
    fn forget(&mut self, stream: Uuid) -> u64 {
        let before = self.bytes;
        self.turns.retain(|turn| {
            let is_kept = turn.stream != stream;
            self.bytes -= if is_kept { 0 } else { turn.text.len() as u64 };
            is_kept
        });
        before - self.bytes
    }
}

fn unreadable(error: serde_json::Error) -> JournalError {
    JournalError::new(ErrorKind::Unsupported, "a turn cannot be stored").caused_by(error)
}

impl Stream {
    fn size(&self) -> u64 {
        self.run.bytes + self.body.len() as u64
    }

    fn push(&mut self, frames: Vec<Frame>) {
        rules::count(&mut self.run.last_seq, &mut self.run.bytes, &frames);
        self.frames.extend(frames);
    }
}

impl Layer for MemoryStore {}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Records for MemoryStore {
    async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed> {
        self.write()?.claim(claim, quota)
    }

    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>> {
        Ok(self.lock().streams.get(&stream).map(|stream| stream.body.clone()))
    }

    async fn append(&self, stream: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<()> {
        self.write()?.append(stream, attempt, frames)
    }

    async fn transition(&self, step: Transition) -> Result<bool> {
        self.write()?.transition(step)
    }

    async fn mark_sent(&self, stream: Uuid, at: Timestamp) -> Result<bool> {
        let mut state = self.write()?;
        let closed = state.streams.get_mut(&stream).filter(|stream| !stream.run.is_open());
        Ok(closed.map(|stream| stream.run.sent_at = Some(at)).is_some())
    }

    async fn read(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Vec<Frame>> {
        let state = self.lock();
        let Some(stream) = state.streams.get(&id) else { return Ok(Vec::new()) };
        let start = stream.frames.partition_point(|frame| frame.seq <= after);
        let (mut found, mut size) = (Vec::new(), 0);
        for frame in stream.frames.iter().skip(start).take(most.max(1)) {
            size += frame.bytes.len();
            if size > bytes && !found.is_empty() {
                break;
            }
            found.push(frame.clone());
        }
        Ok(found)
    }

    async fn read_on(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Piece> {
        Ok(rules::piece(self.read(id, after, most, bytes).await?))
    }

    async fn run(&self, stream: Uuid) -> Result<Option<Run>> {
        Ok(self.lock().streams.get(&stream).map(|stream| shown(stream.run.clone())))
    }

    async fn is_tail_certain(&self, _stream: Uuid) -> Result<bool> {
        Ok(true)
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>> {
        let state = self.lock();
        let Some(held) = state.claims.get(&(tenant.to_owned(), key.to_owned())) else {
            return Ok(None);
        };
        let stream = state.streams.get(&held.stream);
        Ok(Some(stream.map_or(Found::Expired, |stream| Found::Run(shown(stream.run.clone())))))
    }

    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool> {
        Ok(self.lock().gone.get(&stream).is_some_and(|(owner, _)| owner == tenant))
    }

    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool> {
        let mut state = self.write()?;
        let closed =
            state.streams.get(&stream).map(|stream| &stream.run).filter(|run| !run.is_open());
        let Some(Run { tenant, session, .. }) = closed.cloned() else { return Ok(false) };
        state.retire(stream, now);
        let key = (tenant, session);
        let freed = state.sessions.get_mut(&key).map_or(0, |session| session.forget(stream));
        state.change_bytes(&key.0, freed, 0);
        Ok(true)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Sessions for MemoryStore {
    async fn turns(&self, range: TurnRange<'_>) -> Result<Vec<StoredTurn>> {
        let TurnRange { tenant, session, from, limit, max_bytes } = range;
        let state = self.lock();
        let session = state.sessions.get(&(tenant.to_owned(), session.to_owned()));
        let turns = session.into_iter().flat_map(|session| &session.turns);
        let (mut room, mut is_first) = (max_bytes, true);
        let fits = |turn: &&EncodedTurn| {
            let left = room.checked_sub(turn.text.len());
            room = left.unwrap_or(0);
            std::mem::take(&mut is_first) || left.is_some()
        };
        let turns = turns.filter(|turn| turn.number >= from).take(limit).take_while(fits);
        turns.map(|turn| serde_json::from_str(&turn.text).map_err(unreadable)).collect()
    }

    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64> {
        let key = (tenant.to_owned(), session.to_owned());
        Ok(self.lock().sessions.get(&key).map_or(0, |session| session.turns.len() as u64))
    }

    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool> {
        Ok(self.lock().sessions.contains_key(&(tenant.to_owned(), session.to_owned())))
    }

    async fn sessions(&self, tenant: &str) -> Result<u64> {
        Ok(self.lock().held.get(tenant).map_or(0, |held| held.sessions))
    }

    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage> {
        Ok(self.lock().usage(tenant, session))
    }

    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool> {
        Ok(self.write()?.forget(&(tenant.to_owned(), session.to_owned())))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Catalog for MemoryStore {
    async fn list(&self, tenant: &str, before: Option<Uuid>, limit: usize) -> Result<Vec<Run>> {
        let state = self.lock();
        let older = state.streams.range(..before.unwrap_or(Uuid::max())).rev();
        let own = older.filter(|(_, stream)| stream.run.tenant == tenant);
        Ok(own.take(limit).map(|(_, stream)| shown(stream.run.clone())).collect())
    }

    async fn named(&self, named: Named<'_>) -> Result<Vec<Run>> {
        let state = self.lock();
        let Named { tenant, kind, name, before, limit } = named;
        let older = state
            .streams
            .range(..before.unwrap_or(Uuid::max()))
            .rev()
            .map(|(_, stream)| &stream.run);
        let own = older.filter(|run| run.tenant == tenant && kind.names(run, name));
        Ok(own.take(limit).map(|run| shown(run.clone())).collect())
    }

    async fn page(&self, query: Query) -> Result<RunPage> {
        let (state, mut pager) = (self.lock(), Pager::new(&query));
        let range = query.range(None).map(|range| state.streams.range(range).rev());
        // If only open runs are wanted, closed ones are skipped and do not count against the
        // budget.
        let counts = |stream: &Stream| !query.is_of_open() || stream.run.is_open();
        for (id, stream) in range.into_iter().flatten().filter(|(_, stream)| counts(stream)) {
            if !pager.goes_on() {
                return Ok(pager.page(false));
            }
            let run = query.matches(&stream.run).then(|| shown(stream.run.clone()));
            pager.looked(*id, run);
        }
        Ok(pager.page(true))
    }

    async fn orphans(&self, limit: usize) -> Result<Vec<Run>> {
        Ok(self.lock().open_in(RunState::Running, limit, |_| true))
    }

    async fn unarmed(&self, limit: usize) -> Result<Vec<Run>> {
        let is_unarmed = |run: &Run| run.armed_by == ArmedBy::Gateway;
        Ok(self.lock().open_in(RunState::Waiting, limit, is_unarmed))
    }

    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>> {
        Ok(self.lock().open_in(RunState::Waiting, limit, |run| run.updated_at < before))
    }

    async fn open_runs(&self) -> Result<Vec<Run>> {
        let state = self.lock();
        let open = state.streams.values().filter(|stream| stream.run.is_open());
        Ok(open.map(|stream| shown(stream.run.clone())).collect())
    }

    async fn add_rollups(&self, rollups: Vec<Rollup>) -> Result<()> {
        self.hours.lock().unwrap_or_else(PoisonError::into_inner).add(rollups);
        Ok(())
    }

    async fn rollups(&self, from: i64, to: i64) -> Result<Vec<Rollup>> {
        Ok(self.hours.lock().unwrap_or_else(PoisonError::into_inner).between(from, to))
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired> {
        let state = &mut *self.write()?;
        let mut report = Expired::default();
        for (kept, size) in state.due(retention, now) {
            report.bytes += size;
            match kept {
                Deletable::Stream(id) => {
                    state.retire(id, now);
                    report.streams += 1;
                }
                Deletable::Session(key) => report.sessions += u64::from(state.forget(&key)),
            }
        }
        let claims = state.claims.len();
        state.claims.retain(|_, held| {
            !held.gone_at.is_some_and(|at| retention.is_past(at, retention.claim_age, now))
        });
        state.gone.retain(|_, owner| state.claims.contains_key(owner));
        report.claims = (claims - state.claims.len()) as u64;
        Ok(report)
    }

    async fn secret(&self) -> Result<Secret> {
        let made = Secret::random().map_err(|error| {
            JournalError::new(ErrorKind::Unavailable, "the system has no random numbers")
                .caused_by(error)
        })?;
        Ok(self.secret.get_or_init(|| made).clone())
    }

    async fn close(&self) -> Result<()> {
        self.lock().is_closed = true;
        self.health.send_replace(Health::Unavailable("the journal is closed".into()));
        Ok(())
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    fn stats(&self) -> Stats {
        Stats { streams: self.lock().streams.len() as u64, ..Stats::default() }
    }
}
