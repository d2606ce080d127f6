//! A group that is being built: frames that are written together, and their callers.

use std::collections::HashMap;

use capstan_journal::{JournalError, Tokens};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::footer::Entry;
use super::format::{FRAME_HEAD, FrameHead, GROUP_HEAD, GroupHead, Kind, sum};
use super::names::Name;
use super::record::Record;
use super::walk;

/// The channel for the answer to a command.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, JournalError>>;

type Answer = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

/// The state of a run before the group, in case the group fails.
pub(crate) enum Undo {
    Counts { stream: Uuid, last_seq: u64, bytes: u64 },
    Whole { stream: Uuid, record: Option<Box<Record>> },
}

#[derive(Default)]
pub(crate) struct Group {
    /// Begins with space for the head.
    bytes: Vec<u8>,
    /// Frames, with offsets within the group.
    entries: Vec<Entry>,
    answers: Vec<Answer>,
    pub(crate) undo: Vec<Undo>,
    pub(crate) has_packets: bool,
    /// Streams whose callers are answered after the group is synced.
    pub(crate) unsynced: Vec<Uuid>,
    /// Whether to sync it although no reader depends on it.
    pub(crate) must_sync: bool,
    /// Claims and sessions that begin in this group.
    pub(crate) claims: HashMap<Name, Uuid>,
    pub(crate) sessions: HashMap<Name, (Uuid, u64)>,
    /// The number of sessions that begin in this group, by tenant.
    begun: HashMap<Name, u64>,
    /// The size that this group adds to a tenant or a session, without packets.
    added: HashMap<Name, u64>,
    /// The used tokens of tenants once this group is written, with their revision.
    pub(crate) tokens: HashMap<Name, (u64, Tokens)>,
    /// The names of deleted streams.
    pub(crate) forgotten: Vec<(Uuid, Vec<Name>)>,
}

impl Group {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; GROUP_HEAD], ..Self::default() }
    }

    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a frame whose payload is these parts.
    pub(crate) fn put(&mut self, kind: Kind, owner: Uuid, seq: u64, payload: &[&[u8]]) {
        self.put_with(kind, owner, seq, |out| {
            payload.iter().for_each(|part| out.extend_from_slice(part))
        });
    }

    /// Adds a frame whose payload is written by `write`.
    pub(crate) fn put_with(
        &mut self,
        kind: Kind,
        owner: Uuid,
        seq: u64,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let offset = self.bytes.len();
        self.bytes.resize(offset + FRAME_HEAD, 0);
        write(&mut self.bytes);
        let payload = self.bytes.get(offset + FRAME_HEAD..).unwrap_or_default();
        let length = payload.len() as u32;
        let head = FrameHead { length, kind, owner, seq, sum: sum(payload) }.encode();
        if let Some(place) = self.bytes.get_mut(offset..offset + FRAME_HEAD) {
            place.copy_from_slice(&head);
        }
        self.has_packets |= kind == Kind::Packets;
        self.entries.push(Entry { owner, kind, seq, offset: offset as u32, length });
    }

    /// Counts a new session of the tenant.
    pub(crate) fn begin_session(&mut self, tenant: Name) {
        *self.begun.entry(tenant).or_default() += 1;
    }

    pub(crate) fn sessions_begun(&self, tenant: &Name) -> u64 {
        self.begun.get(tenant).copied().unwrap_or(0)
    }

    /// Adds to the size of a tenant or a session.
    pub(crate) fn weigh(&mut self, owner: Name, bytes: u64) {
        *self.added.entry(owner).or_default() += bytes;
    }

    pub(crate) fn added(&self, owner: &Name) -> u64 {
        self.added.get(owner).copied().unwrap_or(0)
    }

    /// Answers a caller: an error at once, a success when the group is written.
    pub(crate) fn answer<T: Send + 'static>(
        &mut self,
        reply: Reply<T>,
        result: Result<T, JournalError>,
    ) {
        match result {
            // The caller may be gone, which is no failure.
            Err(error) => drop(reply.send(Err(error))),
            Ok(value) => self
                .answers
                .push(Box::new(move |outcome| drop(reply.send(outcome.map(|()| value))))),
        }
    }

    /// Fills in the head.
    pub(crate) fn seal(&mut self, number: u64, synced: u64) {
        let length = (self.bytes.len() - GROUP_HEAD) as u64;
        let head = GroupHead { count: self.entries.len() as u32, number, synced, length }.encode();
        if let Some(place) = self.bytes.get_mut(..GROUP_HEAD) {
            place.copy_from_slice(&head);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// The frames of a group at `offset` of a file, each with its summary.
    pub(crate) fn entries_at(&self, offset: u32) -> impl Iterator<Item = (Entry, &[u8])> {
        self.entries.iter().map(move |entry| {
            (Entry { offset: entry.offset + offset, ..*entry }, walk::summary(&self.bytes, entry))
        })
    }

    pub(crate) fn give(self, outcome: &Result<(), JournalError>) {
        self.answers.into_iter().for_each(|answer| answer(outcome.clone()));
    }
}
