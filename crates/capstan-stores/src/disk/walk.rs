//! Reads a segment group by group, to open, check or repair one without a footer.
//!
//! Only the heads decide where the groups end. Payloads are checked later, when it is known which
//! were erased on purpose.

use super::footer::{Entry, TAIL, Tail};
use super::format::{FRAME_HEAD, FrameHead, GROUP_HEAD, GROUP_MAGIC, GroupHead, HEADER, Kind, sum};
use super::record::split_summary;

/// A group whose heads are intact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) number: u64,
    pub(crate) synced: u64,
    pub(crate) offset: u64,
    pub(crate) frames: Vec<Found>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) entry: Entry,
    pub(crate) is_whole: bool,
}

/// The place at which the groups end before the file does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Break {
    pub(crate) offset: u64,
    /// The group has its full length, but something in it is damaged.
    pub(crate) is_complete: bool,
    /// Intact group heads after it: the number, and the last synced group.
    pub(crate) after: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    pub(crate) groups: Vec<Group>,
    pub(crate) broken: Option<Break>,
    /// The end of the groups.
    pub(crate) end: u64,
}

/// Reads the groups of a file after its header.
pub(crate) fn walk(bytes: &[u8]) -> Walk {
    let mut walk = Walk { end: HEADER as u64, ..Walk::default() };
    let limit = footer_start(bytes).unwrap_or(bytes.len());
    while (walk.end as usize) < limit {
        let rest = bytes.get(walk.end as usize..limit).unwrap_or_default();
        match read_group(rest, walk.end) {
            Ok(group) => {
                walk.end += GROUP_HEAD as u64 + length(&group);
                walk.groups.push(group);
            }
            Err(is_complete) => {
                let after = heads_after(bytes.get(walk.end as usize + 1..).unwrap_or_default());
                walk.broken = Some(Break { offset: walk.end, is_complete, after });
                break;
            }
        }
    }
    walk
}

fn length(group: &Group) -> u64 {
    group.frames.iter().map(|found| FRAME_HEAD as u64 + u64::from(found.entry.length)).sum()
}

/// The offset of the footer, if it is intact.
fn footer_start(bytes: &[u8]) -> Option<usize> {
    let at = bytes.len().checked_sub(TAIL)?;
    let tail = Tail::read(bytes.get(at..)?, bytes.len() as u64)?;
    usize::try_from(tail.offset).ok()
}

/// Reads the group at the start of `bytes`. The error tells whether all of its bytes seem to be
/// there.
pub(crate) fn read_group(bytes: &[u8], offset: u64) -> Result<Group, bool> {
    let head = GroupHead::read(bytes).ok_or(false)?;
    let end = usize::try_from(head.length).ok().and_then(|length| length.checked_add(GROUP_HEAD));
    let frames = end.and_then(|end| bytes.get(GROUP_HEAD..end)).ok_or(false)?;
    let (mut at, mut found) = (0, Vec::new());
    while at < frames.len() {
        let frame = frames.get(at..).unwrap_or_default();
        let head = FrameHead::read(frame).ok_or(true)?;
        let payload = frame.get(FRAME_HEAD..FRAME_HEAD + head.length as usize).ok_or(true)?;
        let place = u32::try_from(offset + (GROUP_HEAD + at) as u64).map_err(|_| true)?;
        let FrameHead { owner, kind, seq, length, .. } = head;
        found.push(Found {
            entry: Entry { owner, kind, seq, offset: place, length },
            is_whole: sum(payload) == head.sum,
        });
        at += FRAME_HEAD + payload.len();
    }
    let is_counted = found.len() == head.count as usize;
    let group = Group { number: head.number, synced: head.synced, offset, frames: found };
    if is_counted { Ok(group) } else { Err(true) }
}

/// Intact group heads anywhere in the bytes.
fn heads_after(bytes: &[u8]) -> Vec<(u64, u64)> {
    let places = memchr::memmem::find_iter(bytes, &GROUP_MAGIC);
    let heads = places.filter_map(|at| GroupHead::read(bytes.get(at..)?));
    heads.map(|head| (head.number, head.synced)).collect()
}

/// All intact groups anywhere in the bytes, for a repair.
pub(crate) fn salvage(bytes: &[u8]) -> Vec<Group> {
    let (mut groups, mut at) = (Vec::new(), HEADER);
    while let Some(next) = bytes.get(at..).and_then(|rest| memchr::memmem::find(rest, &GROUP_MAGIC))
    {
        at += next;
        match read_group(bytes.get(at..).unwrap_or_default(), at as u64) {
            Ok(group) => {
                at += GROUP_HEAD + length(&group) as usize;
                groups.push(group);
            }
            Err(_) => at += 1,
        }
    }
    groups
}

/// Whether frames of this kind begin with a summary that the index needs.
pub(crate) fn has_summary(kind: Kind) -> bool {
    match kind {
        Kind::Record | Kind::Turn | Kind::Session | Kind::Gone | Kind::TurnGone | Kind::Tokens => {
            true
        }
        Kind::Body | Kind::Packets | Kind::Erased => false,
    }
}

/// A frame's summary, from the bytes of the file.
pub(crate) fn summary<'a>(bytes: &'a [u8], entry: &Entry) -> &'a [u8] {
    let start = entry.offset as usize + FRAME_HEAD;
    let payload =
        bytes.get(start..start + entry.length as usize).filter(|_| has_summary(entry.kind));
    payload.and_then(split_summary).map_or(&[], |(summary, _)| summary)
}

/// The summaries of sorted entries. Of several revisions only the last one has a summary.
pub(crate) fn summaries(
    entries: &[Entry],
    mut read: impl FnMut(&Entry) -> Option<Vec<u8>>,
) -> Vec<(u32, Vec<u8>)> {
    let mut summaries = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let next = entries.get(number + 1);
        let is_old = matches!(entry.kind, Kind::Record | Kind::Tokens)
            && next.is_some_and(|next| (next.owner, next.kind) == (entry.owner, entry.kind));
        if is_old || !has_summary(entry.kind) {
            continue;
        }
        let summary = read(entry).filter(|summary| !summary.is_empty());
        summaries.extend(summary.map(|summary| (number as u32, summary)));
    }
    summaries
}
