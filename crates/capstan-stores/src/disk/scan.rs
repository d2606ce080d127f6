//! Scans a folder without changing it, for an opening, a check or a repair.
//!
//! A torn tail, which a crash may leave, is not damage. Missing data that was acknowledged is
//! damage, and is never cut off.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{Files, read_range};
use super::footer::{Contents, Entry, TAIL, Tail};
use super::format::COMPACTED;
use super::format::{HEADER, Header, Kind, Origin};
use super::index::{Held, Index, Location};
use super::manifest::Manifest;
use super::names::Names;
use super::segment::{Payload, Segment};
use super::shared::{io_failure, segment_id, segment_path};
use super::walk::{self, Walk};
use crate::Damage;
use capstan_journal::JournalError;
use uuid::Uuid;

/// A file whose end has to be cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Torn {
    pub(crate) path: PathBuf,
    /// The length to keep; 0 to remove the file.
    pub(crate) keep: u64,
    pub(crate) dropped: u64,
}

#[derive(Default)]
pub(crate) struct Scan {
    pub(crate) manifest: Manifest,
    pub(crate) index: Index,
    pub(crate) torn: Vec<Torn>,
    /// Files that a crash left, and that belong to nothing.
    pub(crate) leftovers: Vec<PathBuf>,
    pub(crate) damage: Vec<Damage>,
    /// Data is lost, and its streams are unknown.
    pub(crate) has_gaps: bool,
    /// Owners of damaged frames.
    pub(crate) damaged_owners: BTreeSet<Uuid>,
    /// Segments without a footer.
    pub(crate) unsealed: Vec<Arc<Segment>>,
    pub(crate) last_group: u64,
    pub(crate) next_segment: u32,
    pub(crate) next_compacted: u32,
    /// Frames with a wrong sum. They are judged when everything is known.
    suspects: Vec<(PathBuf, Location)>,
    /// The last group of all sealed segments. All groups up to it were synced.
    sealed: u64,
    /// Segments of the manifest that seem never to have been written.
    blank: Vec<PathBuf>,
}

/// A segment without a footer, read group by group.
struct Walked {
    id: u32,
    path: PathBuf,
    bytes: Vec<u8>,
    walk: Walk,
    header: Header,
}

pub(crate) fn scan(
    files: &Arc<dyn Files>,
    folder: &Path,
    boot: [u8; 16],
) -> Result<Scan, JournalError> {
    let mut scan = Scan::default();
    let fail = |error| io_failure("read", folder, error);
    match Manifest::load(&**files, folder).map_err(fail)? {
        Some(Ok(manifest)) => scan.manifest = manifest,
        Some(Err(())) => scan.damaged(&folder.join("files"), 0, "the manifest is damaged"),
        None => scan.damaged(&folder.join("files"), 0, "the manifest is missing"),
    }
    let log = folder.join("log");
    let names = match files.list(&log) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            scan.damaged(&log, 0, "the folder of segments is missing");
            return Ok(scan);
        }
        Err(error) => return Err(io_failure("read", &log, error)),
    };
    let ids = scan.sort_out(folder, &log, &names);
    let headers = scan.read_headers(&**files, folder, &ids)?;
    let mut walked = Vec::new();
    for (id, header) in &headers {
        if let Some(one) = scan.load(files, folder, *id, *header)? {
            walked.push(one);
        }
    }
    scan.judge(files, walked, &headers, boot);
    scan.index.settle();
    scan.judge_suspects();
    scan.judge_open().map_err(fail)?;
    Ok(scan)
}

impl Scan {
    /// Records damage that may concern any stream.
    fn damaged(&mut self, file: &Path, offset: u64, what: &str) {
        self.has_gaps = true;
        self.damaged_frame(file, offset, what);
    }

    fn damaged_frame(&mut self, file: &Path, offset: u64, what: &str) {
        self.damage.push(Damage { file: file.to_owned(), offset, what: what.to_owned() });
    }

    /// Selects the segments that count. Records missing segments and leftover files.
    fn sort_out(&mut self, folder: &Path, log: &Path, names: &[String]) -> BTreeSet<u32> {
        let mut ids = BTreeSet::new();
        let is_known = self.damage.is_empty();
        (self.next_segment, self.next_compacted) = (1, COMPACTED);
        for name in names {
            let Some(id) = segment_id(name) else {
                if name.ends_with(".new") {
                    self.leftovers.push(log.join(name));
                }
                continue;
            };
            let next =
                if id < COMPACTED { &mut self.next_segment } else { &mut self.next_compacted };
            *next = (*next).max(id + 1);
            let is_listed = self.manifest.segments.contains_key(&id);
            let is_newer = id < COMPACTED && id >= self.manifest.next;
            if is_listed || is_newer || !is_known {
                ids.insert(id);
            } else {
                // It was removed on purpose, or is a compacted segment that was never listed.
                self.leftovers.push(log.join(name));
            }
        }
        let missing: Vec<_> =
            self.manifest.segments.keys().filter(|id| !ids.contains(id)).copied().collect();
        for id in missing {
            self.damaged(&segment_path(folder, id), 0, "the file is missing");
        }
        ids
    }

    fn read_headers(
        &mut self,
        files: &dyn Files,
        folder: &Path,
        ids: &BTreeSet<u32>,
    ) -> Result<BTreeMap<u32, Option<Header>>, JournalError> {
        let mut headers = BTreeMap::new();
        for id in ids {
            let path = segment_path(folder, *id);
            let fail = |error| io_failure("read", &path, error);
            let file = files.open(&path).map_err(fail)?;
            let length = file.length().map_err(fail)?.min(HEADER as u64);
            let header = Header::read(&read_range(&*file, 0, length).map_err(fail)?);
            headers.insert(*id, header.filter(|header| header.id == *id));
        }
        Ok(headers)
    }

    /// Loads a sealed segment. Walks one without a footer, and returns it.
    fn load(
        &mut self,
        files: &Arc<dyn Files>,
        folder: &Path,
        id: u32,
        header: Option<Header>,
    ) -> Result<Option<Walked>, JournalError> {
        let path = segment_path(folder, id);
        let fail = |error| io_failure("read", &path, error);
        let file = files.open(&path).map_err(fail)?;
        let length = file.length().map_err(fail)?;
        let sealed = self.manifest.segments.get(&id).copied().flatten();
        let Some(header) = header else {
            // The last file may have been created and not written yet.
            let is_new =
                id >= self.manifest.next.saturating_sub(1) && id < COMPACTED && sealed.is_none();
            if !is_new || !is_blank(&*file, length).map_err(fail)? {
                self.damaged(&path, 0, "the header of the file is damaged");
                return Ok(None);
            }
            if self.manifest.segments.contains_key(&id) {
                self.blank.push(path.clone());
            }
            self.torn.push(Torn { path, keep: 0, dropped: length });
            return Ok(None);
        };
        if let Some(expected) = sealed
            && expected != length
        {
            let what = format!("the file is {length} bytes long instead of {expected}");
            self.damaged(&path, length, &what);
            return Ok(None);
        }
        let tail = match length.checked_sub(TAIL as u64).filter(|at| *at >= HEADER as u64) {
            Some(at) => Tail::read(&read_range(&*file, at, TAIL as u64).map_err(fail)?, length),
            None => None,
        };
        let contents = match tail {
            Some(tail) => {
                tail.contents(&read_range(&*file, tail.offset, tail.length()).map_err(fail)?)
            }
            None => None,
        };
        if let (Some(tail), Some(contents)) = (tail, contents) {
            let is_compacted = header.origin == Origin::Compacted;
            self.sealed = self.sealed.max(contents.last_group);
            let segment = Segment::sealed(
                id,
                path,
                files.clone(),
                is_compacted,
                &contents,
                tail.offset,
                length,
            );
            self.admit(Arc::new(segment), &contents);
            return Ok(None);
        }
        if sealed.is_some() || header.origin == Origin::Compacted {
            self.damaged(&path, length, "the footer of the file is damaged");
            return Ok(None);
        }
        let bytes = read_range(&*file, 0, length).map_err(fail)?;
        let walk = walk::walk(&bytes);
        Ok(Some(Walked { id, path, bytes, walk, header }))
    }

    fn admit(&mut self, segment: Arc<Segment>, contents: &Contents) {
        let id = segment.id;
        let is_compacted = segment.is_compacted;
        let held = Held::new(segment);
        let held = if is_compacted { held.with_contents(&contents.entries) } else { held };
        self.index.segments.insert(id, held);
        for (entry, summary) in contents.each() {
            let has_revisions = matches!(entry.kind, Kind::Record | Kind::Tokens);
            if walk::has_summary(entry.kind) && summary.is_empty() && !has_revisions {
                self.suspect(id, entry);
                continue;
            }
            self.index.admit(id, entry, summary);
        }
    }

    fn suspect(&mut self, segment: u32, entry: &Entry) {
        let path = self.index.segments.get(&segment).map(|held| held.segment.path.clone());
        self.suspects.push((path.unwrap_or_default(), Location { segment, entry: *entry }));
        match entry.kind {
            Kind::Turn => self.index.admit_erased_turn(segment, entry),
            Kind::Body
            | Kind::Packets
            | Kind::Record
            | Kind::Session
            | Kind::Gone
            | Kind::TurnGone
            | Kind::Erased
            | Kind::Tokens => self.index.admit_dead(segment, entry),
        }
    }

    /// Decides where the log ends, and whether missing groups had been acknowledged.
    fn judge(
        &mut self,
        files: &Arc<dyn Files>,
        walked: Vec<Walked>,
        headers: &BTreeMap<u32, Option<Header>>,
        boot: [u8; 16],
    ) {
        let promised = self.promised(&walked, boot);
        let mut is_over = false;
        self.last_group = self.sealed;
        for one in walked {
            if is_over {
                // Nothing after a lost tail had been acknowledged.
                self.torn.push(Torn { path: one.path, keep: 0, dropped: one.bytes.len() as u64 });
                continue;
            }
            // Segments are sealed in order, so none was removed between this one and the next.
            let next = headers.range(one.id + 1..COMPACTED).find_map(|(_, header)| *header);
            is_over = self.judge_one(files, one, next, promised, boot);
        }
        let is_same_boot = boot != [0; 16] && self.manifest.boot == boot;
        for path in std::mem::take(&mut self.blank) {
            // It was listed after its head was written, and only a power cut can undo that.
            if is_same_boot || self.last_group < promised {
                self.damaged(&path, 0, "the file is empty, and it was not before");
            }
        }
        self.last_group = self.last_group.max(promised);
    }

    /// The last group that was certainly synced, or, without a reboot, written.
    fn promised(&self, walked: &[Walked], boot: [u8; 16]) -> u64 {
        let groups = walked.iter().flat_map(|one| one.walk.groups.iter().map(|group| group.synced));
        let after = walked.iter().filter_map(|one| one.walk.broken.as_ref());
        let after = after.flat_map(|broken| broken.after.iter().map(|(_, synced)| *synced));
        let is_same_boot = boot != [0; 16] && self.manifest.boot == boot;
        let written = if is_same_boot { self.manifest.written } else { 0 };
        groups.chain(after).chain([self.manifest.synced, self.sealed, written]).max().unwrap_or(0)
    }

    /// True if the log ends here, even if more follows.
    fn judge_one(
        &mut self,
        files: &Arc<dyn Files>,
        mut one: Walked,
        next: Option<Header>,
        promised: u64,
        boot: [u8; 16],
    ) -> bool {
        let first = one.header.first_group;
        if let Some(next) = next {
            // Groups that were rewritten to another segment after a failed sync do not count here.
            if let Some(at) =
                one.walk.groups.iter().position(|group| group.number >= next.first_group)
            {
                one.walk.end = one.walk.groups.get(at).map_or(one.walk.end, |group| group.offset);
                one.walk.groups.truncate(at);
                one.walk.broken = None;
            }
        }
        for (group, expected) in one.walk.groups.iter().zip(first..) {
            if group.number != expected {
                let what = format!("found group {} instead of {expected}", group.number);
                self.damaged(&one.path, group.offset, &what);
                return false;
            }
        }
        let last = one.walk.groups.last().map_or(first.saturating_sub(1), |group| group.number);
        let end = next.map_or(promised, |next| next.first_group.saturating_sub(1));
        let is_same_boot = boot != [0; 16] && one.header.boot == boot;
        let missing = last + 1;
        let is_complete = one.walk.broken.as_ref().is_some_and(|broken| broken.is_complete);
        let has_later = one
            .walk
            .broken
            .as_ref()
            .is_some_and(|broken| broken.after.iter().any(|(n, _)| *n > missing));
        let is_short = last < end;
        let is_damage = if next.is_some() && !is_short {
            false
        } else {
            missing <= promised || is_same_boot && (is_complete || has_later || is_short)
        };
        if is_damage && (is_short || one.walk.broken.is_some()) {
            let what = format!("group {missing} is missing or damaged, and it was acknowledged");
            self.damaged(&one.path, one.walk.end, &what);
            return false;
        }
        let (end, length) = (one.walk.end, one.bytes.len() as u64);
        if end < length {
            self.torn.push(Torn { path: one.path.clone(), keep: end, dropped: length - end });
        }
        self.last_group = self.last_group.max(last);
        self.admit_walked(files, &one);
        is_short
    }

    fn admit_walked(&mut self, files: &Arc<dyn Files>, one: &Walked) {
        let Ok(handle) = files.open(&one.path) else {
            return self.damaged(&one.path, 0, "the file cannot be opened");
        };
        let segment = Segment::open(one.id, one.path.clone(), files.clone(), handle, one.walk.end);
        let segment = Arc::new(segment);
        segment.set_last_group(one.walk.groups.last().map_or(0, |group| group.number));
        self.index.segments.insert(one.id, Held::new(segment.clone()));
        for found in one.walk.groups.iter().flat_map(|group| &group.frames) {
            segment.push([found.entry]);
            match found.is_whole || !walk::has_summary(found.entry.kind) {
                true => {
                    self.index.admit(one.id, &found.entry, walk::summary(&one.bytes, &found.entry))
                }
                false => self.suspect(one.id, &found.entry),
            }
        }
        self.unsealed.push(segment);
    }

    /// A frame with a wrong sum is damage, unless it was erased or is not needed.
    fn judge_suspects(&mut self) {
        for (path, Location { entry, .. }) in std::mem::take(&mut self.suspects) {
            let Entry { owner, kind, seq, offset, .. } = entry;
            let is_newest = |stream: &super::index::Stream| {
                stream.record.is_none_or(|place| place.entry.seq < seq)
            };
            let is_needed = !self.index.may_be_erased(&entry)
                && (kind != Kind::Tokens || self.index.tokens_revision(owner) < seq)
                && (kind != Kind::Record || self.index.streams.get(&owner).is_none_or(is_newest));
            if is_needed {
                self.damaged_owners.insert(owner);
                let what = format!("{kind:?} {seq} of {owner} is damaged");
                self.damaged_frame(&path, offset.into(), &what);
            }
        }
        for stream in self.index.without_record() {
            if self.damage.is_empty() {
                tracing::warn!(%stream, "the journal has packets without a run");
            }
        }
    }

    /// The record and the last packets of an open run must be intact.
    fn judge_open(&mut self) -> io::Result<()> {
        let mut damaged = Vec::new();
        for stream in self.index.open.iter().filter_map(|id| self.index.streams.get(id)) {
            let last = stream.parts_after(0).into_iter().max_by_key(|part| part.last);
            let last =
                last.and_then(|part| Some((self.index.segments.get(&part.segment)?, part.last)));
            let last = match last {
                Some((held, last)) => {
                    let owner = stream.record.map_or(Uuid::nil(), |place| place.entry.owner);
                    let found = held.segment.find(owner, Kind::Packets, last - 1, 1)?;
                    found.first().map(|entry| Location { segment: held.segment.id, entry: *entry })
                }
                None => None,
            };
            for Location { segment, entry } in [stream.record, last].into_iter().flatten() {
                let Some(held) = self.index.segments.get(&segment) else { continue };
                let file = held.segment.file()?;
                if let Payload::Damaged = held.segment.payload(&*file, &entry)? {
                    damaged.push((held.segment.path.clone(), entry));
                }
            }
        }
        for (path, Entry { owner, kind, seq, offset, .. }) in damaged {
            self.damaged_owners.insert(owner);
            let what = format!("{kind:?} {seq} of the open run {owner} is damaged");
            self.damaged_frame(&path, offset.into(), &what);
        }
        Ok(())
    }

    pub(crate) fn names(&self) -> Names {
        Names { salt: self.manifest.salt }
    }
}

/// Whether a file without a head was never written: it is empty, or only its length was stored.
fn is_blank(file: &dyn super::files::Data, length: u64) -> io::Result<bool> {
    let head = read_range(file, 0, length.min(HEADER as u64))?;
    Ok(length < HEADER as u64 || head.iter().all(|byte| *byte == 0))
}
