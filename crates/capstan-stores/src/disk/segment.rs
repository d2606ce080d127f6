//! A segment file: finds, reads and overwrites its frames.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use bytes::Bytes;
use uuid::Uuid;

use super::files::{Data, Files, read_range};
use super::footer::{Contents, ENTRY, Entry};
use super::format::{FRAME_HEAD, FrameHead, Kind, sum};

/// One in this many entries of a footer is kept in memory, so that a lookup is one read.
const FENCE: usize = 64;
/// The most sealed segments that are kept open. Recovery and resuming readers read a few of them
/// repeatedly.
const MOST_OPEN: usize = 32;

pub(crate) struct Segment {
    pub(crate) id: u32,
    pub(crate) path: PathBuf,
    pub(crate) is_compacted: bool,
    files: Arc<dyn Files>,
    state: Arc<RwLock<State>>,
    size: AtomicU64,
    is_damaged: AtomicBool,
    last_group: AtomicU64,
}

struct State {
    table: Table,
    /// Present for a segment that is written to, and for the sealed ones that were read last.
    handle: Option<Arc<dyn Data>>,
}

#[derive(Clone, Copy)]
struct Slot {
    seq: u64,
    offset: u32,
    length: u32,
}

enum Table {
    /// All frames, in the order of writing, which is the order of their numbers.
    Open(HashMap<(Uuid, Kind), Vec<Slot>>),
    Sealed {
        fence: Vec<(Uuid, Kind, u64)>,
        offset: u64,
        count: u64,
    },
}

/// The result of reading a frame.
pub(crate) enum Payload {
    Whole(Bytes),
    /// The frame is damaged.
    Damaged,
}

impl Segment {
    /// Opens a segment for writing.
    pub(crate) fn open(
        id: u32,
        path: PathBuf,
        files: Arc<dyn Files>,
        handle: Arc<dyn Data>,
        size: u64,
    ) -> Self {
        let state = State { table: Table::Open(HashMap::new()), handle: Some(handle) };
        Self {
            id,
            path,
            is_compacted: false,
            files,
            state: Arc::new(RwLock::new(state)),
            size: AtomicU64::new(size),
            is_damaged: AtomicBool::new(false),
            last_group: AtomicU64::new(0),
        }
    }

    /// Opens a sealed segment whose footer is at `offset`.
    pub(crate) fn sealed(
        id: u32,
        path: PathBuf,
        files: Arc<dyn Files>,
        is_compacted: bool,
        contents: &Contents,
        offset: u64,
        size: u64,
    ) -> Self {
        let state = State { table: Table::sealed(contents, offset), handle: None };
        Self {
            id,
            path,
            is_compacted,
            files,
            state: Arc::new(RwLock::new(state)),
            size: AtomicU64::new(size),
            is_damaged: AtomicBool::new(false),
            last_group: AtomicU64::new(0),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    pub(crate) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    /// The number of its last group.
    pub(crate) fn last_group(&self) -> u64 {
        self.last_group.load(Ordering::Relaxed)
    }

    pub(crate) fn set_last_group(&self, number: u64) {
        self.last_group.store(number, Ordering::Relaxed);
    }

    /// Records that a frame is damaged. Such a segment is not compacted.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_damaged(&self) {
        self.is_damaged.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_sealed(&self) -> bool {
        matches!(self.read().table, Table::Sealed { .. })
    }

    /// The file, opened if necessary.
    pub(crate) fn file(&self) -> io::Result<Arc<dyn Data>> {
        if let Some(handle) = &self.read().handle {
            return Ok(handle.clone());
        }
        let handle = self.files.open(&self.path)?;
        self.write().handle = Some(handle.clone());
        keep_open(&self.state);
        Ok(handle)
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds frames that were written.
    pub(crate) fn push(&self, entries: impl IntoIterator<Item = Entry>) {
        if let Table::Open(table) = &mut self.write().table {
            for Entry { owner, kind, seq, offset, length } in entries {
                table.entry((owner, kind)).or_default().push(Slot { seq, offset, length });
            }
        }
    }

    /// Removes the frames from an offset on, and returns them.
    pub(crate) fn cut(&self, from: u32) -> Vec<Entry> {
        let mut cut = Vec::new();
        if let Table::Open(table) = &mut self.write().table {
            table.retain(|&(owner, kind), slots| {
                cut.extend(slots.extract_if(.., |slot| slot.offset >= from).map(|slot| {
                    let Slot { seq, offset, length } = slot;
                    Entry { owner, kind, seq, offset, length }
                }));
                !slots.is_empty()
            });
        }
        cut
    }

    /// From now on lookups read the footer.
    pub(crate) fn seal(&self, contents: &Contents, offset: u64, size: u64) {
        let mut state = self.write();
        state.table = Table::sealed(contents, offset);
        state.handle = None;
        drop(state);
        self.set_size(size);
    }

    /// Frames of an owner with numbers above `after`, in order, at most `limit`.
    pub(crate) fn find(
        &self,
        owner: Uuid,
        kind: Kind,
        after: u64,
        limit: usize,
    ) -> io::Result<Vec<Entry>> {
        let state = self.read();
        let (offset, count, start) = match &state.table {
            Table::Open(table) => {
                let slots = table.get(&(owner, kind)).map(Vec::as_slice).unwrap_or_default();
                let from = slots.partition_point(|slot| slot.seq <= after);
                let entry = |slot: &Slot| {
                    let Slot { seq, offset, length } = *slot;
                    Entry { owner, kind, seq, offset, length }
                };
                return Ok(slots.iter().skip(from).take(limit).map(entry).collect());
            }
            Table::Sealed { fence, offset, count } => {
                let before = fence.partition_point(|fence| *fence <= (owner, kind, after));
                (*offset, *count, before.saturating_sub(1) as u64 * FENCE as u64)
            }
        };
        drop(state);
        let (file, mut found, mut at) = (self.file()?, Vec::new(), start);
        while at < count && found.len() < limit {
            let some = u64::min(count - at, FENCE as u64);
            for entry in read_entries(&*file, offset, at, some)? {
                if (entry.owner, entry.kind) > (owner, kind) {
                    return Ok(found);
                }
                if (entry.owner, entry.kind) == (owner, kind)
                    && entry.seq > after
                    && found.len() < limit
                {
                    found.push(entry);
                }
            }
            at += some;
        }
        Ok(found)
    }

    /// All frames, sorted.
    pub(crate) fn entries(&self) -> io::Result<Vec<Entry>> {
        let state = self.read();
        let (offset, count) = match &state.table {
            Table::Open(table) => {
                let mut all: Vec<_> = table
                    .iter()
                    .flat_map(|(&(owner, kind), slots)| {
                        slots.iter().map(move |&Slot { seq, offset, length }| Entry {
                            owner,
                            kind,
                            seq,
                            offset,
                            length,
                        })
                    })
                    .collect();
                all.sort_unstable();
                return Ok(all);
            }
            Table::Sealed { offset, count, .. } => (*offset, *count),
        };
        drop(state);
        read_entries(&*self.file()?, offset, 0, count)
    }

    /// Reads a frame's payload and checks it.
    pub(crate) fn payload(&self, file: &dyn Data, entry: &Entry) -> io::Result<Payload> {
        let whole =
            read_range(file, entry.offset.into(), FRAME_HEAD as u64 + u64::from(entry.length));
        let bytes = match whole {
            Ok(bytes) => Bytes::from(bytes),
            // The file is shorter than it should be.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(Payload::Damaged);
            }
            Err(error) => return Err(error),
        };
        let is_whole = FrameHead::read(&bytes).is_some_and(|head| {
            (head.owner, head.kind, head.seq, head.length)
                == (entry.owner, entry.kind, entry.seq, entry.length)
                && bytes.get(FRAME_HEAD..).is_some_and(|payload| sum(payload) == head.sum)
        });
        Ok(if is_whole { Payload::Whole(bytes.slice(FRAME_HEAD..)) } else { Payload::Damaged })
    }

    /// Overwrites payloads with zeros, and syncs.
    pub(crate) fn erase(&self, entries: &[Entry]) -> io::Result<()> {
        static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
        let file = self.file()?;
        for entry in entries {
            let (mut at, end) =
                (u64::from(entry.offset) + FRAME_HEAD as u64, u64::from(entry.length));
            let end = at + end;
            while at < end {
                let some = u64::min(end - at, ZEROS.len() as u64);
                file.write_at(ZEROS.get(..some as usize).unwrap_or_default(), at)?;
                at += some;
            }
        }
        file.sync()
    }
}

/// The sealed segments with open files, the latest at the end. A dropped segment closes its own.
static OPEN: Mutex<VecDeque<Weak<RwLock<State>>>> = Mutex::new(VecDeque::new());

/// Keeps a segment open, and closes the oldest one if there are too many.
fn keep_open(state: &Arc<RwLock<State>>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.push_back(Arc::downgrade(state));
    let surplus = open.len().saturating_sub(MOST_OPEN);
    let closed: Vec<_> = open.drain(..surplus).collect();
    drop(open);
    for state in closed.iter().filter_map(Weak::upgrade) {
        state.write().unwrap_or_else(PoisonError::into_inner).handle = None;
    }
}

impl Table {
    fn sealed(contents: &Contents, offset: u64) -> Self {
        let fence = contents.entries.iter().step_by(FENCE);
        let fence = fence.map(|entry| (entry.owner, entry.kind, entry.seq)).collect();
        Self::Sealed { fence, offset, count: contents.entries.len() as u64 }
    }
}

fn read_entries(file: &dyn Data, offset: u64, at: u64, count: u64) -> io::Result<Vec<Entry>> {
    let bytes = read_range(file, offset + at * ENTRY as u64, count * ENTRY as u64)?;
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the footer is damaged");
    bytes
        .as_chunks::<ENTRY>()
        .0
        .iter()
        .map(|entry| Entry::read(entry).ok_or_else(damaged))
        .collect()
}
