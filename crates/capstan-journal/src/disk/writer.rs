//! The one thread that writes. It takes all commands that are queued, commits them as one group, answers each.

use std::collections::HashMap;
use std::sync::{Arc, mpsc as std_mpsc};

use capstan_protocol::Timestamp;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::group::{Group, Reply};
use super::syncs::Syncs;
use super::tables::{Table, Tables};
use super::values::Record;
use crate::failpoint::{self, Point};
use crate::{Claim, Claimed, Durability, Frame, JournalError, Run, RunState, Turn};

/// A group is committed when this much is in it, so that the first in line does not wait for ever.
const GROUP_BYTES: usize = 4 * 1024 * 1024;
const GROUP_COMMANDS: usize = 1024;

/// What the writer can be asked for.
pub(crate) enum Command {
    Claim(Box<Claim>, Reply<Claimed>),
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
        turn: Option<Box<Turn>>,
        reply: Reply<bool>,
    },
    /// Deletes the records of closed streams and dooms their frames.
    Retire {
        streams: Vec<Uuid>,
        now: Timestamp,
        reply: Reply<()>,
    },
    /// Does the same to one stream because somebody wants it gone: its turn goes, too, and it is synced.
    Purge {
        stream: Uuid,
        now: Timestamp,
        reply: Reply<bool>,
    },
    /// Deletes a session, whose entry in the index is given, unless it was used after the moment that is given.
    ForgetSession {
        entry: Vec<u8>,
        unused_since: Option<Timestamp>,
        reply: Reply<bool>,
    },
    /// Deletes keys that nothing else refers to.
    Forget {
        keys: Vec<(Table, Vec<u8>)>,
        reply: Reply<()>,
    },
    Close(Reply<()>),
}

impl Command {
    /// Housekeeping scans what is stored, so it must not share a group with what is not stored yet.
    fn is_alone(&self) -> bool {
        match self {
            Self::Claim(..) | Self::Append { .. } | Self::Transition { .. } => false,
            Self::Retire { .. }
            | Self::Purge { .. }
            | Self::ForgetSession { .. }
            | Self::Forget { .. }
            | Self::Close(_) => true,
        }
    }
}

pub(crate) struct Writer {
    pub(crate) tables: Arc<Tables>,
    pub(crate) durability: Durability,
    /// Written into the records of runs, to tell later whether unsynced frames may be missing.
    pub(crate) boot: Option<String>,
    /// Streams that run or wait, with their counts, so that an append costs no read.
    pub(crate) open: HashMap<Uuid, Record>,
    /// Streams that the group under way closes. They stay in `open` until it is committed, for commands behind them.
    pub(crate) closing: Vec<Uuid>,
    syncs: Syncs,
    /// Commits that are to be synced are told here.
    to_sync: std_mpsc::Sender<u64>,
    is_closed: bool,
}

impl Writer {
    pub(crate) fn new(
        tables: Arc<Tables>,
        durability: Durability,
        boot: Option<String>,
        syncs: Syncs,
        to_sync: std_mpsc::Sender<u64>,
    ) -> Result<Self, JournalError> {
        let records = tables.view().open_records()?;
        let open = records.into_iter().map(|record| (record.run.stream_id, record)).collect();
        let closing = Vec::new();
        Ok(Self { tables, durability, boot, open, closing, syncs, to_sync, is_closed: false })
    }

    /// Works until the store is closed or dropped.
    pub(crate) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut next = None;
        while !self.is_closed
            && let Some(first) = next.take().or_else(|| commands.blocking_recv())
        {
            let mut group = Group::new(&self.tables);
            let is_alone = first.is_alone();
            self.apply(first, &mut group);
            let mut room = if is_alone { 0 } else { GROUP_COMMANDS };
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
        }
    }

    fn apply(&mut self, command: Command, group: &mut Group) {
        match command {
            Command::Claim(claim, reply) => {
                let result = self.check().and_then(|()| self.claim(*claim, group));
                group.answer(reply, result);
            }
            Command::Append { stream, attempt, frames, reply } => {
                let result = self.check().and_then(|()| self.append(stream, attempt, &frames, group));
                group.answer(reply, result);
            }
            Command::Transition { from, to, frames, turn, reply } => {
                let turn = turn.as_deref();
                let result = self.check().and_then(|()| self.transition(from, *to, &frames, turn, group));
                group.answer(reply, result);
            }
            Command::Retire { streams, now, reply } => {
                let result = self.check().and_then(|()| self.retire(&streams, now, group));
                group.answer(reply, result);
            }
            Command::Purge { stream, now, reply } => {
                let result = self.check().and_then(|()| self.purge(stream, now, group));
                group.answer(reply, result);
            }
            Command::ForgetSession { entry, unused_since, reply } => {
                let result = self.check().and_then(|()| self.forget_session(entry, unused_since, group));
                group.answer(reply, result);
            }
            Command::Forget { keys, reply } => {
                keys.into_iter().for_each(|(table, key)| group.remove(table, key));
                group.answer(reply, self.check());
            }
            Command::Close(reply) => {
                self.is_closed = true;
                group.answer(reply, self.tables.sync());
            }
        }
    }

    fn check(&self) -> Result<(), JournalError> {
        self.syncs.failure().map_or(Ok(()), Err)
    }

    fn commit(&mut self, group: Group) {
        let has_frames = group.has_frames();
        let to_sync = (!group.unsynced().is_empty()).then(|| self.syncs.expect(group.unsynced()));
        let (outcome, answers) = group.commit(&self.tables);
        if let Err(error) = &outcome {
            self.syncs.fail(error);
        } else if let Some(commit) = to_sync {
            // It is there until this writer is gone.
            let _ = self.to_sync.send(commit);
        }
        for stream in self.closing.drain(..) {
            self.open.remove(&stream);
        }
        if has_frames {
            failpoint::hit(Point::AfterAppend);
        }
        answers.give(&outcome);
    }
}
