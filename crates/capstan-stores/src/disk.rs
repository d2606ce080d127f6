//! `disk:<folder>`: segment files, with an index of them in memory. Writes are committed in groups,
//! by one writer at a time. One thread syncs, and one compacts. Any thread may read. docs/decisions
//! has the reasons.

mod apply;
mod browse;
mod compact;
mod compactor;
mod expire;
mod files;
mod folder;
mod footer;
mod format;
mod group;
mod import;
mod index;
mod log;
mod manifest;
mod names;
mod open_runs;
mod packets;
mod parts;
mod record;
mod repair;
mod rollups;
mod scan;
mod segment;
mod shared;
mod store;
mod syncer;
mod syncs;
mod task;
mod view;
mod walk;
mod wrapping;
mod writer;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc as std_mpsc};
use std::thread::{self, JoinHandle};

use capstan_journal::{ErrorKind, Frame, Health, JournalError, Secret};
use tokio::sync::{Semaphore, mpsc, oneshot};
use uuid::Uuid;

use self::files::{Files, SystemFiles};
use self::folder::Folder;
use self::group::Reply;
use self::names::Name;
use self::open_runs::OpenRuns;
use self::scan::Scan;
use self::shared::{Opened, Settings, Shared, io_failure};
use self::task::Task;
use self::writer::{Command, Writer};
use crate::{Durability, Options};

/// The most commands in the writer's queue. Callers wait for their answers, so others wait for a
/// place.
const QUEUE: usize = 4096;

/// The most concurrent reads. More would only queue at the disk, and each needs a thread with a
/// heap.
const READS: usize = 8;
/// The most concurrent reads of one tenant, so that the reads of others need not wait behind them.
const READS_OF_TENANT: usize = READS / 4;
/// The part of that share that a read of bodies, turns or lists takes. Such a read may be megabytes
/// long and keep a core busy.
const LARGE_READ: u32 = READS_OF_TENANT as u32;
/// The most concurrent searches for runs.
const BROWSERS: usize = READS / 4;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

pub use self::repair::{check, repair};

pub(crate) struct DiskStore {
    shared: Arc<Shared>,
    reads: Semaphore,
    browsers: Semaphore,
    rollups: Arc<rollups::Rollups>,
    /// Tenants with reads in progress, and the share of each.
    readers: Mutex<HashMap<Name, Weak<Semaphore>>>,
    // Taken when the store is dropped.
    commands: Option<mpsc::Sender<Command>>,
    tasks: std_mpsc::Sender<Task>,
    shared_writer: Arc<Mutex<Writer>>,
    writer: Option<JoinHandle<()>>,
    helpers: Vec<JoinHandle<()>>,
    secret: Secret,
    boot: Option<String>,
}

/// The id of this boot of the machine, which Linux provides. On other systems a power cut is not
/// noticed.
fn boot_id() -> Option<Uuid> {
    Uuid::try_parse(fs::read_to_string(BOOT_ID).ok()?.trim()).ok()
}

impl DiskStore {
    pub(crate) fn open(path: &Path, options: Options) -> Result<Self, JournalError> {
        let boot = boot_id();
        if boot.is_none() && options.durability == Durability::Process {
            tracing::warn!(
                "{BOOT_ID} cannot be read, so a stream that lost packets in a power cut would be \
                 continued"
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
        let shared = Arc::new(Shared::new(files, path, folder, settings, opened));
        let mut open = OpenRuns::default();
        let streams: Vec<_> = shared.index().open.iter().copied().collect();
        for stream in streams {
            if let Some(record) = view::record(&shared, stream)? {
                open.insert(stream, record);
            }
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
        let syncing = syncer::spawn(log, on_failure).map_err(no_thread)?;
        let keeping = compactor::spawn(shared.clone(), to_do, weak, to_seal).map_err(no_thread)?;
        let unsynced = boot.clone().filter(|_| settings.durability == Durability::Process);
        let shared_writer =
            Arc::new(Mutex::new(Writer::new(shared.clone(), unsynced, open, tasks.clone())));
        let (own, its) = (shared_writer.clone(), shared.clone());
        let writing = thread::Builder::new().name("journal-writer".into());
        let writing = writing.spawn(move || Writer::run(&own, its, queue)).map_err(no_thread)?;
        let (reads, helpers) = (Semaphore::new(READS), vec![syncing, keeping]);
        Ok(Self {
            shared,
            reads,
            browsers: Semaphore::new(BROWSERS),
            rollups: Arc::new(rollups::Rollups::new(path)),
            readers: Mutex::default(),
            commands: Some(commands),
            tasks,
            shared_writer,
            writer: Some(writing),
            helpers,
            secret,
            boot,
        })
    }

    /// Sends a command to the writer and waits for its answer.
    async fn ask<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command + Send,
    ) -> Result<T, JournalError> {
        let (reply, answer) = oneshot::channel();
        let command = command(reply);
        let commands = self.commands.as_ref().ok_or_else(closed)?;
        commands.send(command).await.map_err(|_| self.ended())?;
        answer.await.map_err(|_| self.ended())?
    }

    /// Appends a few packets in the caller's thread, if no other thread writes. Waking the writer
    /// thread and being woken by it takes longer than the write.
    fn append_at_once(
        &self,
        stream: Uuid,
        attempt: u32,
        frames: &[Frame],
    ) -> Option<Result<(), JournalError>> {
        let commands = self.commands.as_ref().filter(|commands| commands.capacity() == QUEUE)?;
        let appended = self.shared_writer.try_lock().ok()?.append_at_once(stream, attempt, frames);
        if self.shared.log.has_failed() {
            let _ = commands.try_send(Command::Heal);
        }
        appended
    }

    /// The error if the writer does not answer: the store was closed, or its writer has failed.
    fn ended(&self) -> JournalError {
        match &*self.shared.health.borrow() {
            Health::Broken(why) => JournalError::new(ErrorKind::Broken, why.clone()),
            Health::Well | Health::Unavailable(_) => closed(),
        }
    }

    /// Reads in a background thread. A read may have to wait for the disk, and would block the
    /// other tasks of a runtime thread, heartbeats of streams included.
    async fn view<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Shared) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let _turn = self.reads.acquire().await.map_err(|_| closed())?;
        let shared = self.shared.clone();
        let outcome = tokio::task::spawn_blocking(move || read(&shared)).await;
        outcome.map_err(|error| {
            JournalError::new(ErrorKind::Unavailable, "a read was aborted").caused_by(error)
        })?
    }

    /// Reads for a tenant. Waits for a place among the tenant's own reads first.
    async fn view_of<T: Send + 'static>(
        &self,
        tenant: Option<Name>,
        read: impl FnOnce(&Shared) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        self.view_much_of(tenant, 1, read).await
    }

    /// Like `view_of`, for a read that takes several places of the tenant's share.
    async fn view_much_of<T: Send + 'static>(
        &self,
        tenant: Option<Name>,
        much: u32,
        read: impl FnOnce(&Shared) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let share = tenant.map(|tenant| self.share_of(tenant));
        let _share = match &share {
            Some(share) => Some(share.acquire_many(much).await.map_err(|_| closed())?),
            None => None,
        };
        self.view(read).await
    }

    /// A tenant's share of the reads. It exists as long as a read holds it.
    fn share_of(&self, tenant: Name) -> Arc<Semaphore> {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = readers.get(&tenant).and_then(Weak::upgrade) {
            return share;
        }
        readers.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(READS_OF_TENANT));
        readers.insert(tenant, Arc::downgrade(&share));
        share
    }

    /// Marks runs as lost after a packet, and deletes those without a record. Only for a store that
    /// has no other users.
    fn mark_lost(&self, lost: Vec<(Uuid, u64)>, unrecorded: Vec<Uuid>) -> Result<(), JournalError> {
        let (reply, answer) = oneshot::channel();
        let commands = self.commands.as_ref().ok_or_else(closed)?;
        commands
            .blocking_send(Command::MarkLost { lost, unrecorded, reply })
            .map_err(|_| self.ended())?;
        answer.blocking_recv().map_err(|_| self.ended())?
    }

    fn wake_compactor(&self) {
        let _ = self.tasks.send(Task::Check);
    }

    /// Makes the compactor overwrite what was deleted, and waits for it.
    async fn erase(
        &self,
        owners: Vec<Uuid>,
        turn: Option<(Uuid, u64)>,
    ) -> Result<(), JournalError> {
        let (reply, answer) = oneshot::channel();
        self.tasks.send(Task::Erase { owners, turn, reply }).map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }
}

/// Cuts off what a crash left half written, and opens the rest. Damage is refused, and not changed.
fn open_scanned(
    scan: Scan,
    path: &Path,
    files: &dyn Files,
) -> Result<(Opened, Vec<Arc<segment::Segment>>), JournalError> {
    if !scan.damage.is_empty() {
        return Err(folder::damaged(path, &scan.damage));
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
            tracing::warn!(%file, bytes, "removed what a crash left half written");
        }
    }
    for leftover in &scan.leftovers {
        files.remove(leftover).map_err(|error| io_failure("remove", leftover, error))?;
    }
    let names = scan.names();
    let Scan { index, unsealed, last_group, next_segment, next_compacted, .. } = scan;
    Ok((Opened { index, names, next_segment, next_compacted, last_group }, unsealed))
}

impl Drop for DiskStore {
    /// Waits for the current group, so that the folder is free when the last user is gone.
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

fn no_thread(error: std::io::Error) -> JournalError {
    JournalError::new(ErrorKind::Unavailable, "cannot start a thread of the journal")
        .caused_by(error)
}

fn closed() -> JournalError {
    JournalError::new(ErrorKind::Unavailable, "the journal is closed")
}
