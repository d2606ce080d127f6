//! The compactor thread. It seals full segments, erases purged data, compacts, saves the manifest,
//! and makes a failed journal retry. It is one thread, so that nothing is copied while it is
//! erased.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use capstan_journal::backend::failpoint::{self, Point};
use capstan_journal::{Health, JournalError};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::compact;
use super::footer::Contents;
use super::format::{FRAME_HEAD, Kind};
use super::record::split_summary;
use super::segment::Segment;
use super::shared::{MB, Shared, io_failure};
use super::task::Task;
use super::walk;
use super::writer::Command;

/// How often it checks for work without being asked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often the manifest is saved, if nothing else causes it.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// The longest wait before a failed journal retries.
const MAX_RETRY: Duration = Duration::from_secs(5);
/// The folder into which a repair moves damaged files.
pub(crate) const ASIDE: &str = "damaged";

struct Compactor {
    shared: Arc<Shared>,
    commands: mpsc::WeakSender<Command>,
    to_seal: Vec<Arc<Segment>>,
    /// Owners whose erasure failed, or was not finished by an earlier process.
    to_erase: Vec<Uuid>,
    saved: (Instant, u64),
    retry: Option<(Instant, Duration)>,
}

type Erasing = (Vec<Uuid>, Option<(Uuid, u64)>, oneshot::Sender<Result<(), JournalError>>);

pub(crate) fn spawn(
    shared: Arc<Shared>,
    tasks: Receiver<Task>,
    commands: mpsc::WeakSender<Command>,
    to_seal: Vec<Arc<Segment>>,
) -> io::Result<JoinHandle<()>> {
    let unfinished = |gone: &super::index::Gone| {
        !gone.is_erased && gone.summary.is_some_and(|summary| summary.is_purged)
    };
    let to_erase = shared
        .index()
        .gone
        .iter()
        .filter(|(_, gone)| unfinished(gone))
        .map(|(id, _)| *id)
        .collect();
    let saved = (Instant::now(), 0);
    let compactor = Compactor { shared, commands, to_seal, to_erase, saved, retry: None };
    thread::Builder::new().name("journal-compact".into()).spawn(move || compactor.run(&tasks))
}

impl Compactor {
    fn run(mut self, tasks: &Receiver<Task>) {
        let mut is_first = true;
        loop {
            let wait = match self.retry {
                Some((at, _)) => at.saturating_duration_since(Instant::now()).min(CHECK_INTERVAL),
                None => CHECK_INTERVAL,
            };
            let wait = if std::mem::take(&mut is_first) { Duration::ZERO } else { wait };
            let mut next = match tasks.recv_timeout(wait) {
                Ok(task) => Some(task),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let (mut erasing, mut saving) = (Vec::new(), Vec::new());
            while let Some(task) = next.take() {
                match task {
                    Task::Seal(segment) => self.to_seal.push(segment),
                    Task::Erase { owners, turn, reply } => erasing.push((owners, turn, reply)),
                    Task::Check => {}
                    // Each retry schedules the next one itself.
                    Task::Retry if self.retry.is_none() => self.retry_later(),
                    Task::Retry => {}
                    Task::Save(reply) => saving.push(reply),
                    Task::Stop => return self.stop(),
                }
                next = tasks.try_recv().ok();
            }
            self.erase(erasing);
            self.work();
            for reply in saving {
                let saved = self.save();
                drop(
                    reply.send(
                        saved.map_err(|error| io_failure("write", &self.shared.folder, error)),
                    ),
                );
            }
        }
    }

    /// Does everything that is due. What fails is retried at the next check.
    fn work(&mut self) {
        self.try_again();
        self.watch_space();
        let outcome = self
            .seal()
            .and_then(|()| self.finish_erasing())
            .and_then(|()| compact::compact(&self.shared))
            .and_then(|()| self.shared.make_spare())
            .and_then(|()| self.save_now_and_then());
        if let Err(error) = outcome {
            tracing::warn!(%error, "maintenance of the journal's files failed; it will retry");
        }
    }

    fn stop(&mut self) {
        self.shared.drop_spare();
        if !self.shared.log.has_failed() && self.save().is_err() {
            tracing::warn!("the journal's manifest could not be saved");
        }
    }

    fn retry_later(&mut self) {
        let first = Duration::from_millis(self.shared.settings.retry_ms);
        let wait = self.retry.map_or(first, |(_, last)| (last * 2).min(MAX_RETRY));
        self.retry = Some((Instant::now() + wait, wait));
    }

    fn try_again(&mut self) {
        match &*self.shared.health.borrow() {
            Health::Well => self.retry = None,
            Health::Unavailable(_) | Health::Broken(_) => {}
        }
        if let Some((at, _)) = self.retry
            && at <= Instant::now()
            && let Some(commands) = self.commands.upgrade()
        {
            // If the queue is full, its commands are refused at once, so that there is a place
            // soon.
            let _ = commands.try_send(Command::Heal);
            self.retry_later();
        }
    }

    fn watch_space(&self) {
        let least = self.shared.settings.min_free_bytes;
        if least == 0 {
            return;
        }
        let Ok(free) = self.shared.files.free_bytes(&self.shared.folder) else { return };
        let is_low = free < least;
        if self.shared.is_low.swap(is_low, Ordering::Relaxed) != is_low {
            let (free, least) = (free / MB, least / MB);
            match is_low {
                true => tracing::error!(
                    free,
                    least,
                    "the journal's disk is nearly full (MB); it accepts no new runs"
                ),
                false => {
                    tracing::info!(free, least, "the journal's disk has enough space again (MB)")
                }
            }
        }
    }

    /// Writes the footers of full segments whose groups are all synced.
    fn seal(&mut self) -> io::Result<()> {
        let mut is_done = false;
        // In order, so that no segment without a footer precedes one with a footer.
        while let Some(segment) = self.to_seal.first() {
            if self.shared.log.is_unsynced(segment.id) {
                self.shared.log.want_all();
                break;
            }
            seal(segment)?;
            self.to_seal.remove(0);
            is_done = true;
        }
        if is_done { self.save() } else { Ok(()) }
    }

    fn save_now_and_then(&mut self) -> io::Result<()> {
        let written = self.shared.written.load(Ordering::Relaxed);
        let (at, upto) = self.saved;
        if written != upto && at.elapsed() >= SAVE_INTERVAL { self.save() } else { Ok(()) }
    }

    fn save(&mut self) -> io::Result<()> {
        let written = self.shared.written.load(Ordering::Relaxed);
        self.shared.save_manifest()?;
        self.saved = (Instant::now(), written);
        Ok(())
    }

    /// Overwrites purged data, for all waiting callers at once.
    fn erase(&mut self, erasing: Vec<Erasing>) {
        if erasing.is_empty() {
            return;
        }
        let owners: Vec<_> = erasing.iter().flat_map(|(owners, ..)| owners).copied().collect();
        let turns: Vec<_> = erasing.iter().filter_map(|(_, turn, _)| *turn).collect();
        let outcome = erase(&self.shared, &owners, &turns);
        match &outcome {
            Ok(()) => self.note_erased(owners),
            Err(_) => self.to_erase.extend(owners),
        }
        for (_, _, reply) in erasing {
            drop(reply.send(outcome.clone()));
        }
    }

    fn finish_erasing(&mut self) -> io::Result<()> {
        if !self.to_erase.is_empty() {
            let turns = lost_turns(&self.shared);
            erase(&self.shared, &self.to_erase, &turns).map_err(io::Error::other)?;
            let owners = std::mem::take(&mut self.to_erase);
            self.note_erased(owners);
        }
        Ok(())
    }

    fn note_erased(&self, owners: Vec<Uuid>) {
        failpoint::hit(Point::AfterErase);
        if let Some(commands) = self.commands.upgrade() {
            // If this command is lost, the owners are erased once more.
            let _ = commands.try_send(Command::Erased { owners });
        }
    }
}

/// Writes the footer of a segment whose groups are all synced.
fn seal(segment: &Segment) -> io::Result<()> {
    let file = segment.file()?;
    let (end, entries) = (segment.size(), segment.entries()?);
    // Cuts off what was half written, or rewritten to another segment.
    file.set_len(end)?;
    file.sync()?;
    let summaries = walk::summaries(&entries, |entry| {
        let start = u64::from(entry.offset) + FRAME_HEAD as u64;
        let length = u64::from(entry.length).min(u64::from(u16::MAX) + 2);
        let bytes = super::files::read_range(&*file, start, length).ok()?;
        split_summary(&bytes).map(|(summary, _)| summary.to_vec())
    });
    let contents = Contents { entries, summaries, last_group: segment.last_group() };
    let footer = contents.encode(end);
    failpoint::hit(Point::BeforeSeal);
    file.write_at(&footer, end)?;
    file.sync()?;
    failpoint::hit(Point::AfterSeal);
    segment.seal(&contents, end, end + footer.len() as u64);
    Ok(())
}

const CONTENT: [Kind; 5] = [Kind::Body, Kind::Packets, Kind::Record, Kind::Turn, Kind::Session];

/// Frames to erase: their owner, their kind, and the number of one of them, or all if `None`.
type Wanted = (Uuid, Kind, Option<u64>);

fn erase(shared: &Shared, owners: &[Uuid], turns: &[(Uuid, u64)]) -> Result<(), JournalError> {
    let mut wanted: BTreeMap<u32, (Arc<Segment>, Vec<Wanted>)> = BTreeMap::new();
    {
        let index = shared.index();
        let mut want = |id: u32, what: Wanted| {
            if let Some(held) = index.segments.get(&id) {
                let new = || (held.segment.clone(), Vec::new());
                wanted.entry(id).or_insert_with(new).1.push(what);
            }
        };
        for (session, turn) in turns {
            for id in index.segments_of_session(*session) {
                want(id, (*session, Kind::Turn, Some(*turn)));
            }
        }
        for owner in owners {
            for id in index.gone.get(owner).map(|gone| &gone.segments).into_iter().flatten() {
                CONTENT.iter().for_each(|kind| want(*id, (*owner, *kind, None)));
            }
        }
    }
    for (segment, wanted) in wanted.into_values() {
        let fail = |error| io_failure("erase in", &segment.path, error);
        let mut entries = Vec::new();
        for (owner, kind, seq) in wanted {
            let (after, limit) = seq.map_or((0, usize::MAX), |seq| (seq - 1, 1));
            let found = segment.find(owner, kind, after, limit).map_err(fail)?;
            entries
                .extend(found.into_iter().filter(|entry| seq.is_none_or(|seq| entry.seq == seq)));
        }
        segment.erase(&entries).map_err(fail)?;
    }
    // Files that could not be removed so far may contain copies.
    shared.remove_unneeded().map_err(|error| io_failure("compact", &shared.folder, error))?;
    // The files that a repair moved aside may contain data of any owner.
    let aside: PathBuf = shared.folder.join(ASIDE);
    match std::fs::remove_dir_all(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_failure("remove", &aside, error))
        }
        _ => Ok(()),
    }
}

/// Deleted turns that may not have been overwritten.
fn lost_turns(shared: &Shared) -> Vec<(Uuid, u64)> {
    let index = shared.index();
    let each = index
        .sessions
        .iter()
        .flat_map(|(session, lost)| lost.lost_turns().map(move |turn| (*session, turn)));
    each.collect()
}
