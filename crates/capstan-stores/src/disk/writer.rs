//! The writer: a thread that takes all queued commands, commits them as one group, and answers
//! each. A caller with a few packets writes them itself if the writer is idle
//! ([`Writer::append_at_once`]).

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc as std_mpsc};

use capstan_journal::backend::Rates;
use capstan_journal::backend::failpoint::{self, Point};
use capstan_journal::{
    Claim, Claimed, ErrorKind, Frame, Health, JournalError, Quota, Run, RunCopy, RunState,
    SessionCopy,
};
use capstan_protocol::Timestamp;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::footer::Entry;
use super::format::HEADER;
use super::group::{Group, Reply, Undo};
use super::index::Location;
use super::log::Written;
use super::names::Name;
use super::open_runs::OpenRuns;
use super::record::WrittenTurn;
use super::segment::Segment;
use super::shared::{Shared, io_failure};
use super::task::Task;
use crate::Durability;

/// The size at which a group is committed, so that its first command does not wait too long.
const GROUP_BYTES: usize = 1024 * 1024;
const GROUP_COMMANDS: usize = 1024;
/// The most bytes of a write in the caller's thread, which takes almost no time.
pub(crate) const AT_ONCE_BYTES: usize = 4 * 1024;

/// A command for the writer.
pub(crate) enum Command {
    Claim(Box<Claim>, Quota, Reply<Claimed>),
    /// Withdraws a claim whose caller got an error, if nothing was appended.
    Withdraw {
        stream: Uuid,
    },
    Append {
        stream: Uuid,
        attempt: u32,
        frames: Vec<Frame>,
        reply: Reply<()>,
    },
    Transition {
        from: (RunState, u32),
        to: Box<Run>,
        frames: Vec<Frame>,
        turn: Option<Box<WrittenTurn>>,
        quota: Quota,
        reply: Reply<bool>,
    },
    /// Records when the answer of a closed run was sent.
    MarkSent {
        stream: Uuid,
        at: Timestamp,
        reply: Reply<bool>,
    },
    /// Deletes closed streams.
    Retire {
        streams: Vec<Uuid>,
        now: Timestamp,
        reply: Reply<u64>,
    },
    /// Deletes one stream on request: with its turn, and synced.
    Purge {
        stream: Uuid,
        now: Timestamp,
        reply: Reply<bool>,
    },
    /// Deletes a session, unless it was used after this time. Without a time it is erased on
    /// request.
    ForgetSession {
        session: Uuid,
        unused_since: Option<Timestamp>,
        now: Timestamp,
        reply: Reply<bool>,
    },
    /// Records that these owners were erased.
    Erased {
        owners: Vec<Uuid>,
    },
    /// Records the last intact packet of damaged runs. Runs without a record are deleted.
    MarkLost {
        lost: Vec<(Uuid, u64)>,
        unrecorded: Vec<Uuid>,
        reply: Reply<()>,
    },
    /// Imports a run of another store.
    Import(Box<RunCopy>, Reply<bool>),
    /// Imports a session of another store.
    ImportSession(Box<SessionCopy>, Reply<()>),
    /// Retries after a failure.
    Heal,
    Close(Reply<()>),
}

impl Command {
    /// Whether the command needs a group of its own. Maintenance reads stored data, so it must not
    /// share a group with data that is not stored yet.
    fn is_alone(&self) -> bool {
        match self {
            Self::Claim(..)
            | Self::Append { .. }
            | Self::Transition { .. }
            | Self::MarkSent { .. }
            | Self::Erased { .. } => false,
            Self::Withdraw { .. }
            | Self::Retire { .. }
            | Self::Purge { .. }
            | Self::ForgetSession { .. }
            | Self::MarkLost { .. }
            | Self::Import(..)
            | Self::ImportSession(..)
            | Self::Heal
            | Self::Close(_) => true,
        }
    }
}

pub(crate) struct Writer {
    pub(crate) shared: Arc<Shared>,
    /// The boot id for the records of runs. It tells later whether unsynced packets may be missing.
    pub(crate) boot: Option<String>,
    /// Open runs with their counts, so that an append needs no read.
    pub(crate) open: OpenRuns,
    /// Streams that the current group closes. They stay in `open` until it is written, for later
    /// commands of the group.
    pub(crate) closing: Vec<Uuid>,
    /// The claim rates of tenants.
    pub(crate) rates: Rates<Name>,
    tasks: std_mpsc::Sender<Task>,
    segment: Option<Arc<Segment>>,
    withdrawn: Vec<Uuid>,
    is_closed: bool,
}

impl Writer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        boot: Option<String>,
        open: OpenRuns,
        tasks: std_mpsc::Sender<Task>,
    ) -> Self {
        let (closing, withdrawn) = (Vec::new(), Vec::new());
        Self {
            shared,
            boot,
            open,
            closing,
            rates: Rates::default(),
            tasks,
            segment: None,
            withdrawn,
            is_closed: false,
        }
    }

    /// Runs until the store is closed or dropped.
    pub(crate) fn run(
        shared_writer: &Mutex<Self>,
        shared: Arc<Shared>,
        mut commands: mpsc::Receiver<Command>,
    ) {
        let mut watch = Watch { shared, is_over: false };
        let mut next = None;
        while let Some(first) = next.take().or_else(|| commands.blocking_recv()) {
            // If a caller has panicked while it wrote, the writer's state cannot be trusted. The
            // `Watch` reports it before any caller gets an answer.
            let Ok(mut writer) = shared_writer.lock() else { return drop(watch) };
            next = writer.work(first, &mut commands);
            if writer.is_closed {
                break;
            }
        }
        watch.is_over = true;
    }

    /// Commits a command and the queued ones. Returns a command that has to wait for the next
    /// group.
    fn work(&mut self, first: Command, commands: &mut mpsc::Receiver<Command>) -> Option<Command> {
        let (mut group, mut next) = (Group::new(), None);
        let mut room = if first.is_alone() { 0 } else { GROUP_COMMANDS };
        self.apply(first, &mut group);
        while room > 0
            && group.size() < GROUP_BYTES
            && let Ok(command) = commands.try_recv()
        {
            if command.is_alone() {
                next = Some(command);
                break;
            }
            self.apply(command, &mut group);
            room -= 1;
        }
        self.commit(group);
        self.withdraw_all();
        next
    }

    /// Appends a few packets to an open run in the caller's thread. Returns `None`, and changes
    /// nothing, if the writer thread has to do it: if it may take long, because of a sync, a new
    /// file or a failing one.
    pub(crate) fn append_at_once(
        &mut self,
        stream: Uuid,
        attempt: u32,
        frames: &[Frame],
    ) -> Option<Result<(), JournalError>> {
        let shared = &self.shared;
        let is_short = frames.iter().map(|frame| frame.bytes.len()).sum::<usize>() <= AT_ONCE_BYTES;
        let is_simple = shared.settings.durability == Durability::Process && shared.log.is_idle();
        let is_open = !self.is_closed && self.open.get(&stream).is_some();
        if !(is_short && is_simple && is_open && self.has_room(2 * AT_ONCE_BYTES as u64)) {
            return None;
        }
        let mut group = Group::new();
        let appended = self.append(stream, attempt, frames, &mut group);
        Some(appended.and_then(|()| self.write(&mut group)))
    }

    /// Withdraws claims that failed while nothing could be written.
    fn withdraw_all(&mut self) {
        if self.withdrawn.is_empty() || self.shared.log.has_failed() {
            return;
        }
        let mut group = Group::new();
        for stream in std::mem::take(&mut self.withdrawn) {
            self.withdraw(stream, &mut group);
        }
        self.commit(group);
    }

    fn apply(&mut self, command: Command, group: &mut Group) {
        match command {
            Command::Claim(claim, quota, reply) => {
                let result = self.check().and_then(|()| self.claim(*claim, &quota, group));
                group.answer(reply, result);
            }
            Command::Withdraw { stream } => self.withdrawn.push(stream),
            Command::Append { stream, attempt, frames, reply } => {
                let result =
                    self.check().and_then(|()| self.append(stream, attempt, &frames, group));
                group.answer(reply, result);
            }
            Command::Transition { from, to, frames, turn, quota, reply } => {
                let turn = turn.as_deref();
                let result = self
                    .check()
                    .and_then(|()| self.transition(from, *to, &frames, turn, &quota, group));
                group.answer(reply, result);
            }
            Command::MarkSent { stream, at, reply } => {
                let result = self.check().and_then(|()| self.mark_sent(stream, at, group));
                group.answer(reply, result);
            }
            Command::Retire { streams, now, reply } => {
                let result = self.check().map(|()| self.retire(&streams, now, group));
                group.answer(reply, result);
            }
            Command::Purge { stream, now, reply } => {
                let result = self.check().and_then(|()| self.purge(stream, now, group));
                group.answer(reply, result);
            }
            Command::ForgetSession { session, unused_since, now, reply } => {
                let result =
                    self.check().map(|()| self.forget_session(session, unused_since, now, group));
                group.answer(reply, result);
            }
            Command::Erased { owners } => {
                if self.check().is_ok() {
                    self.erased(&owners, group);
                }
            }
            Command::MarkLost { lost, unrecorded, reply } => {
                let result = self.check().and_then(|()| self.mark_lost(&lost, &unrecorded, group));
                group.answer(reply, result);
            }
            Command::Import(kept, reply) => {
                let result = self.check().and_then(|()| self.import(&kept, group));
                group.answer(reply, result);
            }
            Command::ImportSession(kept, reply) => {
                let result = self.check().and_then(|()| self.import_session(&kept, group));
                group.answer(reply, result);
            }
            Command::Heal => self.heal(),
            Command::Close(reply) => {
                self.is_closed = true;
                let outcome = self.shared.log.sync_now();
                let path = self.shared.folder.join("log");
                let outcome = outcome.map_err(|error| io_failure("sync", &path, error));
                group.answer(reply, outcome.map(|upto| self.shared.syncs.are_done(upto)));
            }
        }
    }

    /// Whether writes are possible now.
    fn check(&self) -> Result<(), JournalError> {
        if !self.shared.log.has_failed() {
            return Ok(());
        }
        let message = "the journal cannot write at the moment";
        Err(self
            .shared
            .syncs
            .failure()
            .unwrap_or_else(|| JournalError::new(ErrorKind::Unavailable, message)))
    }

    /// Writes a group and answers its callers.
    fn commit(&mut self, mut group: Group) {
        let outcome = self.write(&mut group);
        if outcome.is_err() {
            self.heal();
        }
        group.give(&outcome);
    }

    /// Writes a group completely. If it fails, restores the state before it.
    fn write(&mut self, group: &mut Group) -> Result<(), JournalError> {
        let outcome = if group.is_empty() { Ok(()) } else { self.try_write(group) };
        match &outcome {
            Ok(()) => {
                for stream in self.closing.drain(..) {
                    self.open.remove(&stream);
                }
            }
            Err(error) => {
                self.shared.log.fail();
                tracing::warn!(%error, "the journal failed to write");
                self.undo(group);
            }
        }
        if group.has_packets && outcome.is_ok() {
            failpoint::hit(Point::AfterAppend);
        }
        outcome.map_err(|error| io_failure("write to", &self.shared.folder.join("log"), error))
    }

    fn try_write(&mut self, group: &mut Group) -> io::Result<()> {
        let shared = self.shared.clone();
        let number = shared.written.load(Ordering::Relaxed) + 1;
        let segment = self.segment_for(group.size() as u64, number)?;
        group.seal(number, shared.log.synced());
        let offset = u32::try_from(segment.size()).map_err(io::Error::other)?;
        failpoint::hit(Point::BeforeWrite);
        segment.file()?.write_at(group.bytes(), offset.into())?;
        failpoint::hit(Point::AfterWrite);
        let is_power = shared.settings.durability == Durability::Power;
        let entries: Vec<_> =
            group.entries_at(offset).map(|(entry, summary)| (entry, summary.to_vec())).collect();
        let bytes = Arc::new(group.take_bytes());
        let length = bytes.len() as u64;
        let written = Written { number, segment: segment.clone(), offset, bytes };
        let is_wanted = group.must_sync || !group.unsynced.is_empty();
        if is_power {
            // The group is added to the index after its sync, so no reader sees it unsynced.
            shared.log.add(written, false);
            if let Err(error) = shared.log.sync_now() {
                shared.log.take_back();
                return Err(error);
            }
            shared.syncs.are_done(number);
        } else {
            shared.syncs.expect(&group.unsynced, number);
            shared.log.add(written, is_wanted);
        }
        shared.written.store(number, Ordering::Relaxed);
        segment.set_size(u64::from(offset) + length);
        segment.set_last_group(number);
        let mut index = shared.index_mut();
        segment.push(entries.iter().map(|(entry, _)| *entry));
        for (owner, names) in std::mem::take(&mut group.forgotten) {
            index.forget_names(owner, names);
        }
        entries.iter().for_each(|(entry, summary)| index.admit(segment.id, entry, summary));
        index.settle_moved();
        Ok(())
    }

    /// Whether the last segment has room for a group of this size.
    fn has_room(&self, size: u64) -> bool {
        let full = self.shared.settings.segment_bytes;
        let segment = self.segment.as_ref();
        segment
            .is_some_and(|segment| segment.size() == HEADER as u64 || segment.size() + size <= full)
    }

    /// The segment for a group of this size: the last one, or a new one if it is full.
    fn segment_for(&mut self, size: u64, first_group: u64) -> io::Result<Arc<Segment>> {
        if let Some(segment) = self.segment.as_ref().filter(|_| self.has_room(size)) {
            return Ok(segment.clone());
        }
        let segment = self.shared.begin_segment(first_group)?;
        if let Some(full) = self.segment.replace(segment.clone()) {
            let _ = self.tasks.send(Task::Seal(full));
        }
        Ok(segment)
    }

    fn undo(&mut self, group: &mut Group) {
        self.closing.clear();
        for undo in std::mem::take(&mut group.undo).into_iter().rev() {
            match undo {
                Undo::Counts { stream, last_seq, bytes } => {
                    if let Some(counts) = self.open.counts(&stream) {
                        (*counts.0, *counts.1) = (last_seq, bytes);
                    }
                }
                Undo::Whole { stream, record: Some(record) } => {
                    drop(self.open.insert(stream, *record))
                }
                Undo::Whole { stream, record: None } => drop(self.open.remove(&stream)),
            }
        }
    }

    /// Recovers from a failed write or sync: rewrites what may be lost to a new file.
    fn heal(&mut self) {
        if !self.shared.log.has_failed() {
            return;
        }
        match self.rewrite() {
            Ok(()) => {
                self.shared.log.is_healed();
                self.shared.syncs.are_done(self.shared.log.synced());
                if self.shared.health.send_replace(Health::Well) != Health::Well {
                    tracing::info!("the journal takes writes again");
                }
            }
            Err(error) => {
                let cause = io_failure("write to", &self.shared.folder.join("log"), error);
                let message = format!("the journal cannot write at the moment: {cause}");
                let was = self.shared.health.send_replace(Health::Unavailable(cause.to_string()));
                if was == Health::Well {
                    tracing::error!("{message}; it will retry");
                }
                let failure = JournalError::new(ErrorKind::Unavailable, message).caused_by(cause);
                self.shared.syncs.fail(failure);
                let _ = self.tasks.send(Task::Retry);
            }
        }
    }

    fn rewrite(&mut self) -> io::Result<()> {
        let lost = self.shared.log.unsynced();
        let first = lost
            .first()
            .map_or(self.shared.written.load(Ordering::Relaxed) + 1, |group| group.number);
        let segment = self.shared.begin_segment(first)?;
        let places = match rewrite_to(&segment, &lost) {
            Ok(places) => places,
            Err(error) => {
                self.shared.index_mut().segments.remove(&segment.id);
                self.shared.remove_unknown([segment.path.clone()]);
                return Err(error);
            }
        };
        let mut index = self.shared.index_mut();
        for group in &lost {
            group.segment.cut(group.offset);
            group.segment.set_size(group.segment.size().min(group.offset.into()));
            group.segment.set_last_group(group.segment.last_group().min(group.number - 1));
        }
        segment.push(places.iter().map(|(_, to)| to.entry));
        places.iter().for_each(|(from, to)| index.relocate(*from, *to));
        drop(index);
        if let Some(last) = lost.last() {
            self.shared.log.are_synced(last.number);
        }
        // Sealing cuts off what was rewritten or half written.
        if let Some(old) = self.segment.replace(segment) {
            let _ = self.tasks.send(Task::Seal(old));
        }
        Ok(())
    }
}

/// Reports the store as broken if the writer thread panics.
struct Watch {
    shared: Arc<Shared>,
    is_over: bool,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_over {
            let why = "the journal's writer has panicked; only a restart can fix it".to_owned();
            tracing::error!("{why}");
            self.shared.health.send_replace(Health::Broken(why));
        }
    }
}

/// Writes groups to a new segment and syncs it. Returns the old and new place of each frame.
fn rewrite_to(segment: &Arc<Segment>, lost: &[Written]) -> io::Result<Vec<(Location, Location)>> {
    let (file, mut places, mut at) = (segment.file()?, Vec::new(), HEADER as u32);
    for group in lost {
        file.write_at(&group.bytes, at.into())?;
        for entry in group.entries() {
            let to = Entry { offset: entry.offset - group.offset + at, ..entry };
            let from = Location { segment: group.segment.id, entry };
            places.push((from, Location { segment: segment.id, entry: to }));
        }
        at += group.bytes.len() as u32;
    }
    file.sync()?;
    segment.set_size(at.into());
    segment.set_last_group(lost.last().map_or(0, |last| last.number));
    Ok(places)
}
