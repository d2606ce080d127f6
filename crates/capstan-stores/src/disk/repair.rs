//! Checks a folder, and repairs a damaged one. A repair keeps intact data, reports losses, and
//! moves damaged files aside.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_journal::{JournalError, RunState};
use capstan_protocol::cursor::LOST_TAIL_GAP;
use uuid::Uuid;

use super::compactor::ASIDE;
use super::files::{Files, SystemFiles, read_range};
use super::folder::Folder;
use super::footer::Entry;
use super::format::COMPACTED;
use super::format::{FRAME_HEAD, Header, Kind};
use super::index::Index;
use super::packets;
use super::record::{Record, split_summary};
use super::scan::{self, Scan};
use super::segment::{Payload, Segment};
use super::shared::{Settings, io_failure, segment_id};
use super::{DiskStore, boot_id, compact, walk};
use crate::{Damage, Durability, Report};

/// Checks a folder without changing it. If `is_deep`, reads every packet.
pub fn check(folder: &Path, is_deep: bool) -> Result<Report, JournalError> {
    let (held, files) = hold(folder)?;
    let scan = scan::scan(&files, folder, boot())?;
    let mut report = report_of(&scan);
    report.damage.extend(held.damage()?);
    if is_deep {
        let losses = check_deep(&scan.index).map_err(|error| io_failure("read", folder, error))?;
        report.lost_streams = losses.lost.keys().copied().collect();
        report.damage.extend(losses.damage);
    }
    Ok(report)
}

/// Repairs a damaged folder: keeps intact data, marks runs with losses, and moves damaged files to
/// the folder `damaged`.
pub fn repair(folder: &Path) -> Result<Report, JournalError> {
    let (held, files) = hold(folder)?;
    let fail = |error| io_failure("repair", folder, error);
    let first = scan::scan(&files, folder, boot())?;
    let mut report = report_of(&first);
    let deep = check_deep(&first.index).map_err(fail)?;
    report.damage.extend(deep.damage.iter().cloned());
    let format = held.damage()?;
    if !report.damage.is_empty() {
        let damaged: BTreeSet<_> = report.damage.iter().map(|damage| damage.file.clone()).collect();
        report.aside = Some(rebuild(&files, folder, &first, &damaged).map_err(fail)?);
    }
    if let Some(damage) = format {
        held.write_format().map_err(fail)?;
        report.damage.push(damage);
    }
    let (has_gaps, mut damaged_owners) = (first.has_gaps, first.damaged_owners);
    damaged_owners.extend(deep.damaged_owners);
    drop(first.index);
    let second = scan::scan(&files, folder, boot())?;
    let mut losses = check_deep(&second.index).map_err(fail)?;
    // The lost data may contain the last packets of a running run, and its end. It must not be
    // continued.
    let may_have_gone_on = |id: &&Uuid| has_gaps || damaged_owners.contains(*id);
    for id in second.index.open.iter().filter(may_have_gone_on) {
        let Some(stream) =
            second.index.streams.get(id).filter(|stream| stream.lost_after.is_none())
        else {
            continue;
        };
        let last = stream.parts_after(0).iter().map(|part| part.last).max().unwrap_or(0);
        losses.lost.entry(*id).or_insert(last);
    }
    let unrecorded = second.index.without_record();
    drop(second);
    drop(held);
    let lost: Vec<_> = losses.lost.into_iter().collect();
    report.lost_streams =
        lost.iter().map(|(stream, _)| *stream).chain(unrecorded.iter().copied()).collect();
    if !report.lost_streams.is_empty() {
        let settings = Settings { boot: boot(), ..Settings::new(Durability::Power) };
        let store = DiskStore::open_with(folder, settings, files)?;
        store.mark_lost(lost, unrecorded)?;
    }
    Ok(report)
}

fn boot() -> [u8; 16] {
    boot_id().map_or([0; 16], Uuid::into_bytes)
}

fn hold(folder: &Path) -> Result<(Folder, Arc<dyn Files>), JournalError> {
    Ok((Folder::hold(folder)?, Arc::new(SystemFiles)))
}

fn report_of(scan: &Scan) -> Report {
    Report {
        segments: scan.index.segments.len() as u64,
        streams: scan.index.streams.len() as u64,
        sessions: scan.index.sessions.len() as u64,
        bytes: scan.index.sizes().0,
        torn_bytes: scan.torn.iter().map(|torn| torn.dropped).sum(),
        damage: scan.damage.clone(),
        ..Report::default()
    }
}

#[derive(Default)]
struct Losses {
    damage: Vec<Damage>,
    /// Runs with losses, and their last intact packet.
    lost: BTreeMap<Uuid, u64>,
    /// Owners of damaged frames.
    damaged_owners: BTreeSet<Uuid>,
}

/// Reads every live frame.
fn check_deep(index: &Index) -> io::Result<Losses> {
    let mut losses = Losses::default();
    let mut packets: BTreeMap<Uuid, Vec<(u64, u64, bool)>> = BTreeMap::new();
    let mut lasts = BTreeMap::new();
    for held in index.segments.values() {
        let segment = &held.segment;
        let file = segment.file()?;
        if let Some(broken) = walk::walk(&read_range(&*file, 0, file.length()?)?).broken
            && broken.offset < segment.size()
        {
            let what = "the head of a group is damaged".to_owned();
            losses.damage.push(Damage { file: segment.path.clone(), offset: broken.offset, what });
        }
        for entry in segment.entries()? {
            if index.may_be_erased(&entry) {
                continue;
            }
            let is_live = index.is_live(segment.id, &entry);
            let payload = segment.payload(&*file, &entry)?;
            let is_whole =
                matches!(&payload, Payload::Whole(payload) if is_readable(&entry, payload));
            if !is_whole {
                losses.damage.push(damage(segment, &entry));
                losses.damaged_owners.insert(entry.owner);
            }
            if !is_live {
                continue;
            }
            match (entry.kind, payload) {
                (Kind::Packets, Payload::Whole(payload)) => {
                    let first = (entry.seq + 1).saturating_sub(packets::count(&payload));
                    packets.entry(entry.owner).or_default().push((first, entry.seq, is_whole));
                }
                (Kind::Packets, Payload::Damaged) => {
                    packets.entry(entry.owner).or_default().push((entry.seq, entry.seq, false));
                }
                (Kind::Record, Payload::Whole(payload)) => {
                    let run = Record::read(&payload).map(|record| record.run);
                    let ended = run.filter(|run| run.state != RunState::Running);
                    lasts.extend(ended.map(|run| (entry.owner, run.last_seq)));
                }
                (Kind::Body | Kind::Record, Payload::Damaged) => {
                    losses.lost.insert(entry.owner, 0);
                }
                _ => {}
            }
        }
    }
    for (stream, found) in &index.streams {
        if found.lost_after.is_some() {
            losses.lost.remove(stream);
            continue;
        }
        let mut blocks = packets.remove(stream).unwrap_or_default();
        blocks.sort_unstable();
        let is_missing = found.body.is_none();
        let last = blocks.last().map_or(0, |(_, last, _)| *last);
        // For a running run the index has the last packet.
        let is_short = lasts.get(stream).is_some_and(|recorded| *recorded > last);
        if let Some(upto) =
            whole_up_to(&blocks).or(is_missing.then_some(0)).or(is_short.then_some(last))
        {
            let lost = losses.lost.entry(*stream).or_insert(upto);
            *lost = (*lost).min(upto);
        }
    }
    Ok(losses)
}

/// The last packet before a gap or damage; `None` if the stream is intact.
fn whole_up_to(blocks: &[(u64, u64, bool)]) -> Option<u64> {
    let mut last = 0;
    for (first, end, is_whole) in blocks {
        let follows = *first == last + 1 || (last > 0 && *first >= last + LOST_TAIL_GAP);
        if !follows || !is_whole {
            return Some(last);
        }
        last = *end;
    }
    None
}

fn is_readable(entry: &Entry, payload: &bytes::Bytes) -> bool {
    match entry.kind {
        Kind::Packets => packets::read(entry, payload).is_some(),
        Kind::Record => Record::read(payload).is_some(),
        Kind::Turn | Kind::Session | Kind::Gone | Kind::TurnGone | Kind::Tokens => {
            split_summary(payload).is_some()
        }
        Kind::Body | Kind::Erased => true,
    }
}

fn damage(segment: &Segment, entry: &Entry) -> Damage {
    let what = format!("{:?} {} of {} is damaged", entry.kind, entry.seq, entry.owner);
    Damage { file: segment.path.clone(), offset: entry.offset.into(), what }
}

/// Writes the intact frames of damaged segments to new segments, and moves the old ones aside.
fn rebuild(
    files: &Arc<dyn Files>,
    folder: &Path,
    scan: &Scan,
    damaged: &BTreeSet<PathBuf>,
) -> io::Result<PathBuf> {
    let (log, aside) = (folder.join("log"), folder.join(ASIDE));
    fs::create_dir_all(&aside)?;
    fs::create_dir_all(&log)?;
    let mut manifest = scan.manifest.clone();
    let mut next = scan.next_compacted;
    let mut moved = Vec::new();
    manifest.segments.clear();
    let mut names = files.list(&log)?;
    names.sort();
    for name in names {
        let (path, Some(id)) = (log.join(&name), segment_id(&name)) else { continue };
        if scan.leftovers.contains(&path) {
            continue;
        }
        let file = files.open(&path)?;
        let bytes = read_range(&*file, 0, file.length()?)?;
        if let Some(header) = Header::read(&bytes) {
            manifest.salt = header.salt;
        }
        let groups = walk::salvage(&bytes);
        if id < COMPACTED {
            manifest.next = manifest.next.max(id + 1);
            manifest.synced =
                groups.iter().map(|group| group.number).chain([manifest.synced]).max().unwrap_or(0);
        }
        let is_whole = scan.index.segments.get(&id).is_some_and(|held| held.segment.is_sealed());
        if is_whole && !damaged.contains(&path) {
            manifest.segments.insert(id, Some(bytes.len() as u64));
            continue;
        }
        // If the footer of a segment is intact, use it. Otherwise walk its groups.
        let mut whole: BTreeSet<Entry> = BTreeSet::new();
        whole.extend(
            groups
                .iter()
                .flat_map(|group| &group.frames)
                .filter(|found| found.is_whole)
                .map(|found| found.entry),
        );
        if let Some(held) = scan.index.segments.get(&id).filter(|held| held.segment.is_sealed()) {
            for entry in held.segment.entries()? {
                if matches!(held.segment.payload(&*file, &entry)?, Payload::Whole(_)) {
                    whole.insert(entry);
                }
            }
        }
        let whole: Vec<_> =
            whole.into_iter().map(|entry| (entry, payload(&bytes, &entry))).collect();
        if !whole.is_empty() {
            let (new, length) =
                compact::write_frames(&**files, folder, next, manifest.salt, whole)?;
            manifest.segments.insert(new, Some(length));
            next += 1;
        }
        moved.push((path, aside.join(&name)));
    }
    manifest.written = manifest.synced;
    // From here on the new files count.
    manifest.save(&**files, folder)?;
    for (from, to) in moved {
        fs::rename(from, to)?;
    }
    files.sync_folder(&log)?;
    Ok(aside)
}

fn payload<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    let start = entry.offset as usize + FRAME_HEAD;
    bytes.get(start..start + entry.length as usize).unwrap_or_default()
}
