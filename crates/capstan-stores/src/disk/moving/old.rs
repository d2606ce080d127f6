//! A folder of format 2, in which an embedded engine kept everything: read once, when it is moved.

use std::path::Path;

use bytes::Bytes;
use capstan_journal::backend::rules;
use capstan_journal::{ErrorKind, Frame, JournalError, Run, RunState, StoredTurn};
use capstan_protocol::Timestamp;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, Readable, Snapshot};
use serde::Deserialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::disk::format::In;

const VERSION: u8 = 2;

pub(super) struct OldStore {
    snapshot: Snapshot,
    frames: Keyspace,
    runs: Keyspace,
    claims: Keyspace,
    turns: Keyspace,
    // After what came from it.
    _db: Database,
}

/// A run, its request and where its packets are.
#[derive(Deserialize)]
pub(super) struct OldRun {
    pub(super) run: Run,
    #[serde(default)]
    pub(super) boot: Option<String>,
}

/// A claim whose stream is gone.
pub(super) struct OldClaim {
    pub(super) tenant: String,
    pub(super) key: String,
    pub(super) stream: Uuid,
    pub(super) gone_at: Timestamp,
}

/// A turn: what it says is the caller's business here, too.
#[derive(Deserialize)]
struct OldTurn {
    stream_id: Uuid,
    closed_at: Timestamp,
    #[serde(flatten)]
    said: Map<String, Value>,
}

impl OldTurn {
    /// A question and its answer at first, messages later.
    fn version(&self) -> u32 {
        if self.said.contains_key("messages") { 2 } else { 1 }
    }
}

impl OldStore {
    pub(super) fn open(store: &Path) -> Result<Self, JournalError> {
        let db = Database::builder(store).worker_threads(1).open().map_err(failure)?;
        let keyspace = |name| db.keyspace(name, KeyspaceCreateOptions::default).map_err(failure);
        let [frames, runs, claims, turns] =
            [keyspace("frames")?, keyspace("runs")?, keyspace("claims")?, keyspace("turns")?];
        Ok(Self { snapshot: db.snapshot(), frames, runs, claims, turns, _db: db })
    }

    /// All runs, by the age of their streams.
    pub(super) fn runs(&self) -> impl Iterator<Item = Result<OldRun, JournalError>> {
        self.snapshot.iter(&self.runs).map(|entry| {
            let (_, value) = entry.into_inner().map_err(failure)?;
            serde_json::from_slice(versioned(&value)?).map_err(|_| corrupt("a record"))
        })
    }

    /// A stream's packets in blocks, its request as the first of them with seq 0.
    pub(super) fn blocks(
        &self,
        stream: Uuid,
    ) -> impl Iterator<Item = Result<Vec<Frame>, JournalError>> {
        self.snapshot.prefix(&self.frames, stream.as_bytes()).map(|entry| {
            let (key, value) = entry.into_inner().map_err(failure)?;
            let last = key.last_chunk::<8>().map(|seq| u64::from_be_bytes(*seq));
            last.and_then(|last| read_block(last, &value))
                .ok_or_else(|| corrupt("a block of packets"))
        })
    }

    /// Claims whose stream is gone.
    pub(super) fn gone(&self) -> impl Iterator<Item = Result<OldClaim, JournalError>> {
        self.snapshot.iter(&self.claims).filter_map(|entry| {
            let read = || {
                let (key, value) = entry.into_inner().map_err(failure)?;
                let claim =
                    read_claim(&key, versioned(&value)?).ok_or_else(|| corrupt("a claim"))?;
                Ok(claim)
            };
            read().transpose()
        })
    }

    /// All turns: tenant, session and what was said.
    pub(super) fn turns(&self) -> Result<Vec<(String, String, StoredTurn)>, JournalError> {
        let mut turns = Vec::new();
        for entry in self.snapshot.iter(&self.turns) {
            let (key, value) = entry.into_inner().map_err(failure)?;
            let old: OldTurn =
                serde_json::from_slice(versioned(&value)?).map_err(|_| corrupt("a turn"))?;
            let mut from = In(&key);
            let names = read_name(&mut from).zip(read_name(&mut from));
            let (tenant, session) = names.ok_or_else(|| corrupt("a turn's name"))?;
            let turn =
                StoredTurn::new(old.stream_id, old.closed_at, old.version(), old.said.into());
            turns.push((tenant, session, turn));
        }
        turns.sort_by_key(|(_, _, turn)| (turn.closed_at, turn.stream_id));
        Ok(turns)
    }
}

impl OldRun {
    /// `last_seq` and `bytes` of a run under way were its last packet's to know.
    pub(super) fn count(&mut self, frames: &[Frame]) {
        if self.run.state == RunState::Running {
            self.run.last_seq = 0;
            self.run.bytes = 0;
            rules::count(&mut self.run.last_seq, &mut self.run.bytes, frames);
        }
    }
}

fn read_block(last: u64, value: &[u8]) -> Option<Vec<Frame>> {
    let mut from = In(value);
    let [version] = from.take::<1>()?;
    from.take::<8>().filter(|_| version == VERSION)?;
    let count = u32::from_be_bytes(from.take()?) as usize;
    let lengths = from.take_slice(count.checked_mul(4)?)?;
    let first = (last + 1).checked_sub(count as u64)?;
    let lengths =
        lengths.as_chunks::<4>().0.iter().map(|length| u32::from_be_bytes(*length) as usize);
    let frame = |(seq, length)| {
        Some(Frame { seq, bytes: Bytes::copy_from_slice(from.take_slice(length)?) })
    };
    (first..).zip(lengths).map(frame).collect()
}

/// `None` in it if its stream is there.
fn read_claim(key: &[u8], value: &[u8]) -> Option<Option<OldClaim>> {
    let mut from = In(value);
    let stream = Uuid::from_bytes(from.take()?);
    let Some(gone_at) = from.take::<8>() else { return Some(None) };
    let gone_at = Timestamp::from_micros(i64::from_be_bytes(gone_at).wrapping_add(i64::MIN));
    let mut names = In(key);
    let (tenant, key) = (read_name(&mut names)?, read_name(&mut names)?);
    Some(Some(OldClaim { tenant, key, stream, gone_at }))
}

fn read_name(from: &mut In<'_>) -> Option<String> {
    let length = u16::from_be_bytes(from.take()?);
    String::from_utf8(from.take_slice(length.into())?.to_vec()).ok()
}

fn versioned(value: &[u8]) -> Result<&[u8], JournalError> {
    match value.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        _ => Err(corrupt("a value")),
    }
}

fn corrupt(what: &str) -> JournalError {
    let message = format!(
        "the journal of the older format is damaged: {what} cannot be read; nothing was changed"
    );
    JournalError::new(ErrorKind::Corrupt, message)
}

fn failure(error: fjall::Error) -> JournalError {
    let message =
        format!("the journal of the older format cannot be read: {error}; nothing was changed");
    JournalError::new(ErrorKind::Corrupt, message).caused_by(error)
}
