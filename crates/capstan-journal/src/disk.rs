//! `disk:<folder>`: segment files as the only truth, an index of them in memory. One thread writes, in groups; one syncs,
//! one keeps house; everyone may read. ARCHITECTURE.md says why.

mod apply;
mod clean;
mod expire;
mod files;
mod folder;
mod footer;
mod format;
mod group;
mod index;
mod keeper;
mod log;
mod manifest;
mod moving;
mod names;
mod old;
mod packets;
mod record;
mod repair;
mod scan;
mod segment;
mod shared;
mod syncs;
mod view;
mod walk;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};

use async_trait::async_trait;
use bytes::Bytes;
use capstan_protocol::Timestamp;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use uuid::Uuid;

use self::files::{Files, SystemFiles};
use self::folder::Folder;
use self::group::Reply;
use self::index::Place;
use self::keeper::Task;
use self::scan::Scan;
use self::shared::{Opened, Settings, Shared, io_failure};
use self::writer::{Command, Writer};
use crate::{
    Claim, Claimed, Durability, ErrorKind, Expired, Found, Frame, Health, JournalError, NameKind, Options,
    Retention, Run, RunState, Secret, Stats, Store, Turn,
};

/// Callers wait for their answers, so this many callers write at the same time; the others wait to be queued.
const QUEUE: usize = 4096;

/// Reads at once. More would only queue at the disk, each on a thread of its own with a heap of its own.
const READS: usize = 8;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

pub use self::repair::{check, repair};

pub(crate) struct DiskStore {
    shared: Arc<Shared>,
    reads: Semaphore,
    // Taken when the store is dropped.
    commands: Option<mpsc::Sender<Command>>,
    tasks: std_mpsc::Sender<Task>,
    writer: Option<JoinHandle<()>>,
    helpers: Vec<JoinHandle<()>>,
    secret: Secret,
    boot: Option<String>,
}

/// During which uptime of the machine this process runs. Linux's name for it; elsewhere a power cut goes unnoticed.
fn boot_id() -> Option<Uuid> {
    Uuid::try_parse(fs::read_to_string(BOOT_ID).ok()?.trim()).ok()
}

impl DiskStore {
    pub(crate) fn open(path: &Path, options: Options) -> Result<Self, JournalError> {
        let boot = boot_id();
        if boot.is_none() && options.durability == Durability::Process {
            tracing::warn!(
                "{BOOT_ID} cannot be read: a stream that lost packets in a power cut would be continued"
            );
        }
        let settings = Settings {
            boot: boot.map_or([0; 16], Uuid::into_bytes),
            min_free_bytes: options.min_free_bytes,
            ..Settings::new(options.durability)
        };
        Self::open_with(path, settings, Arc::new(SystemFiles))
    }

    pub(crate) fn open_with(
        path: &Path,
        settings: Settings,
        files: Arc<dyn Files>,
    ) -> Result<Self, JournalError> {
        let folder = Folder::open(path, &*files)?;
        moving::move_old(&folder, path, &files, settings)?;
        let scan = scan::scan(&files, path, settings.boot)?;
        let opened = open_scanned(scan, path, &*files)?;
        let secret = folder.secret()?;
        Self::start(path, folder, settings, files, opened, secret)
    }

    fn start(
        path: &Path,
        folder: Folder,
        settings: Settings,
        files: Arc<dyn Files>,
        (opened, to_seal): (Opened, Vec<Arc<segment::Segment>>),
        secret: Secret,
    ) -> Result<Self, JournalError> {
        let boot = Some(settings.boot)
            .filter(|boot| *boot != [0; 16])
            .map(|boot| Uuid::from_bytes(boot).to_string());
        let shared = Arc::new(Shared::new(files, path, Some(folder), settings, opened));
        let mut open = HashMap::new();
        let streams: Vec<_> = shared.index().open.iter().copied().collect();
        for stream in streams {
            open.extend(view::record(&shared, stream)?.map(|record| (stream, record)));
        }
        let (commands, queue) = mpsc::channel(QUEUE);
        let (tasks, to_do) = std_mpsc::channel();
        let weak = commands.downgrade();
        let (failed, log) = (weak.clone(), shared.clone());
        let on_failure = move |error: std::io::Error| {
            tracing::warn!(%error, "the journal failed to sync");
            if let Some(commands) = failed.upgrade() {
                let _ = commands.blocking_send(Command::Heal);
            }
        };
        let syncing = log::spawn(log, on_failure).map_err(no_thread)?;
        let keeping = keeper::spawn(shared.clone(), to_do, weak, to_seal).map_err(no_thread)?;
        let unsynced = boot.clone().filter(|_| settings.durability == Durability::Process);
        let writer = Writer::new(shared.clone(), unsynced, open, tasks.clone());
        let writing = thread::Builder::new().name("journal-writer".into());
        let writing = writing.spawn(move || writer.run(queue)).map_err(no_thread)?;
        let (reads, helpers) = (Semaphore::new(READS), vec![syncing, keeping]);
        Ok(Self {
            shared,
            reads,
            commands: Some(commands),
            tasks,
            writer: Some(writing),
            helpers,
            secret,
            boot,
        })
    }

    /// Sends a command to the writer and waits for its answer.
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command + Send) -> Result<T, JournalError> {
        let (reply, answer) = oneshot::channel();
        let command = command(reply);
        let commands = self.commands.as_ref().ok_or_else(closed)?;
        commands.send(command).await.map_err(|_| self.ended())?;
        answer.await.map_err(|_| self.ended())?
    }

    /// Why nobody answers: the store was closed, or its writer is no more.
    fn ended(&self) -> JournalError {
        match &*self.shared.health.borrow() {
            Health::Broken(why) => JournalError::new(ErrorKind::Broken, why.clone()),
            Health::Well | Health::Unavailable(_) => closed(),
        }
    }

    /// Reads off the runtime's threads: a read may have to wait for the disk, and whoever shares the thread with it
    /// would wait as well, heartbeats of other streams included.
    async fn view<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let _turn = self.reads.acquire().await.map_err(|_| closed())?;
        let shared = self.shared.clone();
        let outcome = tokio::task::spawn_blocking(move || read(&shared)).await;
        outcome.map_err(|error| {
            JournalError::new(ErrorKind::Unavailable, "a read was broken off").caused_by(error)
        })?
    }

    /// Marks runs as lost after a packet, and forgets those without a record. For a store that nobody else uses.
    fn mark_lost(&self, lost: Vec<(Uuid, u64)>, unrecorded: Vec<Uuid>) -> Result<(), JournalError> {
        let (reply, answer) = oneshot::channel();
        let commands = self.commands.as_ref().ok_or_else(closed)?;
        commands.blocking_send(Command::MarkLost { lost, unrecorded, reply }).map_err(|_| self.ended())?;
        answer.blocking_recv().map_err(|_| self.ended())?
    }

    fn wake_keeper(&self) {
        let _ = self.tasks.send(Task::Look);
    }

    /// Has the keeper overwrite what was purged, and waits for it.
    async fn erase(&self, owner: Uuid, turn: Option<Place>) -> Result<(), JournalError> {
        let (reply, answer) = oneshot::channel();
        self.tasks.send(Task::Erase { owner, turn, reply }).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

/// Cuts what a crash left half written, and takes what counts. Damage is refused, and left as it is.
fn open_scanned(
    scan: Scan,
    path: &Path,
    files: &dyn Files,
) -> Result<(Opened, Vec<Arc<segment::Segment>>), JournalError> {
    if let Some(first) = scan.damage.first() {
        let others = match scan.damage.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let message = format!(
            "the journal is damaged: {first}{others}; nothing was changed. `capstan journal check {}` tells all, \
             `capstan journal repair` keeps what is whole",
            path.display()
        );
        return Err(JournalError::new(ErrorKind::Corrupt, message));
    }
    for torn in &scan.torn {
        let fail = |error| io_failure("cut", &torn.path, error);
        if torn.keep == 0 {
            files.remove(&torn.path).map_err(fail)?;
        } else {
            let file = files.open(&torn.path).map_err(fail)?;
            file.set_len(torn.keep).and_then(|()| file.sync()).map_err(fail)?;
        }
        if torn.dropped > 0 {
            let (file, bytes) = (torn.path.display(), torn.dropped);
            tracing::warn!(%file, bytes, "dropped what a crash left half written");
        }
    }
    for leftover in &scan.leftovers {
        files.remove(leftover).map_err(|error| io_failure("remove", leftover, error))?;
    }
    let names = scan.names();
    let Scan { index, unsealed, last_group, next_segment, next_cleaned, .. } = scan;
    Ok((Opened { index, names, next_segment, next_cleaned, last_group }, unsealed))
}

impl Drop for DiskStore {
    /// Waits for the group under way, so that the folder is free when the last user is gone.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        self.shared.log.end();
        let _ = self.tasks.send(Task::Stop);
        for thread in self.helpers.drain(..) {
            let _ = thread.join();
        }
    }
}

#[async_trait]
impl Store for DiskStore {
    async fn claim(&self, claim: Claim) -> Result<Claimed, JournalError> {
        let stream = claim.stream_id;
        let claimed = self.ask(|reply| Command::Claim(Box::new(claim), reply)).await?;
        let settled = self.shared.syncs.settled(claimed.run.stream_id).await;
        if let (Err(_), true, Some(commands)) = (&settled, claimed.is_new, &self.commands) {
            // The caller is told that it failed, so nothing must come of it.
            let _ = commands.send(Command::Withdraw { stream }).await;
        }
        settled.map(|()| claimed)
    }

    async fn body(&self, stream: Uuid) -> Result<Option<Bytes>, JournalError> {
        self.view(move |shared| view::body(shared, stream)).await
    }

    async fn append(&self, stream: Uuid, attempt: u32, frames: Vec<Frame>) -> Result<(), JournalError> {
        self.ask(|reply| Command::Append { stream, attempt, frames, reply }).await
    }

    async fn transition(
        &self,
        from: (RunState, u32),
        to: Run,
        frames: Vec<Frame>,
        turn: Option<Turn>,
    ) -> Result<bool, JournalError> {
        let (stream, to, turn) = (to.stream_id, Box::new(to), turn.map(Box::new));
        let is_done = self.ask(|reply| Command::Transition { from, to, frames, turn, reply }).await?;
        self.shared.syncs.settled(stream).await?;
        Ok(is_done)
    }

    async fn read(
        &self,
        stream: Uuid,
        after: u64,
        max_packets: usize,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, JournalError> {
        let frames =
            self.view(move |shared| view::read(shared, stream, after, max_packets, max_bytes)).await?;
        self.shared.syncs.settled(stream).await?;
        Ok(frames)
    }

    async fn run(&self, stream: Uuid) -> Result<Option<Run>, JournalError> {
        let run = self.view(move |shared| view::run(shared, stream)).await?;
        self.shared.syncs.settled(stream).await?;
        Ok(run)
    }

    async fn is_tail_certain(&self, stream: Uuid) -> Result<bool, JournalError> {
        let boot = self.boot.clone();
        self.view(move |shared| {
            let Some(record) = view::record(shared, stream)? else { return Ok(true) };
            // A transition syncs all that was written before it.
            let is_synced = record.run.state != RunState::Running || record.boot.is_none();
            Ok(record.run.lost_after.is_none() && (is_synced || record.boot == boot))
        })
        .await
    }

    async fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>, JournalError> {
        let (tenant, key) = (tenant.to_owned(), key.to_owned());
        let found = self.view(move |shared| view::find(shared, &tenant, &key)).await?;
        if let Some(Found::Run(run)) = &found {
            self.shared.syncs.settled(run.stream_id).await?;
        }
        Ok(found)
    }

    async fn list(&self, tenant: &str, before: Option<Uuid>, limit: usize) -> Result<Vec<Run>, JournalError> {
        let name = self.shared.names.tenant(tenant);
        self.listed(name, before, limit).await
    }

    async fn named(
        &self,
        tenant: &str,
        kind: NameKind,
        name: &str,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        let name = self.shared.names.of(tenant, kind, name);
        self.listed(name, before, limit).await
    }

    async fn orphans(&self, limit: usize) -> Result<Vec<Run>, JournalError> {
        self.open_in(RunState::Running, None, limit).await
    }

    async fn waiting(&self, before: Timestamp, limit: usize) -> Result<Vec<Run>, JournalError> {
        self.open_in(RunState::Waiting, Some(before), limit).await
    }

    async fn open_runs(&self) -> Result<Vec<Run>, JournalError> {
        self.view(|shared| {
            let streams: Vec<_> = shared.index().open.iter().copied().collect();
            streams.into_iter().filter_map(|stream| view::run(shared, stream).transpose()).collect()
        })
        .await
    }

    async fn turns(
        &self,
        tenant: &str,
        session: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Turn>, JournalError> {
        let (tenant, session) = (tenant.to_owned(), session.to_owned());
        let turns = self.view(move |shared| view::turns(shared, &tenant, &session, from, limit)).await?;
        for turn in &turns {
            self.shared.syncs.settled(turn.stream_id).await?;
        }
        Ok(turns)
    }

    async fn turn_count(&self, tenant: &str, session: &str) -> Result<u64, JournalError> {
        let name = self.shared.names.of(tenant, NameKind::Session, session);
        let index = self.shared.index();
        let session = index.session_ids.get(&name).and_then(|id| index.sessions.get(id));
        Ok(session.map_or(0, |session| session.turns))
    }

    async fn is_expired(&self, tenant: &str, stream: Uuid) -> Result<bool, JournalError> {
        let tenant = self.shared.names.tenant(tenant);
        let index = self.shared.index();
        let gone = index.gone.get(&stream).filter(|gone| gone.is_claim_kept());
        Ok(gone.and_then(|gone| gone.summary).is_some_and(|summary| summary.tenant == tenant))
    }

    async fn has_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError> {
        let name = self.shared.names.of(tenant, NameKind::Session, session);
        Ok(self.shared.index().session_ids.contains_key(&name))
    }

    async fn sessions(&self, tenant: &str) -> Result<u64, JournalError> {
        let tenant = self.shared.names.tenant(tenant);
        Ok(self.shared.index().sessions_of.get(&tenant).copied().unwrap_or(0))
    }

    async fn purge(&self, stream: Uuid, now: Timestamp) -> Result<bool, JournalError> {
        let turn = self.view(move |shared| view::turn_of(shared, stream)).await?;
        if !self.ask(|reply| Command::Purge { stream, now, reply }).await? {
            return Ok(false);
        }
        self.shared.syncs.settled(stream).await?;
        self.erase(stream, turn).await?;
        Ok(true)
    }

    async fn purge_session(&self, tenant: &str, session: &str) -> Result<bool, JournalError> {
        let name = self.shared.names.of(tenant, NameKind::Session, session);
        let Some(session) = self.shared.index().session_ids.get(&name).copied() else { return Ok(false) };
        let now = Timestamp::now();
        let command = |reply| Command::ForgetSession { session, unused_since: None, now, reply };
        if !self.ask(command).await? {
            return Ok(false);
        }
        self.shared.syncs.settled(session).await?;
        self.erase(session, None).await?;
        Ok(true)
    }

    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired, JournalError> {
        self.expire_all(retention, now).await
    }

    async fn secret(&self) -> Result<Secret, JournalError> {
        Ok(self.secret.clone())
    }

    fn health(&self) -> watch::Receiver<Health> {
        self.shared.health.subscribe()
    }

    fn stats(&self) -> Stats {
        let index = self.shared.index();
        let (disk_bytes, live_bytes) = index.sizes();
        Stats {
            disk_bytes,
            live_bytes,
            streams: index.streams.len() as u64,
            damaged: self.shared.damaged.load(Ordering::Relaxed),
            is_low_on_space: self.shared.is_low.load(Ordering::Relaxed),
        }
    }

    async fn close(&self) -> Result<(), JournalError> {
        self.ask(Command::Close).await?;
        let (reply, answer) = oneshot::channel();
        self.tasks.send(Task::Save(reply)).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

impl DiskStore {
    async fn listed(
        &self,
        name: names::Name,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        let runs = self.view(move |shared| view::named(shared, name, before, limit)).await?;
        for run in &runs {
            self.shared.syncs.settled(run.stream_id).await?;
        }
        Ok(runs)
    }

    /// Open runs in a state, not changed since `before`.
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
                    found.is_some_and(|stream| before.is_none_or(|before| stream.updated_at < before))
                };
                index.open.iter().filter(is_due).take(limit).copied().collect()
            };
            streams.into_iter().filter_map(|stream| view::run(shared, stream).transpose()).collect()
        })
        .await
    }
}

fn no_thread(error: std::io::Error) -> JournalError {
    JournalError::new(ErrorKind::Unavailable, "cannot start a thread of the journal").caused_by(error)
}

fn closed() -> JournalError {
    JournalError::new(ErrorKind::Unavailable, "the journal is closed")
}
