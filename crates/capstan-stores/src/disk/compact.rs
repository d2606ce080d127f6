//! Compaction. Copies the live frames of mostly dead segments to a new segment, and removes the old
//! ones.
//!
//! The new segment is sorted by stream, and small blocks are merged. So long-lived data is seldom
//! copied, and fast to read.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use capstan_journal::backend::failpoint::{self, Point};

use super::files::{Files, read_range};
use super::footer::{Contents, Entry};
use super::format::{
    FRAME_HEAD, FrameHead, GROUP_HEAD, GroupHead, HEADER, Header, Kind, Origin, sum,
};
use super::index::Held;
use super::packets;
use super::segment::Segment;
use super::shared::{Shared, corrupt, segment_path};
use super::walk;

/// A segment with a larger share of live data is not compacted.
const DIRTY_PERCENT: u64 = 90;
/// The number of small segments that may exist. Restarts leave small segments.
const SMALL_SEGMENTS: usize = 8;
const GROUP_BYTES: usize = 1024 * 1024;
/// The most entries that are checked at once, because the writer waits for the lock of the index.
const ENTRIES_AT_ONCE: usize = 4096;

/// Compacts until the folder is small enough, or nothing more can be gained.
pub(crate) fn compact(shared: &Shared) -> io::Result<()> {
    shared.remove_unneeded()?;
    drop_dead(shared)?;
    loop {
        let victims = choose(shared);
        if victims.is_empty() {
            return Ok(());
        }
        compact_some(shared, &victims)?;
    }
}

/// Removes segments without live data.
fn drop_dead(shared: &Shared) -> io::Result<()> {
    let dead: Vec<_> = {
        let index = shared.index();
        let dead =
            index.segments.values().filter(|held| held.live == 0 && held.segment.is_sealed());
        dead.map(|held| held.segment.clone()).collect()
    };
    if dead.is_empty() {
        return Ok(());
    }
    let mut entries = Vec::new();
    for segment in &dead {
        entries.push(segment.entries()?);
    }
    {
        let mut index = shared.index_mut();
        for (segment, entries) in dead.iter().zip(&entries) {
            index.drop_segment(segment.id, entries);
        }
        entries.iter().for_each(|entries| index.forget_done(entries));
    }
    shared.mark_unneeded(dead.iter().map(|segment| segment.path.clone()));
    shared.remove_unneeded()
}

/// The segments to compact next: those with the least live data, as many as fill about one new
/// segment.
fn choose(shared: &Shared) -> Vec<Arc<Segment>> {
    let index = shared.index();
    let (size, live) = index.sizes();
    let full = shared.settings.segment_bytes;
    let sealed = || {
        index
            .segments
            .values()
            .filter(|held| held.segment.is_sealed() && !held.segment.is_damaged())
    };
    let small: Vec<_> = sealed().filter(|held| held.segment.size() < full / 4).collect();
    // On a nearly full disk there is no slack.
    let is_low = shared.is_low.load(std::sync::atomic::Ordering::Relaxed);
    let slack = if is_low { full } else { shared.settings.slack_bytes };
    let is_over = size > live.saturating_mul(13) / 10 + slack;
    let mut dirty: Vec<_> = match (is_over, small.len() > SMALL_SEGMENTS) {
        (true, _) => sealed().filter(|held| held.live_percent() <= DIRTY_PERCENT).collect(),
        (false, true) => small,
        (false, false) => return Vec::new(),
    };
    dirty.sort_by_key(|held| held.live_percent());
    let mut room = full;
    let fits = |held: &&&Held| {
        let fits = held.live <= room;
        room = room.saturating_sub(held.live);
        fits
    };
    let mut chosen: Vec<_> =
        dirty.iter().take_while(fits).map(|held| held.segment.clone()).collect();
    if chosen.is_empty() {
        chosen.extend(dirty.first().map(|held| held.segment.clone()));
    }
    chosen
}

/// A live frame, and its old segment.
struct LiveEntry {
    from: u32,
    entry: Entry,
}

/// A frame of the new segment, and the frames that it was made of.
struct Copied {
    entry: Entry,
    from: Vec<(u32, Entry)>,
}

fn compact_some(shared: &Shared, victims: &[Arc<Segment>]) -> io::Result<()> {
    let mut all = Vec::new();
    for victim in victims {
        all.push(victim.entries()?);
    }
    let mut kept = Vec::new();
    for (victim, entries) in victims.iter().zip(&all) {
        for some in entries.chunks(ENTRIES_AT_ONCE) {
            let index = shared.index();
            let live = some.iter().filter(|entry| index.is_live(victim.id, entry));
            kept.extend(live.map(|entry| LiveEntry { from: victim.id, entry: *entry }));
        }
    }
    kept.sort_unstable_by_key(|kept| kept.entry);
    let id = shared.next_compacted_id();
    let new = match copy(shared, id, victims, &kept) {
        Ok(new) => new,
        Err(error) => {
            // A half-written file is of no use, least of all on a full disk.
            let path = segment_path(&shared.folder, id);
            shared.remove_unknown([path.with_extension("new"), path]);
            return Err(error);
        }
    };
    // A frame is damaged. Its segment stays unchanged, and is not tried again.
    let Some((segment, contents, copied)) = new else { return Ok(()) };
    swap(shared, victims, &all, segment, &contents, &copied);
    failpoint::hit(Point::AfterSwap);
    shared.mark_unneeded(victims.iter().map(|victim| victim.path.clone()));
    shared.remove_unneeded()
}

/// Replaces the old segments by the new one.
fn swap(
    shared: &Shared,
    victims: &[Arc<Segment>],
    all: &[Vec<Entry>],
    segment: Option<Arc<Segment>>,
    contents: &Contents,
    copied: &[Copied],
) {
    let mut index = shared.index_mut();
    let is_live =
        |copied: &Copied| copied.from.iter().all(|(from, entry)| index.is_live(*from, entry));
    let live: Vec<_> = copied.iter().map(is_live).collect();
    for (victim, entries) in victims.iter().zip(all) {
        index.drop_segment(victim.id, entries);
    }
    if let Some(segment) = segment {
        let id = segment.id;
        index.note_moved(victims.iter().map(|victim| victim.id), id);
        index.segments.insert(id, Held::new(segment).with_contents(&contents.entries));
        for ((entry, summary), is_live) in contents.each().zip(live) {
            match is_live {
                true => index.admit(id, entry, summary),
                false => index.admit_dead(id, entry),
            }
        }
    }
    all.iter().for_each(|entries| index.forget_done(entries));
}

type New = (Option<Arc<Segment>>, Contents, Vec<Copied>);

/// Writes the live frames to a new segment; `None` if one is damaged.
fn copy(
    shared: &Shared,
    id: u32,
    victims: &[Arc<Segment>],
    kept: &[LiveEntry],
) -> io::Result<Option<New>> {
    if kept.is_empty() {
        return Ok(Some((None, Contents::default(), Vec::new())));
    }
    let mut files = BTreeMap::new();
    for victim in victims {
        files.insert(victim.id, (victim, victim.file()?));
    }
    let path = segment_path(&shared.folder, id);
    let unfinished = path.with_extension("new");
    let (boot, salt) = (shared.settings.boot, shared.names.salt);
    let header = Header { id, origin: Origin::Compacted, first_group: 1, boot, salt };
    let mut out = Output::create(&*shared.files, header, &unfinished)?;
    let mut merging: Option<Merging> = None;
    for LiveEntry { from, entry } in kept {
        let Some((victim, file)) = files.get(from) else { continue };
        let bytes =
            read_range(&**file, entry.offset.into(), FRAME_HEAD as u64 + u64::from(entry.length))?;
        let is_whole = FrameHead::read(&bytes).is_some_and(|head| {
            head.seq == entry.seq
                && head.owner == entry.owner
                && bytes.get(FRAME_HEAD..).map(sum) == Some(head.sum)
        });
        if !is_whole {
            victim.mark_damaged();
            let error = corrupt(&victim.path, entry.offset.into(), "a frame is damaged");
            tracing::error!(%error, "the journal keeps the damaged file; `capstan journal repair` \
             mends it");
            shared.damaged.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            drop(out);
            shared.remove_unknown([unfinished]);
            return Ok(None);
        }
        let payload = Bytes::from(bytes).slice(FRAME_HEAD..);
        if entry.kind == Kind::Packets {
            let same = merging.as_mut().filter(|merging| merging.fits(entry, &payload));
            match same {
                Some(merging) => merging.add(*from, *entry, &payload),
                None => {
                    out.put_merged(merging.replace(Merging::new(*from, *entry, &payload)))?;
                }
            }
            continue;
        }
        out.put_merged(merging.take())?;
        out.put(*entry, &[&payload], vec![(*from, *entry)])?;
    }
    out.put_merged(merging)?;
    let (contents, copied, end) = out.finish()?;
    failpoint::hit(Point::BeforeRename);
    shared.files.rename(&unfinished, &path)?;
    shared.files.sync_folder(&shared.folder.join("log"))?;
    let footer = contents.encode(end).len() as u64;
    let segment =
        Segment::sealed(id, path, shared.files.clone(), true, &contents, end, end + footer);
    Ok(Some((Some(Arc::new(segment)), contents, copied)))
}

/// Writes frames to a new segment with this id, for a repair. Returns the length of the file.
pub(crate) fn write_frames(
    files: &dyn Files,
    folder: &Path,
    id: u32,
    salt: [u8; 16],
    mut frames: Vec<(Entry, &[u8])>,
) -> io::Result<(u32, u64)> {
    frames.sort_unstable_by_key(|(entry, _)| *entry);
    let path = segment_path(folder, id);
    let header = Header { id, origin: Origin::Compacted, first_group: 1, boot: [0; 16], salt };
    let mut out = Output::create(files, header, &path)?;
    for (entry, payload) in frames {
        out.put(entry, &[payload], Vec::new())?;
    }
    let (contents, _, end) = out.finish()?;
    files.sync_folder(&folder.join("log"))?;
    Ok((id, end + contents.encode(end).len() as u64))
}

/// Consecutive blocks of one stream that together are small enough for one block.
struct Merging {
    from: Vec<(u32, Entry)>,
    payloads: Vec<Bytes>,
    size: usize,
    count: u64,
}

impl Merging {
    fn new(from: u32, entry: Entry, payload: &Bytes) -> Self {
        let count = packets::count(payload);
        Self {
            from: vec![(from, entry)],
            payloads: vec![payload.clone()],
            size: packets::size(&entry, payload),
            count,
        }
    }

    fn fits(&self, entry: &Entry, payload: &[u8]) -> bool {
        let Some((_, last)) = self.from.last() else { return false };
        let first = (entry.seq + 1).checked_sub(packets::count(payload));
        let follows = last.owner == entry.owner && first == Some(last.seq + 1);
        follows && self.size + packets::size(entry, payload) <= packets::BLOCK_BYTES
    }

    fn add(&mut self, from: u32, entry: Entry, payload: &Bytes) {
        self.from.push((from, entry));
        self.payloads.push(payload.clone());
        self.size += packets::size(&entry, payload);
        self.count += packets::count(payload);
    }
}

/// The new segment, while it is written.
struct Output {
    file: Arc<dyn super::files::Data>,
    /// The offset of the current group.
    at: u64,
    group: Vec<u8>,
    frames: u32,
    groups: u64,
    copied: Vec<Copied>,
    /// Summaries by the offset of their frames.
    summaries: BTreeMap<u32, Vec<u8>>,
}

impl Output {
    fn create(files: &dyn Files, header: Header, path: &Path) -> io::Result<Self> {
        let file = files.create(path)?;
        file.write_at(&header.encode(), 0)?;
        let group = vec![0; GROUP_HEAD];
        let (copied, summaries) = (Vec::new(), BTreeMap::new());
        Ok(Self { file, at: HEADER as u64, group, frames: 0, groups: 0, copied, summaries })
    }

    fn put(&mut self, entry: Entry, payload: &[&[u8]], from: Vec<(u32, Entry)>) -> io::Result<()> {
        let offset = self.at + self.group.len() as u64;
        let start = self.group.len() + FRAME_HEAD;
        self.group.resize(start, 0);
        payload.iter().for_each(|part| self.group.extend_from_slice(part));
        let written = self.group.get(start..).unwrap_or_default();
        let length = written.len() as u32;
        let Entry { owner, kind, seq, .. } = entry;
        let head = FrameHead { length, kind, owner, seq, sum: sum(written) }.encode();
        let entry =
            Entry { offset: u32::try_from(offset).map_err(io::Error::other)?, length, ..entry };
        if walk::has_summary(kind) {
            let summary =
                super::record::split_summary(written).map(|(summary, _)| summary.to_vec());
            self.summaries.extend(summary.map(|summary| (entry.offset, summary)));
        }
        if let Some(place) = self.group.get_mut(start - FRAME_HEAD..start) {
            place.copy_from_slice(&head);
        }
        self.frames += 1;
        self.copied.push(Copied { entry, from });
        if self.group.len() >= GROUP_BYTES { self.flush() } else { Ok(()) }
    }

    fn put_merged(&mut self, merging: Option<Merging>) -> io::Result<()> {
        let Some(merging) = merging else { return Ok(()) };
        let Some((_, last)) = merging.from.last().copied() else { return Ok(()) };
        if let [payload] = &merging.payloads[..] {
            return self.put(last, &[payload], merging.from);
        }
        let mut frames = Vec::with_capacity(merging.count as usize);
        let mut total = 0;
        for ((_, entry), payload) in merging.from.iter().zip(&merging.payloads) {
            let (upto, some) = packets::read(entry, payload)
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a block is damaged"))?;
            total = upto;
            frames.extend(some.frames());
        }
        let mut payload = Vec::with_capacity(merging.size);
        packets::encode(last.owner, total, &frames, &mut payload);
        self.put(last, &[&payload], merging.from)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.frames == 0 {
            return Ok(());
        }
        self.groups += 1;
        let length = (self.group.len() - GROUP_HEAD) as u64;
        let head =
            GroupHead { count: self.frames, number: self.groups, synced: 0, length }.encode();
        if let Some(place) = self.group.get_mut(..GROUP_HEAD) {
            place.copy_from_slice(&head);
        }
        self.file.write_at(&self.group, self.at)?;
        self.at += self.group.len() as u64;
        self.group.truncate(GROUP_HEAD);
        self.frames = 0;
        Ok(())
    }

    /// Writes the footer and syncs.
    fn finish(mut self) -> io::Result<(Contents, Vec<Copied>, u64)> {
        self.flush()?;
        let entries: Vec<_> = self.copied.iter().map(|copied| copied.entry).collect();
        let summaries = walk::summaries(&entries, |entry| self.summaries.remove(&entry.offset));
        let contents = Contents { entries, summaries, last_group: 0 };
        self.file.write_at(&contents.encode(self.at), self.at)?;
        self.file.sync()?;
        Ok((contents, self.copied, self.at))
    }
}
