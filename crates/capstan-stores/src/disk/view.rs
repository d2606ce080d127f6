//! Reads. Places are looked up in the index, and the bytes are read without its lock. If they are
//! not what was written, the place is looked up again: compaction may have moved the frame, or a
//! purge erased it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use capstan_journal::backend::rules::shown;
use capstan_journal::{
    ErrorKind, Found, Frame, Frames, JournalError, NameKind, Run, RunState, StoredTurn, Usage,
};
use capstan_protocol::cursor::LOST_TAIL_GAP;
use uuid::Uuid;

use super::footer::Entry;
use super::format::Kind;
use super::index::{Index, Location};
use super::packets::{self, Block, Joined};
use super::parts::Part;
use super::record::{Record, split_summary};
use super::segment::{Payload, Segment};
use super::shared::{Shared, corrupt, io_failure};

/// How often a place is looked up before the frame counts as damaged.
const TRIES: usize = 4;
/// The most entries that are looked up at once.
const WINDOW: usize = 64;

/// The result of one attempt to read.
enum Attempt<T> {
    Found(T),
    /// The frame is damaged or missing. It may have been moved.
    Moved(JournalError),
}

/// Retries a read until its result is intact. Damage is counted and reported.
fn retry_read<T>(
    shared: &Shared,
    mut read: impl FnMut() -> Result<Attempt<T>, JournalError>,
) -> Result<T, JournalError> {
    let mut last = None;
    for _ in 0..TRIES {
        match read()? {
            Attempt::Found(found) => return Ok(found),
            Attempt::Moved(error) => last = Some(error),
        }
    }
    let error = last.unwrap_or_else(|| corrupt(&shared.folder, 0, "the data cannot be read"));
    shared.damaged.fetch_add(1, Ordering::Relaxed);
    tracing::error!(%error, "the journal has damaged data; run `capstan journal check`");
    Err(error)
}

/// Reads one frame.
fn payload(segment: &Segment, entry: &Entry) -> Result<Attempt<Bytes>, JournalError> {
    let file = match segment.file() {
        Ok(file) => file,
        Err(error) => return missing(segment, error),
    };
    payload_of(segment, &*file, entry)
}

fn payload_of(
    segment: &Segment,
    file: &dyn super::files::Data,
    entry: &Entry,
) -> Result<Attempt<Bytes>, JournalError> {
    match segment.payload(file, entry) {
        Ok(Payload::Whole(bytes)) => Ok(Attempt::Found(bytes)),
        Ok(Payload::Damaged) => Ok(Attempt::Moved(damaged(segment, entry))),
        Err(error) => Err(io_failure("read", &segment.path, error)),
    }
}

fn damaged(segment: &Segment, entry: &Entry) -> JournalError {
    let what = format!("{:?} {} of {} is damaged", entry.kind, entry.seq, entry.owner);
    corrupt(&segment.path, entry.offset.into(), &what)
}

fn missing<T>(segment: &Segment, error: io::Error) -> Result<Attempt<T>, JournalError> {
    use io::ErrorKind::{InvalidData, NotFound, UnexpectedEof};
    if [NotFound, InvalidData, UnexpectedEof].contains(&error.kind()) {
        return Ok(Attempt::Moved(corrupt(&segment.path, 0, &error.to_string())));
    }
    Err(io_failure("read", &segment.path, error))
}

fn no_segment(shared: &Shared, owner: Uuid) -> JournalError {
    corrupt(&shared.folder, 0, &format!("a file with data of {owner} is missing"))
}

fn segment_of(index: &Index, id: u32) -> Option<Arc<Segment>> {
    index.segments.get(&id).map(|held| held.segment.clone())
}

/// Reads a run's record.
pub(crate) fn record(shared: &Shared, stream: Uuid) -> Result<Option<Record>, JournalError> {
    let mut record: Record = match retry_read(shared, || {
        let place = {
            let index = shared.index();
            let place = index.streams.get(&stream).and_then(|stream| stream.record);
            place.and_then(|place| Some((segment_of(&index, place.segment)?, place.entry)))
        };
        let Some((segment, entry)) = place else { return Ok(Attempt::Found(None)) };
        Ok(match payload(&segment, &entry)? {
            Attempt::Moved(error) => Attempt::Moved(error),
            Attempt::Found(bytes) => match Record::read(&bytes) {
                Some(record) => Attempt::Found(Some(record)),
                None => Attempt::Moved(damaged(&segment, &entry)),
            },
        })
    })? {
        Some(record) => record,
        None => return Ok(None),
    };
    if record.run.state == RunState::Running
        && let Some((last, total)) = last_packets(shared, stream)?
    {
        (record.run.last_seq, record.run.bytes) = (last, total);
    }
    Ok(Some(record))
}

/// The last `seq` of a stream, and the size of all its packets.
fn last_packets(shared: &Shared, stream: Uuid) -> Result<Option<(u64, u64)>, JournalError> {
    retry_read(shared, || {
        let part = {
            let index = shared.index();
            let parts =
                index.streams.get(&stream).map(|stream| stream.parts_after(0)).unwrap_or_default();
            let last = parts.into_iter().max_by_key(|part| part.last);
            last.map(|part| (segment_of(&index, part.segment), part.last))
        };
        let Some((segment, last)) = part else { return Ok(Attempt::Found(None)) };
        let Some(segment) = segment else { return Ok(Attempt::Moved(no_segment(shared, stream))) };
        let found = match segment.find(stream, Kind::Packets, last - 1, 1) {
            Ok(found) => found,
            Err(error) => return missing(&segment, error),
        };
        let Some(entry) = found.first() else {
            return Ok(Attempt::Moved(corrupt(
                &segment.path,
                0,
                &format!("packet {last} of {stream} is missing"),
            )));
        };
        Ok(match payload(&segment, entry)? {
            Attempt::Found(bytes) => match packets::read(entry, &bytes) {
                Some((total, _)) => Attempt::Found(Some((entry.seq, total))),
                None => Attempt::Moved(damaged(&segment, entry)),
            },
            Attempt::Moved(error) => Attempt::Moved(error),
        })
    })
}

pub(crate) fn run(shared: &Shared, stream: Uuid) -> Result<Option<Run>, JournalError> {
    Ok(record(shared, stream)?.map(|record| shown(record.run)))
}

pub(crate) fn body(shared: &Shared, stream: Uuid) -> Result<Option<Bytes>, JournalError> {
    retry_read(shared, || {
        let place = {
            let index = shared.index();
            let place = index.streams.get(&stream).and_then(|stream| stream.body);
            place.and_then(|place| Some((segment_of(&index, place.segment)?, place.entry)))
        };
        let Some((segment, entry)) = place else { return Ok(Attempt::Found(None)) };
        Ok(match payload(&segment, &entry)? {
            Attempt::Found(bytes) => Attempt::Found(Some(bytes)),
            Attempt::Moved(error) => Attempt::Moved(error),
        })
    })
}

type Places = Vec<(Arc<Segment>, Entry)>;

/// Numbered frames of an owner after a number, in order. They have no gaps that the journal does
/// not have.
fn numbered(
    shared: &Shared,
    parts: impl Fn(&Index) -> Vec<Part>,
    owner: Uuid,
    kind: Kind,
    after: u64,
) -> Result<Attempt<Places>, JournalError> {
    let parts: Option<Vec<_>> = {
        let index = shared.index();
        parts(&index)
            .into_iter()
            .map(|part| Some((segment_of(&index, part.segment)?, part)))
            .collect()
    };
    let Some(parts) = parts else { return Ok(Attempt::Moved(no_segment(shared, owner))) };
    let (mut found, mut bound) = (Vec::new(), u64::MAX);
    for (segment, part) in parts {
        if part.first > bound {
            break;
        }
        let entries = match segment.find(owner, kind, after, WINDOW) {
            Ok(entries) => entries,
            Err(error) => return missing(&segment, error),
        };
        if let Some(last) = entries.last().filter(|_| entries.len() == WINDOW) {
            bound = bound.min(last.seq);
        }
        found.extend(entries.into_iter().map(|entry| (segment.clone(), entry)));
    }
    found.retain(|(_, entry)| entry.seq <= bound);
    found.sort_by_key(|(_, entry)| entry.seq);
    Ok(Attempt::Found(found))
}

/// Packets after a `seq` as single frames. Stays within both limits, but returns at least one if
/// there is one.
pub(crate) fn read(
    shared: &Shared,
    stream: Uuid,
    after: u64,
    max_packets: usize,
    max_bytes: usize,
) -> Result<Vec<Frame>, JournalError> {
    let mut found = Vec::new();
    read_blocks(shared, stream, after, (max_packets, max_bytes), |block| {
        found.extend(block.frames())
    })?;
    Ok(found)
}

/// The same in one buffer, with the `seq` of the last packet.
pub(crate) fn read_on(
    shared: &Shared,
    stream: Uuid,
    after: u64,
    max_packets: usize,
    max_bytes: usize,
) -> Result<Option<(Frames, u64)>, JournalError> {
    let mut joined = Joined::default();
    read_blocks(shared, stream, after, (max_packets, max_bytes), |block| {
        joined.push(block, max_bytes)
    })?;
    Ok(joined.done())
}

/// A read in progress.
struct ReadInProgress<G> {
    /// The last packet that was read.
    cursor: u64,
    /// The last intact packet.
    upto: u64,
    /// The packets and bytes that may still be added.
    room: (usize, usize),
    has_some: bool,
    is_over: bool,
    give: G,
}

impl<G: FnMut(Block)> ReadInProgress<G> {
    /// Adds the wanted packets of a block. The first packet of a read is always added.
    fn take(&mut self, block: Block) {
        let wanted = block.after(self.cursor).upto(self.upto);
        let fitting = wanted.fitting(self.room.0, self.room.1).max(usize::from(!self.has_some));
        let is_cut = fitting < wanted.len();
        let taken = wanted.keep(fitting);
        self.room.0 = self.room.0.saturating_sub(taken.len());
        self.room.1 = self.room.1.saturating_sub(taken.size());
        if let Some(last) = taken.last() {
            (self.cursor, self.has_some) = (last, true);
            (self.give)(taken);
        }
        let is_full = self.has_some && (self.room.0 == 0 || self.room.1 == 0);
        self.is_over = is_cut || is_full || self.cursor >= self.upto;
    }
}

fn read_blocks(
    shared: &Shared,
    stream: Uuid,
    after: u64,
    room: (usize, usize),
    give: impl FnMut(Block),
) -> Result<(), JournalError> {
    let lost_after = shared.index().streams.get(&stream).and_then(|stream| stream.lost_after);
    if let Some(lost) = lost_after.filter(|lost| after >= *lost) {
        let what = format!(
            "the packets after {lost} of {stream} are lost, as an earlier repair has reported"
        );
        return Err(JournalError::new(ErrorKind::Corrupt, what));
    }
    let upto = lost_after.unwrap_or(u64::MAX);
    let mut reading =
        ReadInProgress { cursor: after, upto, room, has_some: false, is_over: false, give };
    loop {
        let begun = reading.cursor;
        match retry_read(shared, || read_some(shared, stream, &mut reading)) {
            // The packets before the damage are intact.
            Err(_) if reading.has_some => return Ok(()),
            read => read?,
        }
        if reading.is_over || reading.cursor == begun {
            return Ok(());
        }
    }
}

/// Reads further packets up to the looked-up end. Damage after the first packet is left to the next
/// read.
fn read_some(
    shared: &Shared,
    stream: Uuid,
    reading: &mut ReadInProgress<impl FnMut(Block)>,
) -> Result<Attempt<()>, JournalError> {
    let begun = reading.cursor;
    let parts = |index: &Index| {
        index.streams.get(&stream).map(|stream| stream.parts_after(begun)).unwrap_or_default()
    };
    let entries = match numbered(shared, parts, stream, Kind::Packets, begun)? {
        Attempt::Found(entries) => entries,
        Attempt::Moved(error) => return Ok(Attempt::Moved(error)),
    };
    let mut open: Option<(u32, Arc<dyn super::files::Data>)> = None;
    for (segment, entry) in entries {
        let last = Some(reading.cursor).filter(|cursor| *cursor > begun);
        let file = match open.take().filter(|(id, _)| *id == segment.id) {
            Some((_, file)) => file,
            None => match segment.file() {
                Ok(file) => file,
                Err(_) if last.is_some() => break,
                Err(error) => return missing(&segment, error),
            },
        };
        let block = match segment.payload(&*file, &entry) {
            Ok(Payload::Whole(payload)) => packets::read(&entry, &payload).map(|(_, block)| block),
            Ok(Payload::Damaged) => None,
            Err(error) => return Err(io_failure("read", &segment.path, error)),
        };
        // A reader may begin anywhere, even within the gap of a lost tail.
        let follows =
            |first: u64| last.is_none_or(|last| first == last + 1 || first >= last + LOST_TAIL_GAP);
        match block.filter(|block| follows(block.first())) {
            Some(block) => reading.take(block),
            None if last.is_some() => break,
            None => return Ok(Attempt::Moved(damaged(&segment, &entry))),
        }
        if reading.is_over {
            break;
        }
        open = Some((segment.id, file));
    }
    Ok(Attempt::Found(()))
}

/// The place of a turn.
pub(crate) fn turn_place(
    shared: &Shared,
    session: Uuid,
    number: u64,
) -> Result<Option<Location>, JournalError> {
    retry_read(shared, || {
        let parts = |index: &Index| {
            let found = index.sessions.get(&session).filter(|session| !session.has_lost(number));
            found.map(|session| session.parts_after(number - 1)).unwrap_or_default()
        };
        Ok(match numbered(shared, parts, session, Kind::Turn, number - 1)? {
            Attempt::Found(found) => {
                let turn = found.into_iter().find(|(_, entry)| entry.seq == number);
                Attempt::Found(turn.map(|(segment, entry)| Location { segment: segment.id, entry }))
            }
            Attempt::Moved(error) => Attempt::Moved(error),
        })
    })
}

/// The turn of a stream: its session, and its number.
pub(crate) fn turn_of(shared: &Shared, stream: Uuid) -> Option<(Uuid, u64)> {
    let index = shared.index();
    let stream = index.streams.get(&stream)?;
    Some((stream.session_id, stream.turn)).filter(|(_, turn)| *turn > 0)
}

/// A session's turns from a number on.
pub(crate) fn turns(
    shared: &Shared,
    tenant: &str,
    session: &str,
    from: u64,
    limit: usize,
    max_bytes: usize,
) -> Result<Vec<StoredTurn>, JournalError> {
    let name = shared.names.of(tenant, NameKind::Session, session);
    let Some(id) = shared.index().session_ids.get(&name).copied() else { return Ok(Vec::new()) };
    let (mut turns, mut after, mut room) = (Vec::new(), from.saturating_sub(1), max_bytes);
    while turns.len() < limit {
        let is_first = turns.is_empty();
        let some = retry_read(shared, || {
            some_turns(shared, id, after, limit - turns.len(), room, is_first)
        })?;
        let Some(SomeTurns { last, found, is_full, bytes }) = some else { break };
        (after, room) = (last, room.saturating_sub(bytes));
        turns.extend(found);
        if is_full {
            break;
        }
    }
    Ok(turns)
}

/// A part of a session's turns.
struct SomeTurns {
    /// The number of the last one.
    last: u64,
    found: Vec<StoredTurn>,
    /// The next turn does not fit.
    is_full: bool,
    bytes: usize,
}

/// Reads turns after a number, as many as fit. The first one of a read is always included.
fn some_turns(
    shared: &Shared,
    session: Uuid,
    after: u64,
    limit: usize,
    room: usize,
    is_first: bool,
) -> Result<Attempt<Option<SomeTurns>>, JournalError> {
    let parts = |index: &Index| {
        index.sessions.get(&session).map(|session| session.parts_after(after)).unwrap_or_default()
    };
    let mut entries = match numbered(shared, parts, session, Kind::Turn, after)? {
        Attempt::Found(entries) => entries,
        Attempt::Moved(error) => return Ok(Attempt::Moved(error)),
    };
    let Some(mut last) = entries.last().map(|(_, entry)| entry.seq) else {
        return Ok(Attempt::Found(None));
    };
    {
        let index = shared.index();
        let Some(session) = index.sessions.get(&session) else { return Ok(Attempt::Found(None)) };
        entries.retain(|(_, entry)| !session.has_lost(entry.seq));
    }
    let (mut turns, mut taken, mut is_full) = (Vec::new(), 0_usize, false);
    let mut open: Option<(u32, Arc<dyn super::files::Data>)> = None;
    for (segment, entry) in entries {
        if turns.len() == limit {
            break;
        }
        taken = taken.saturating_add(entry.length as usize);
        if taken > room && !(is_first && turns.is_empty()) {
            is_full = true;
            break;
        }
        let file = match open.take().filter(|(id, _)| *id == segment.id) {
            Some((_, file)) => file,
            None => match segment.file() {
                Ok(file) => file,
                Err(error) => return missing(&segment, error),
            },
        };
        let bytes = match payload_of(&segment, &*file, &entry)? {
            Attempt::Found(bytes) => bytes,
            Attempt::Moved(error) => return Ok(Attempt::Moved(error)),
        };
        open = Some((segment.id, file));
        let turn = split_summary(&bytes).and_then(|(_, json)| serde_json::from_slice(json).ok());
        let Some(turn) = turn else { return Ok(Attempt::Moved(damaged(&segment, &entry))) };
        turns.push(turn);
        if turns.len() == limit {
            last = entry.seq;
        }
    }
    Ok(Attempt::Found(Some(SomeTurns { last, found: turns, is_full, bytes: taken })))
}

pub(crate) fn find(
    shared: &Shared,
    tenant: &str,
    key: &str,
) -> Result<Option<Found>, JournalError> {
    let name = shared.names.of(tenant, NameKind::Key, key);
    let Some(stream) = shared.index().claimed(name) else { return Ok(None) };
    Ok(Some(run(shared, stream)?.map_or(Found::Expired, Found::Run)))
}

/// Runs with a name, newest first, older than `before`.
pub(crate) fn named(
    shared: &Shared,
    name: super::names::Name,
    before: Option<Uuid>,
    limit: usize,
) -> Result<Vec<Run>, JournalError> {
    let streams: Vec<_> = {
        let index = shared.index();
        let range = (name, Uuid::nil())..(name, before.unwrap_or(Uuid::max()));
        let streams = index.names.range(range).rev().map(|(_, stream)| *stream);
        streams.filter(|stream| index.streams.contains_key(stream)).take(limit).collect()
    };
    let mut runs = Vec::with_capacity(streams.len());
    for stream in streams {
        match run(shared, stream) {
            // It was reported and counted. The others can still be listed.
            Err(error) if error.kind() == ErrorKind::Corrupt => {}
            run => runs.extend(run?),
        }
    }
    Ok(runs)
}

/// The usage of a tenant and of one session, as far as it is written. Only the writer knows what is
/// queued.
pub(crate) fn usage(shared: &Shared, tenant: &str, session: &str) -> Usage {
    let name = shared.names.of(tenant, NameKind::Session, session);
    let tenant = shared.names.tenant(tenant);
    let index = shared.index();
    let id = index.session_ids.get(&name).copied();
    let known = id.and_then(|id| index.sessions.get(&id));
    let mut usage = Usage {
        sessions: index.sessions_of.get(&tenant).copied().unwrap_or(0),
        bytes: index.held_by(&tenant),
        has_session: known.is_some(),
        messages: known.map_or(0, |session| session.turns),
        session_bytes: known.map_or(0, |session| session.bytes),
        tokens: index.tokens_of.get(&tenant).map(|(_, tokens)| *tokens).unwrap_or_default(),
        ..Usage::default()
    };
    let open = index.open.iter().filter_map(|stream| index.streams.get(stream));
    for stream in open.filter(|stream| stream.tenant == tenant) {
        usage.running += u64::from(stream.state == RunState::Running);
        usage.waiting += u64::from(stream.state == RunState::Waiting);
        if Some(stream.session_id) == id {
            usage.messages += 1;
            usage.session_bytes += stream.body.map_or(0, |place| u64::from(place.entry.length));
        }
    }
    usage
}
