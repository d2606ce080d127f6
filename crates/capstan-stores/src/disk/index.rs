//! The index of the journal in memory: the frames of each owner, names, and what is live.
//!
//! It is built from frames alone, by [`Index::admit`], in any order. The walk at the opening and
//! the writer both use it. So queries return the same before and after a restart.

mod admit;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use capstan_journal::{RunState, Tokens};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::footer::Entry;
use super::format::Kind;
use super::names::Name;
use super::parts::{Part, Parts};
use super::record::GoneSummary;
use super::segment::Segment;
use crate::packing;

/// The place of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) segment: u32,
    pub(crate) entry: Entry,
}

pub(crate) struct Held {
    pub(crate) segment: Arc<Segment>,
    /// The size of the live data.
    pub(crate) live: u64,
    /// The most that `live` can be. For a compacted segment it is the first contents, else the
    /// file's size.
    full: u64,
}

impl Held {
    pub(crate) fn new(segment: Arc<Segment>) -> Self {
        Self { segment, live: 0, full: 0 }
    }

    /// Sets the contents of a compacted segment.
    pub(crate) fn with_contents(mut self, entries: &[Entry]) -> Self {
        self.full = entries.iter().map(|entry| u64::from(weight(entry))).sum();
        self
    }

    /// The share of live data, in percent.
    pub(crate) fn live_percent(&self) -> u64 {
        let full = if self.full > 0 { self.full } else { self.segment.size() };
        self.live.saturating_mul(100) / full.max(1)
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    parts: Parts,
    pub(crate) record: Option<Location>,
    pub(crate) body: Option<Location>,
    pub(crate) state: RunState,
    pub(crate) updated_at: Timestamp,
    pub(crate) closed_at: Option<Timestamp>,
    /// The size of packets and body; approximate while the run is open.
    pub(crate) size: u64,
    pub(crate) tenant: Name,
    pub(crate) key: Name,
    /// The session's name. `session_id` distinguishes two sessions with the same name.
    session: Option<Name>,
    pub(crate) session_id: Uuid,
    pub(crate) turn: u64,
    /// The packets after this one are lost.
    pub(crate) lost_after: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Session {
    parts: Parts,
    pub(crate) name: Name,
    pub(crate) tenant: Name,
    pub(crate) used_at: Timestamp,
    /// The number of its last turn, even if that turn is deleted.
    pub(crate) last_turn: u64,
    pub(crate) turns: u64,
    /// The size of its turns.
    pub(crate) bytes: u64,
    gone_turns: BTreeSet<u64>,
    /// Turns that were erased when they were found, and never counted.
    erased_turns: BTreeSet<u64>,
    /// While a journal is opened: turns in compacted segments, with their segment. An erasure
    /// during the copy names the segment from which the turn was copied.
    copied_turns: BTreeMap<u64, u32>,
    is_known: bool,
}

/// A deleted owner. It is remembered as long as a segment has a frame of it, so that it does not
/// reappear, and as long as its claim is held.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    pub(crate) summary: Option<GoneSummary>,
    pub(crate) is_erased: bool,
    /// The frames that mark it as deleted, by segment.
    own: Vec<(u32, u32)>,
    /// Segments that still have frames of the owner.
    pub(crate) segments: BTreeSet<u32>,
    is_claim_kept: bool,
    /// The name of its session, if it was a session or belonged to one.
    session: Option<Name>,
}

impl Gone {
    pub(crate) fn is_claim_kept(&self) -> bool {
        self.is_claim_kept
    }
}

#[derive(Default)]
pub(crate) struct Index {
    pub(crate) segments: BTreeMap<u32, Held>,
    /// The compacted segments that replaced others since the last group was written. Frames that
    /// the writer looked up for the current group may have moved there.
    moved: HashMap<u32, u32>,
    pub(crate) streams: BTreeMap<Uuid, Stream>,
    /// All names of all streams, including the claims of deleted ones.
    pub(crate) names: BTreeSet<(Name, Uuid)>,
    pub(crate) closed: BTreeSet<(Timestamp, Uuid)>,
    pub(crate) open: BTreeSet<Uuid>,
    pub(crate) sessions: HashMap<Uuid, Session>,
    pub(crate) session_ids: HashMap<Name, Uuid>,
    pub(crate) sessions_of: HashMap<Name, u64>,
    /// Sessions by the time of their last use.
    pub(crate) used: BTreeSet<(Timestamp, Uuid)>,
    /// The size of each tenant's streams.
    pub(crate) sizes_of: HashMap<Name, u64>,
    /// The size of each tenant's turns.
    pub(crate) turns_of: HashMap<Name, u64>,
    /// The used tokens of each tenant, and the place of their frame. There is one frame per tenant.
    pub(crate) tokens_of: HashMap<Name, (Location, Tokens)>,
    pub(crate) gone: HashMap<Uuid, Gone>,
    /// Deleted streams whose claim is held, by the time of their deletion.
    pub(crate) gone_at: BTreeSet<(Timestamp, Uuid)>,
}

/// The usual size of a frame beside its payload.
const HEADS: u32 = 100;

/// The approximate size of a frame after compaction, which merges and compresses small blocks of
/// packets. So segments with single packets are worth compacting even without dead data.
pub(crate) fn weight(entry: &Entry) -> u32 {
    if entry.kind == Kind::Packets && (entry.length as usize) < packing::LEAST {
        return entry.length / 3;
    }
    let heads = match entry.kind {
        Kind::Packets => entry.length / 16,
        Kind::Record => 300,
        Kind::Body
        | Kind::Turn
        | Kind::Session
        | Kind::Gone
        | Kind::TurnGone
        | Kind::Erased
        | Kind::Tokens => HEADS,
    };
    entry.length.saturating_add(heads)
}

/// Replaces a size in a tenant's sum.
fn change(sizes: &mut HashMap<Name, u64>, tenant: Name, before: u64, after: u64) {
    let size = sizes.entry(tenant).or_default();
    *size = size.saturating_add(after).saturating_sub(before);
    if *size == 0 {
        sizes.remove(&tenant);
    }
}

impl Stream {
    fn new() -> Self {
        Self {
            parts: Parts::default(),
            record: None,
            body: None,
            state: RunState::Closed,
            updated_at: Timestamp::from_micros(0),
            closed_at: None,
            size: 0,
            tenant: Name::default(),
            key: Name::default(),
            session: None,
            session_id: Uuid::nil(),
            turn: 0,
            lost_after: None,
        }
    }

    /// Segments with packets after a `seq`, in their order.
    pub(crate) fn parts_after(&self, after: u64) -> Vec<Part> {
        self.parts.after(after)
    }
}

impl Session {
    fn new() -> Self {
        Self {
            parts: Parts::default(),
            name: Name::default(),
            tenant: Name::default(),
            used_at: Timestamp::from_micros(i64::MIN),
            last_turn: 0,
            turns: 0,
            bytes: 0,
            gone_turns: BTreeSet::new(),
            erased_turns: BTreeSet::new(),
            copied_turns: BTreeMap::new(),
            is_known: false,
        }
    }

    pub(crate) fn parts_after(&self, after: u64) -> Vec<Part> {
        self.parts.after(after)
    }

    /// Updates the size of its turns. The tenant is known once the session's own frame was
    /// admitted.
    fn resize(&mut self, before: u64, after: u64, turns_of: &mut HashMap<Name, u64>) {
        self.bytes = self.bytes.saturating_add(after).saturating_sub(before);
        if self.is_known {
            change(turns_of, self.tenant, before, after);
        }
    }

    /// The deleted turns.
    pub(crate) fn lost_turns(&self) -> impl Iterator<Item = u64> {
        self.gone_turns.iter().copied()
    }

    pub(crate) fn has_lost(&self, turn: u64) -> bool {
        self.gone_turns.contains(&turn)
    }
}

impl Index {
    /// Removes a stream from everything except the sizes of its segments, which change too.
    fn take_stream(&mut self, owner: Uuid) -> Option<Stream> {
        let stream = self.streams.remove(&owner)?;
        stream.parts.0.iter().for_each(|part| self.lighten(part.segment, part.weight));
        if stream.record.is_some() {
            self.resize(stream.tenant, stream.size, 0);
        }
        self.open.remove(&owner);
        if let Some(closed_at) = stream.closed_at {
            self.closed.remove(&(closed_at, owner));
        }
        Some(stream)
    }

    fn take_session(&mut self, owner: Uuid) -> Option<Session> {
        let session = self.sessions.remove(&owner)?;
        session.parts.0.iter().for_each(|part| self.lighten(part.segment, part.weight));
        self.used.remove(&(session.used_at, owner));
        if self.session_ids.get(&session.name) == Some(&owner) {
            self.session_ids.remove(&session.name);
        }
        if session.is_known
            && let Some(count) = self.sessions_of.get_mut(&session.tenant)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.sessions_of.remove(&session.tenant);
            }
            change(&mut self.turns_of, session.tenant, session.bytes, 0);
        }
        Some(session)
    }

    /// Streams of a session that have expired and still are in a file.
    pub(crate) fn leftovers(&self, session: Name) -> Vec<Uuid> {
        let lies = |gone: &Gone| {
            gone.session == Some(session) && !gone.is_erased && !gone.segments.is_empty()
        };
        self.gone.iter().filter(|(_, gone)| lies(gone)).map(|(owner, _)| *owner).collect()
    }

    /// Removes the names of a stream that is about to be deleted.
    pub(crate) fn forget_names(&mut self, owner: Uuid, names: impl IntoIterator<Item = Name>) {
        for name in names {
            self.names.remove(&(name, owner));
        }
    }

    /// Frees the claim of a deleted stream.
    pub(crate) fn free_claim(&mut self, owner: Uuid) {
        let Some(gone) = self.gone.get_mut(&owner) else { return };
        gone.is_claim_kept = false;
        if let Some(summary) = gone.summary {
            self.gone_at.remove(&(summary.at, owner));
            if let Some(claim) = summary.claim {
                self.names.remove(&(claim, owner));
            }
        }
        self.forget_if_done(owner);
    }

    /// Removes the mark of a deleted owner without frames.
    fn forget_if_done(&mut self, owner: Uuid) {
        let is_done = |gone: &Gone| {
            let must_erase =
                gone.summary.is_some_and(|summary| summary.is_purged) && !gone.is_erased;
            !gone.is_claim_kept && gone.segments.is_empty() && !must_erase
        };
        if self.gone.get(&owner).is_some_and(is_done)
            && let Some(gone) = self.gone.remove(&owner)
        {
            gone.own.iter().for_each(|(segment, weight)| self.lighten(*segment, *weight));
        }
    }

    /// Removes a segment and its frames, which must be all of them.
    pub(crate) fn drop_segment(&mut self, id: u32, entries: &[Entry]) {
        self.segments.remove(&id);
        for entry in entries {
            if let Some(stream) = self.streams.get_mut(&entry.owner) {
                stream.parts.drop_segment(id);
            } else if let Some(session) = self.sessions.get_mut(&entry.owner) {
                session.parts.drop_segment(id);
                if entry.kind == Kind::Turn && !session.gone_turns.contains(&entry.seq) {
                    session.turns = session.turns.saturating_sub(1);
                    session.resize(u64::from(entry.length), 0, &mut self.turns_of);
                }
            } else if let Some(gone) = self.gone.get_mut(&entry.owner) {
                gone.segments.remove(&id);
                gone.own.retain(|(segment, _)| *segment != id);
            }
        }
    }

    /// Records that frames have moved from these segments to another one.
    pub(crate) fn note_moved(&mut self, from: impl Iterator<Item = u32>, to: u32) {
        for from in from {
            self.moved.values_mut().filter(|place| **place == from).for_each(|place| *place = to);
            self.moved.insert(from, to);
        }
    }

    /// The group is written: later lookups find frames at their new places.
    pub(crate) fn settle_moved(&mut self) {
        self.moved.clear();
    }

    /// Segments with frames of a session, deleted or not.
    pub(crate) fn segments_of_session(&self, session: Uuid) -> Vec<u32> {
        match (self.sessions.get(&session), self.gone.get(&session)) {
            (Some(session), _) => session.parts.0.iter().map(|part| part.segment).collect(),
            (None, Some(gone)) => gone.segments.iter().copied().collect(),
            (None, None) => Vec::new(),
        }
    }

    /// Adds a frame of an owner that was deleted while compaction copied it.
    pub(crate) fn admit_dead(&mut self, segment: u32, entry: &Entry) {
        if let Some(gone) = self.gone.get_mut(&entry.owner) {
            gone.segments.insert(segment);
        } else if let Some(stream) = self.streams.get_mut(&entry.owner) {
            stream.parts.add(segment, 0, None);
        } else if let Some(session) = self.sessions.get_mut(&entry.owner) {
            session.parts.add(segment, 0, None);
        }
    }

    /// Records that a frame was rewritten at another place.
    pub(crate) fn relocate(&mut self, from: Location, to: Location) {
        let is_live = self.is_live(from.segment, &from.entry);
        let weight = if is_live { weight(&from.entry) } else { 0 };
        let is_numbered = matches!(from.entry.kind, Kind::Packets | Kind::Turn);
        let seq = (is_live && is_numbered).then_some(from.entry.seq);
        let parts = if let Some(stream) = self.streams.get_mut(&from.entry.owner) {
            [&mut stream.record, &mut stream.body].into_iter().flatten().for_each(|place| {
                if *place == from {
                    *place = to;
                }
            });
            Some(&mut stream.parts)
        } else {
            self.sessions.get_mut(&from.entry.owner).map(|session| &mut session.parts)
        };
        if let Some(parts) = parts {
            parts.lighten(from.segment, weight);
            // Rewritten frames are the last ones of their segment.
            if let Some(part) = parts.0.iter_mut().find(|part| part.segment == from.segment)
                && let Some(seq) = seq
            {
                part.last = part.last.min(seq - 1);
            }
            parts.add(to.segment, weight, seq);
        } else if let Some((place, _)) = self.tokens_of.get_mut(from.entry.owner.as_bytes()) {
            if *place == from {
                *place = to;
            }
        } else if let Some(gone) = self.gone.get_mut(&from.entry.owner) {
            gone.segments.insert(to.segment);
            if matches!(from.entry.kind, Kind::Gone | Kind::Erased) {
                gone.own.push((to.segment, weight));
            }
        }
        self.lighten(from.segment, weight);
        self.weigh(to.segment, weight);
    }

    /// Removes frames without an owner, after all frames were admitted.
    pub(crate) fn settle(&mut self) {
        let Self { sessions, streams, gone, names, used, .. } = self;
        sessions.retain(|_, session| session.is_known);
        sessions.values_mut().for_each(|session| session.copied_turns = BTreeMap::new());
        used.retain(|(_, id)| sessions.contains_key(id));
        names.retain(|(name, owner)| {
            let kept =
                |gone: &Gone| gone.summary.is_some_and(|summary| summary.claim == Some(*name));
            streams.contains_key(owner) || gone.get(owner).is_some_and(kept)
        });
    }

    /// Call it when the live frames of a removed segment are admitted.
    pub(crate) fn forget_done(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.forget_if_done(entry.owner);
            if let Some(session) = self.sessions.get_mut(&entry.owner) {
                session.copied_turns = BTreeMap::new();
            }
        }
    }

    /// Whether a frame may have been overwritten on purpose.
    pub(crate) fn may_be_erased(&self, entry: &Entry) -> bool {
        match entry.kind {
            Kind::Gone | Kind::Erased | Kind::TurnGone | Kind::Tokens => false,
            Kind::Turn
                if self
                    .sessions
                    .get(&entry.owner)
                    .is_some_and(|session| session.has_lost(entry.seq)) =>
            {
                true
            }
            Kind::Body | Kind::Packets | Kind::Record | Kind::Turn | Kind::Session => {
                self.gone.contains_key(&entry.owner)
            }
        }
    }

    /// Whether compaction has to copy a frame.
    pub(crate) fn is_live(&self, segment: u32, entry: &Entry) -> bool {
        match entry.kind {
            Kind::Body | Kind::Packets => self.streams.contains_key(&entry.owner),
            Kind::Record => self
                .streams
                .get(&entry.owner)
                .is_some_and(|stream| stream.record == Some(Location { segment, entry: *entry })),
            Kind::Session | Kind::TurnGone => self.sessions.contains_key(&entry.owner),
            Kind::Turn => self
                .sessions
                .get(&entry.owner)
                .is_some_and(|session| !session.gone_turns.contains(&entry.seq)),
            Kind::Gone | Kind::Erased => self.gone.contains_key(&entry.owner),
            Kind::Tokens => self
                .tokens_of
                .get(entry.owner.as_bytes())
                .is_some_and(|(place, _)| *place == Location { segment, entry: *entry }),
        }
    }

    /// Streams with frames but without a record: their group was never complete, or the mark of
    /// their deletion was removed too soon.
    pub(crate) fn without_record(&self) -> Vec<Uuid> {
        self.streams
            .iter()
            .filter(|(_, stream)| stream.record.is_none())
            .map(|(id, _)| *id)
            .collect()
    }

    /// The stream of a claim. It may be deleted.
    pub(crate) fn claimed(&self, key: Name) -> Option<Uuid> {
        self.names
            .range((key, Uuid::nil())..=(key, Uuid::max()))
            .next_back()
            .map(|(_, stream)| *stream)
    }

    /// The size of a tenant's streams and turns.
    pub(crate) fn held_by(&self, tenant: &Name) -> u64 {
        [&self.sizes_of, &self.turns_of].into_iter().filter_map(|sizes| sizes.get(tenant)).sum()
    }

    /// The revision of a tenant's used tokens. `owner` is the tenant's name.
    pub(crate) fn tokens_revision(&self, owner: Uuid) -> u64 {
        self.tokens_of.get(owner.as_bytes()).map_or(0, |(place, _)| place.entry.seq)
    }

    /// The size of all segments, and of their live data.
    pub(crate) fn sizes(&self) -> (u64, u64) {
        let add = |(size, live), held: &Held| (size + held.segment.size(), live + held.live);
        self.segments.values().fold((0, 0), add)
    }
}
