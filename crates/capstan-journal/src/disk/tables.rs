//! The engine's keyspaces, and a consistent view to read them by.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable, Snapshot};
use uuid::Uuid;

use super::folder::Folder;
use super::values::{self, Held, Record, corrupt};
use super::{failure, keys};
use crate::rules::shown;
use crate::{Found, Frame, JournalError, Run, RunState, Secret, Turn};

/// Frames are written once and soon served from disk: a small memtable bounds memory and the time to reopen.
const FRAMES_MEMTABLE: u64 = 4 * 1024 * 1024;
const OTHER_MEMTABLE: u64 = 2 * 1024 * 1024;
/// The engine's own limit, which is never reached. Every commit to a memtable beyond it puts a message into a bounded queue
/// that its worker both reads and writes: a thousand of them while it flushes, and it waits for itself for ever. So we
/// rotate, and each rotation is one message (fjall 3.1.13; its pull request 323). Folders of an earlier version keep the limit
/// they were made with, 8 MiB for frames and 4 for the rest, so ours are well below.
const ENGINE_MEMTABLE: u64 = 64 * 1024 * 1024;
/// Small: the tails are in memory already, and behind it is the operating system's own cache.
const CACHE: u64 = 8 * 1024 * 1024;
/// The engine's least: keyspaces that are seldom written are flushed before they keep many logs alive.
const MAX_LOGS: u64 = 64 * 1024 * 1024;

/// One thread flushes and compacts. Of several the engine keeps the first free for flushing, and that one spins while the
/// others are at work: a core for nothing, for as long as the journal is busy.
const WORKERS: usize = 1;

/// What is stored where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Table {
    Frames,
    Runs,
    Claims,
    Turns,
    Index,
}

/// A keyspace, and how much was written to it since its memtable was begun.
struct Space {
    keyspace: Keyspace,
    limit: u64,
    written: AtomicU64,
}

impl Space {
    fn open(db: &Database, name: &str, limit: u64) -> Result<Self, JournalError> {
        let options = || KeyspaceCreateOptions::default().max_memtable_size(ENGINE_MEMTABLE);
        let keyspace = db.keyspace(name, options).map_err(failure)?;
        Ok(Self { keyspace, limit, written: AtomicU64::new(0) })
    }

    /// Counts what a commit wrote, and hands a full memtable over to be flushed.
    fn wrote(&self, bytes: u64) -> Result<(), JournalError> {
        if self.written.fetch_add(bytes, Ordering::Relaxed) + bytes >= self.limit {
            self.written.store(0, Ordering::Relaxed);
            self.keyspace.rotate_memtable().map_err(failure)?;
        }
        Ok(())
    }
}

pub(crate) struct Tables {
    frames: Space,
    runs: Space,
    claims: Space,
    turns: Space,
    index: Space,
    db: Database,
    store: PathBuf,
    secret: Secret,
    // Last: the folder is given back when the engine has stopped.
    _folder: Folder,
}

impl Tables {
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        let folder = Folder::open(path)?;
        let store = folder.store(|store| open_engine(store).map(drop))?;
        let (db, [frames, runs, claims, turns, index]) = open_engine(&store)?;
        let secret = folder.secret()?;
        Ok(Self { frames, runs, claims, turns, index, db, store, secret, _folder: folder })
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    pub(crate) fn view(&self) -> View<'_> {
        View { tables: self, snapshot: self.db.snapshot() }
    }

    pub(crate) fn keyspace(&self, table: Table) -> &Keyspace {
        &self.space(table).keyspace
    }

    /// To be told after every commit, by the one thread that commits.
    pub(crate) fn wrote(&self, table: Table, bytes: u64) -> Result<(), JournalError> {
        self.space(table).wrote(bytes)
    }

    fn space(&self, table: Table) -> &Space {
        match table {
            Table::Frames => &self.frames,
            Table::Runs => &self.runs,
            Table::Claims => &self.claims,
            Table::Turns => &self.turns,
            Table::Index => &self.index,
        }
    }

    pub(crate) fn batch(&self) -> OwnedWriteBatch {
        self.db.batch()
    }

    pub(crate) fn sync(&self) -> Result<(), JournalError> {
        self.db.persist(PersistMode::SyncAll).map_err(failure)
    }

    /// Syncs all that was committed, while others commit. The engine itself would hold them up: it syncs under the lock
    /// that commits take. Its log is a file like any other, and it syncs a log before it begins the next, so that the
    /// newest is all there is to sync.
    pub(crate) fn sync_log(&self) -> Result<(), JournalError> {
        let log = newest_log(&self.store).and_then(|log| OpenOptions::new().write(true).open(log).ok());
        let Some(log) = log else { return self.sync() };
        log.sync_data().map_err(|error| failure(error.into()))
    }
}

/// The engine numbers its logs: `7.jnl`.
fn newest_log(store: &Path) -> Option<PathBuf> {
    let names = fs::read_dir(store).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let newest = names.filter_map(|name| name.strip_suffix(".jnl")?.parse::<u64>().ok()).max()?;
    Some(store.join(format!("{newest}.jnl")))
}

fn open_engine(store: &Path) -> Result<(Database, [Space; 5]), JournalError> {
    let builder =
        Database::builder(store).cache_size(CACHE).max_journaling_size(MAX_LOGS).worker_threads(WORKERS);
    let db = builder.open().map_err(failure)?;
    let spaces = [
        Space::open(&db, "frames", FRAMES_MEMTABLE)?,
        Space::open(&db, "runs", OTHER_MEMTABLE)?,
        Space::open(&db, "claims", OTHER_MEMTABLE)?,
        Space::open(&db, "turns", OTHER_MEMTABLE)?,
        Space::open(&db, "index", OTHER_MEMTABLE)?,
    ];
    Ok((db, spaces))
}

/// One moment of the store. A stream that is being deleted is whole in it or not there at all.
pub(crate) struct View<'a> {
    tables: &'a Tables,
    snapshot: Snapshot,
}

type Pair = (fjall::UserKey, fjall::UserValue);

impl View<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<fjall::UserValue>, JournalError> {
        self.snapshot.get(self.tables.keyspace(table), key).map_err(failure)
    }

    /// All entries that begin with `prefix`, in order.
    pub(crate) fn prefix(
        &self,
        table: Table,
        prefix: &[u8],
    ) -> impl DoubleEndedIterator<Item = Result<Pair, JournalError>> {
        let entries = self.snapshot.prefix(self.tables.keyspace(table), prefix);
        entries.map(|entry| entry.into_inner().map_err(failure))
    }

    /// A stream's blocks from the one on that holds the frame behind `after`, with their last seqs; its body aside.
    fn blocks_after(
        &self,
        stream: Uuid,
        after: u64,
    ) -> impl DoubleEndedIterator<Item = Result<(u64, fjall::UserValue), JournalError>> {
        // Nothing follows the last seq there can be; asking from there finds at most that one again.
        let range = keys::frame(stream, after.saturating_add(1))..=keys::frame(stream, u64::MAX);
        self.snapshot.range(self.tables.keyspace(Table::Frames), range).map(|entry| {
            let (key, value) = entry.into_inner().map_err(failure)?;
            Ok((keys::seq(&key).ok_or_else(|| corrupt("a block without a seq"))?, value))
        })
    }

    /// Keys of a stream's blocks, its body included, from `from` on.
    pub(crate) fn frame_keys(
        &self,
        stream: Uuid,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Vec<u8>>, JournalError> {
        let range = keys::frame(stream, from)..=keys::frame(stream, u64::MAX);
        let entries = self.snapshot.range(self.tables.keyspace(Table::Frames), range).take(limit);
        entries.map(|entry| entry.key().map(|key| key.to_vec()).map_err(failure)).collect()
    }

    pub(crate) fn record(&self, stream: Uuid) -> Result<Option<Record>, JournalError> {
        let Some(value) = self.get(Table::Runs, stream.as_bytes())? else { return Ok(None) };
        let mut record: Record = values::read_json(&value)?;
        if record.run.state == RunState::Running
            && let Some(last) = self.blocks_after(stream, 0).next_back()
        {
            let (seq, value) = last?;
            record.run.last_seq = seq;
            record.run.bytes = values::read_block(seq, &value)?.0;
        }
        Ok(Some(record))
    }

    pub(crate) fn run(&self, stream: Uuid) -> Result<Option<Run>, JournalError> {
        Ok(self.record(stream)?.map(|record| shown(record.run)))
    }

    /// Whether no acknowledged frame can be missing: they were synced, or the machine has been up ever since.
    pub(crate) fn is_tail_certain(&self, stream: Uuid, boot: Option<&str>) -> Result<bool, JournalError> {
        let Some(record) = self.record(stream)? else { return Ok(true) };
        // A transition syncs all that was written before it.
        let is_synced = record.run.state != RunState::Running || record.boot.is_none();
        Ok(is_synced || record.boot.as_deref() == boot)
    }

    pub(crate) fn body(&self, stream: Uuid) -> Result<Option<Bytes>, JournalError> {
        if self.get(Table::Runs, stream.as_bytes())?.is_none() {
            return Ok(None);
        }
        let value = self.get(Table::Frames, &keys::frame(stream, 0))?;
        let Some(value) = value else { return Ok(None) };
        let (_, mut frames) = values::read_block(0, &value)?;
        Ok(frames.pop().map(|body| body.bytes))
    }

    pub(crate) fn read(
        &self,
        stream: Uuid,
        after: u64,
        max_packets: usize,
        max_bytes: usize,
    ) -> Result<Vec<Frame>, JournalError> {
        let (mut found, mut total) = (Vec::new(), 0);
        // The record goes first when a stream is deleted, its frames bit by bit.
        let is_known = self
            .snapshot
            .contains_key(self.tables.keyspace(Table::Runs), stream.as_bytes())
            .map_err(failure)?;
        if !is_known || after == u64::MAX {
            return Ok(found);
        }
        for entry in self.blocks_after(stream, after) {
            let (last, value) = entry?;
            let (_, frames) = values::read_block(last, &value)?;
            for frame in frames.into_iter().filter(|frame| frame.seq > after) {
                total += frame.bytes.len();
                let is_full = total > max_bytes || found.len() >= max_packets;
                if is_full && !found.is_empty() {
                    return Ok(found);
                }
                found.push(frame);
            }
        }
        Ok(found)
    }

    pub(crate) fn held(&self, tenant: &str, key: &str) -> Result<Option<Held>, JournalError> {
        let value = self.get(Table::Claims, &keys::names(&[tenant, key]))?;
        value.map(|value| values::read_held(&value)).transpose()
    }

    pub(crate) fn find(&self, tenant: &str, key: &str) -> Result<Option<Found>, JournalError> {
        let Some(held) = self.held(tenant, key)? else { return Ok(None) };
        Ok(Some(self.run(held.stream)?.map_or(Found::Expired, Found::Run)))
    }

    pub(crate) fn list(
        &self,
        tenant: &str,
        before: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<Run>, JournalError> {
        let tenant = keys::names(&[tenant]);
        let first = keys::index(keys::LISTED, &[&tenant]);
        let end = keys::index(keys::LISTED, &[&tenant, before.unwrap_or(Uuid::max()).as_bytes()]);
        let mut runs = Vec::new();
        for entry in self.snapshot.range(self.tables.keyspace(Table::Index), first..end).rev().take(limit) {
            let key = entry.key().map_err(failure)?;
            runs.extend(keys::stream(&key).map(|stream| self.run(stream)).transpose()?.flatten());
        }
        Ok(runs)
    }

    pub(crate) fn open_records(&self) -> Result<Vec<Record>, JournalError> {
        let mut records = Vec::new();
        for entry in self.prefix(Table::Index, &[keys::OPEN]) {
            let (key, _) = entry?;
            records.extend(keys::stream(&key).map(|stream| self.record(stream)).transpose()?.flatten());
        }
        Ok(records)
    }

    pub(crate) fn turns(&self, tenant: &str, session: &str) -> Result<Vec<Turn>, JournalError> {
        let mut turns: Vec<Turn> = Vec::new();
        for entry in self.prefix(Table::Turns, &keys::names(&[tenant, session])) {
            turns.push(values::read_json(&entry?.1)?);
        }
        turns.sort_by_key(|turn| (turn.closed_at, turn.stream_id));
        Ok(turns)
    }

    pub(crate) fn has(&self, table: Table, key: &[u8]) -> Result<bool, JournalError> {
        self.snapshot.contains_key(self.tables.keyspace(table), key).map_err(failure)
    }

    pub(crate) fn sessions(&self, tenant: &str) -> Result<u64, JournalError> {
        let prefix = keys::index(keys::SESSION, &[&keys::names(&[tenant])]);
        self.prefix(Table::Index, &prefix).try_fold(0, |count, entry| entry.map(|_| count + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_log_is_found_and_the_newest_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let tables = Tables::open(folder.path()).unwrap();
        let log = newest_log(&tables.store).unwrap();
        assert!(log.is_file());
        tables.sync_log().unwrap();
        fs::write(log.with_file_name("10.jnl"), "").unwrap();
        fs::write(log.with_file_name("9.jnl"), "").unwrap();
        assert_eq!(newest_log(&tables.store), Some(log.with_file_name("10.jnl")));
    }
}
