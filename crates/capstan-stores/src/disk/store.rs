//! The disk store as a [`Store`]. It sends commands to the writer, and reads in background threads.

use std::ops::Bound;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use bytes::Bytes;
use capstan_journal::backend::rules;
use capstan_journal::{
    Catalog, Claim, Claimed, Cluster, ErrorKind, Expired, Found, Frame, Health, JournalError,
    Layer, NameKind, Named, Piece, Query, Quota, Records, Result, Retention, Rollup, Run, RunCopy,
    RunPage, RunState, Secret, SessionCopy, Sessions, Stats, Store, StoredTurn, Transfer,
    Transition, TurnRange, Usage,
};
use capstan_protocol::Timestamp;
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use super::record::WrittenTurn;
use super::shared::Shared;
use super::task::Task;
use super::writer::Command;
use super::{DiskStore, LARGE_READ, browse, closed, names, view};

/// The most runs whose records are read without a large share.
const SHORT_LIST: usize = 16;
/// The most bytes of a turn that are encoded in the runtime's thread.
const SHORT_TURN: usize = 64 * 1024;

impl Layer for DiskStore {}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Records for DiskStore {
    async fn claim(&self, claim: Claim, quota: &Quota) -> Result<Claimed> {
        let stream = claim.stream_id;
        let claimed = self.ask(|reply| Command::Claim(Box::new(claim), *quota, reply)).await?;
        let settled = self.shared.syncs.settled(claimed.run.stream_id).await;
        if let (Err(_), true, Some(commands)) = (&settled, claimed.is_new, &self.commands) {
            // The caller gets an error, so the claim must not take effect.
            let _ = commands.send(Command::Withdraw { stream }).await;
        }
        settled.map(|()| claimed)
    }

    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>> {
        self.view_much_of(self.owner_of(stream), LARGE_READ, move |shared| {
            view::body(shared, stream)
        })
        .await
    }

    async fn append(&self, stream: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<()> {
        match self.append_at_once(stream, attempt, &frames) {
            Some(appended) => appended,
            None => self.ask(|reply| Command::Append { stream, attempt, frames, reply }).await,
        }
    }

    async fn transition(&self, step: Transition) -> Result<bool> {
        let Transition { from, to, frames, turn, quota } = step;
        let turn = match turn {
            Some(turn) => Some(Box::new(written(turn).await?)),
            None => None,
        };
        let (stream, to) = (to.stream_id, Box::new(to));
        let is_done =
            self.ask(|reply| Command::Transition { from, to, frames, turn, quota, reply }).await?;
        self.shared.syncs.settled(stream).await?;
        Ok(is_done)
    }

    async fn mark_sent(&self, stream: Uuid, at: Timestamp) -> Result<bool> {
        self.ask(|reply| Command::MarkSent { stream, at, reply }).await
    }

    async fn read(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Vec<Frame>> {
        let read = move |shared: &Shared| view::read(shared, id, after, most, bytes);
        let frames = self.view_of(self.owner_of(id), read).await?;
        self.shared.syncs.settled(id).await?;
        Ok(frames)
    }

    async fn read_on(&self, id: Uuid, after: u64, most: usize, bytes: usize) -> Result<Piece> {
        let read = move |shared: &Shared| view::read_on(shared, id, after, most, bytes);
        let frames = self.view_of(self.owner_of(id), read).await?;
        self.shared.syncs.settled(id).await?;
        Ok(frames)
    }

    async fn run(&self, stream: Uuid) -> Result<Option<Run>> {
        let run =
            self.view_of(self.owner_of(stream), move |shared| view::run(shared, stream)).await?;
        self.shared.syncs.settled(stream).await?;
        Ok(run)
    }

    async fn is_tail_certain(&self, stream: Uuid) -> Result<bool> {
        let boot = self.boot.clone();
        self.view(move |shared| {
            let Some(record) = view::record(shared, stream)? else { return Ok(true) };
            // A transition also syncs everything that was written before it.
            let is_synced = record.run.state != RunState::Running || record.boot.is_none();
            Ok(record.run.lost_after.is_none() && (is_synced || record.boot == boot))
        })
        .await
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>> {
        let reader = self.shared.names.tenant(tenant);
        let (tenant, key) = (tenant.to_owned(), key.to_owned());
        let found =
            self.view_of(Some(reader), move |shared| view::find(shared, &tenant, &key)).await?;
        if let Some(Found::Run(run)) = &found {
            self.shared.syncs.settled(run.stream_id).await?;
        }
        Ok(found)
    }

    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool> {
        let tenant = self.shared.names.tenant(tenant);
        let index = self.shared.index();
        let gone = index.gone.get(&stream).filter(|gone| gone.is_claim_kept());
        Ok(gone.and_then(|gone| gone.summary).is_some_and(|summary| summary.tenant == tenant))
    }

    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool> {
        let turn = view::turn_of(&self.shared, stream);
        if !self.ask(|reply| Command::Purge { stream, now, reply }).await? {
            return Ok(false);
        }
        self.shared.syncs.settled(stream).await?;
        self.erase(vec![stream], turn).await?;
        Ok(true)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Sessions for DiskStore {
    async fn turns(&self, range: TurnRange<'_>) -> Result<Vec<StoredTurn>> {
        let TurnRange { tenant, session, from, limit, max_bytes } = range;
        let reader = self.shared.names.tenant(tenant);
        let (tenant, session) = (tenant.to_owned(), session.to_owned());
        let read =
            move |shared: &Shared| view::turns(shared, &tenant, &session, from, limit, max_bytes);
        let turns = self.view_much_of(Some(reader), LARGE_READ, read).await?;
        for turn in &turns {
            self.shared.syncs.settled(turn.stream_id).await?;
        }
        Ok(turns)
    }

    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64> {
        let name = self.shared.names.of(tenant, NameKind::Session, session);
        let index = self.shared.index();
        let session = index.session_ids.get(&name).and_then(|id| index.sessions.get(id));
        Ok(session.map_or(0, |session| session.turns))
    }

    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool> {
        let name = self.shared.names.of(tenant, NameKind::Session, session);
        Ok(self.shared.index().session_ids.contains_key(&name))
    }

    async fn sessions(&self, tenant: &str) -> Result<u64> {
        let tenant = self.shared.names.tenant(tenant);
        Ok(self.shared.index().sessions_of.get(&tenant).copied().unwrap_or(0))
    }

    async fn usage(&self, tenant: &str, session: &str) -> Result<Usage> {
        let (tenant, session) = (tenant.to_owned(), session.to_owned());
        self.view(move |shared| Ok(view::usage(shared, &tenant, &session))).await
    }

    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool> {
        let name = self.shared.names.of(tenant, NameKind::Session, session);
        // The session's expired streams were not overwritten before.
        let leftovers = self.shared.index().leftovers(name);
        if !leftovers.is_empty() {
            self.erase(leftovers, None).await?;
        }
        let Some(session) = self.shared.index().session_ids.get(&name).copied() else {
            return Ok(false);
        };
        let now = Timestamp::now();
        let command = |reply| Command::ForgetSession { session, unused_since: None, now, reply };
        if !self.ask(command).await? {
            return Ok(false);
        }
        self.shared.syncs.settled(session).await?;
        self.erase(vec![session], None).await?;
        Ok(true)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Catalog for DiskStore {
    async fn list(&self, tenant: &str, before: Option<Uuid>, limit: usize) -> Result<Vec<Run>> {
        let tenant = self.shared.names.tenant(tenant);
        self.listed(tenant, tenant, before, limit).await
    }

    async fn named(&self, named: Named<'_>) -> Result<Vec<Run>> {
        let Named { tenant, kind, name, before, limit } = named;
        let name = self.shared.names.of(tenant, kind, name);
        self.listed(self.shared.names.tenant(tenant), name, before, limit).await
    }

    async fn page(&self, query: Query) -> Result<RunPage> {
        let _turn = self.browsers.acquire().await.map_err(|_| closed())?;
        let page = self.view(move |shared| browse::page(shared, &query)).await?;
        for run in &page.runs {
            self.shared.syncs.settled(run.stream_id).await?;
        }
        Ok(page)
    }

    async fn orphans(&self, limit: usize) -> Result<Vec<Run>> {
        self.open_in(RunState::Running, None, limit).await
    }

    async fn unarmed(&self, limit: usize) -> Result<Vec<Run>> {
        Ok(rules::unarmed(self.open_runs().await?, limit))
    }

    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>> {
        self.open_in(RunState::Waiting, Some(before), limit).await
    }

    async fn open_runs(&self) -> Result<Vec<Run>> {
        self.view(|shared| {
            let streams: Vec<_> = shared.index().open.iter().copied().collect();
            streams.into_iter().filter_map(|stream| view::run(shared, stream).transpose()).collect()
        })
        .await
    }

    async fn add_rollups(&self, rollups: Vec<Rollup>) -> Result<()> {
        let here = self.rollups.clone();
        self.view(move |_| here.add(rollups)).await
    }

    async fn rollups(&self, from: i64, to: i64) -> Result<Vec<Rollup>> {
        let _turn = self.browsers.acquire().await.map_err(|_| closed())?;
        let here = self.rollups.clone();
        self.view(move |_| Ok(here.between(from, to))).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Store for DiskStore {
    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired> {
        self.expire_all(retention, now).await
    }

    async fn secret(&self) -> Result<Secret> {
        Ok(self.secret.clone())
    }

    async fn close(&self) -> Result<()> {
        self.ask(Command::Close).await?;
        let (reply, answer) = oneshot::channel();
        self.tasks.send(Task::Save(reply)).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    fn newest(&self) -> Option<Timestamp> {
        let index = self.shared.index();
        let times = [index.used.last(), index.closed.last(), index.gone_at.last()];
        times.into_iter().flatten().map(|(at, _)| *at).max()
    }

    fn stats(&self) -> Stats {
        let index = self.shared.index();
        let (disk_bytes, live_bytes) = index.sizes();
        Stats {
            disk_bytes,
            live_bytes,
            segments: index.segments.len() as u64,
            streams: index.streams.len() as u64,
            damaged: self.shared.damaged.load(Ordering::Relaxed),
            is_low_on_space: self.shared.is_low.load(Ordering::Relaxed),
            shared: None,
        }
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        None
    }

    fn transfer(&self) -> Option<&dyn Transfer> {
        Some(self)
    }
}

#[async_trait]
impl Transfer for DiskStore {
    async fn runs_after(&self, after: Uuid, limit: usize) -> Result<Vec<Run>> {
        self.view(move |shared| {
            let range = (Bound::Excluded(after), Bound::Unbounded);
            let streams: Vec<_> = shared
                .index()
                .streams
                .range(range)
                .take(limit)
                .map(|(stream, _)| *stream)
                .collect();
            streams.into_iter().filter_map(|stream| view::run(shared, stream).transpose()).collect()
        })
        .await
    }

    async fn import(&self, kept: RunCopy) -> Result<bool> {
        self.ask(|reply| Command::Import(Box::new(kept), reply)).await
    }

    async fn import_session(&self, kept: SessionCopy) -> Result<()> {
        self.ask(|reply| Command::ImportSession(Box::new(kept), reply)).await
    }
}

/// Encodes a turn, a large one in a background thread.
async fn written(turn: StoredTurn) -> Result<WrittenTurn, JournalError> {
    if turn.said_bytes() <= SHORT_TURN {
        return WrittenTurn::new(turn);
    }
    let outcome = tokio::task::spawn_blocking(move || WrittenTurn::new(turn)).await;
    outcome.map_err(|error| {
        JournalError::new(ErrorKind::Unavailable, "a turn could not be encoded").caused_by(error)
    })?
}

impl DiskStore {
    /// The tenant of a stream, by its name in the index.
    fn owner_of(&self, stream: Uuid) -> Option<names::Name> {
        self.shared.index().streams.get(&stream).map(|stream| stream.tenant)
    }

    async fn listed(
        &self,
        tenant: names::Name,
        name: names::Name,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        let much = if limit > SHORT_LIST { LARGE_READ } else { 1 };
        let read = move |shared: &Shared| view::named(shared, name, before, limit);
        let runs = self.view_much_of(Some(tenant), much, read).await?;
        for run in &runs {
            self.shared.syncs.settled(run.stream_id).await?;
        }
        Ok(runs)
    }

    /// Open runs in this state that have not changed since `before`.
    async fn open_in(
        &self,
        state: RunState,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        self.view(move |shared| {
            let streams: Vec<_> = {
                let index = shared.index();
                let is_due = |id: &&Uuid| {
                    let found = index.streams.get(*id).filter(|stream| stream.state == state);
                    found.is_some_and(|stream| {
                        before.is_none_or(|before| stream.updated_at < before)
                    })
                };
                index.open.iter().filter(is_due).take(limit).copied().collect()
            };
            streams.into_iter().filter_map(|stream| view::run(shared, stream).transpose()).collect()
        })
        .await
    }
}
