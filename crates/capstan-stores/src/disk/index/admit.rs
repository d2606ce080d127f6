//! Adds frames to the index, one by one and in any order.

use capstan_journal::RunState;
use capstan_protocol::Timestamp;

use super::super::footer::Entry;
use super::super::format::COMPACTED;
use super::super::format::Kind;
use super::super::names::Name;
use super::super::record::{GoneSummary, RunSummary, SessionSummary, read_number, read_tokens};
use super::{HEADS, Index, Location, Session, Stream, change, weight};
use uuid::Uuid;

impl Index {
    /// Adds one frame of a segment.
    pub(crate) fn admit(&mut self, segment: u32, entry: &Entry, summary: &[u8]) {
        match entry.kind {
            Kind::Gone => return self.admit_gone(segment, entry, summary),
            Kind::Erased => {
                let gone = self.gone.entry(entry.owner).or_default();
                gone.is_erased = true;
                gone.own.push((segment, weight(entry)));
                return self.weigh(segment, weight(entry));
            }
            Kind::Tokens => return self.admit_tokens(segment, entry, summary),
            Kind::Body
            | Kind::Packets
            | Kind::Record
            | Kind::Turn
            | Kind::Session
            | Kind::TurnGone => {}
        }
        if let Some(gone) = self.gone.get_mut(&entry.owner)
            && gone.summary.is_some()
        {
            gone.segments.insert(segment);
            gone.session = gone.session.or_else(|| session_of(entry.kind, summary));
            return;
        }
        match entry.kind {
            Kind::Body | Kind::Packets => self.admit_content(segment, entry),
            Kind::Record => self.admit_record(segment, entry, summary),
            Kind::Session => self.admit_session(segment, entry, summary),
            Kind::Turn => self.admit_turn(segment, entry, summary),
            Kind::TurnGone => self.admit_turn_gone(segment, entry, summary),
            Kind::Gone | Kind::Erased | Kind::Tokens => {}
        }
    }

    pub(super) fn weigh(&mut self, segment: u32, weight: u32) {
        if let Some(held) = self.segments.get_mut(&segment) {
            held.live += u64::from(weight);
        }
    }

    pub(super) fn lighten(&mut self, segment: u32, weight: u32) {
        if let Some(held) = self.segments.get_mut(&segment) {
            held.live = held.live.saturating_sub(weight.into());
        }
    }

    fn admit_content(&mut self, segment: u32, entry: &Entry) {
        let stream = self.streams.entry(entry.owner).or_insert_with(Stream::new);
        let is_packets = entry.kind == Kind::Packets;
        stream.parts.add(segment, weight(entry), is_packets.then_some(entry.seq));
        if !is_packets {
            stream.body = Some(Location { segment, entry: *entry });
        } else if stream.record.is_some() && stream.state != RunState::Closed {
            let (size, tenant) = (stream.size + u64::from(entry.length), stream.tenant);
            let before = std::mem::replace(&mut stream.size, size);
            self.resize(tenant, before, size);
        }
        self.weigh(segment, weight(entry));
    }

    fn admit_record(&mut self, segment: u32, entry: &Entry, summary: &[u8]) {
        let (owner, place) = (entry.owner, Location { segment, entry: *entry });
        let stream = self.streams.entry(owner).or_insert_with(Stream::new);
        let old = stream.record;
        if old.is_some_and(|old| old.entry.seq > entry.seq) {
            return stream.parts.add(segment, 0, None);
        }
        // In a footer only the last record of a run has a summary.
        let Some(summary) = RunSummary::read(summary) else {
            return stream.parts.add(segment, 0, None);
        };
        stream.parts.add(segment, weight(entry), None);
        stream.record = Some(place);
        if let Some(closed_at) = stream.closed_at {
            self.closed.remove(&(closed_at, owner));
        }
        let before = if old.is_some() { stream.size } else { 0 };
        stream.state = summary.state;
        stream.updated_at = summary.updated_at;
        stream.closed_at = summary.closed_at;
        stream.size = summary.size;
        (stream.tenant, stream.key) = (summary.tenant, summary.key);
        (stream.session_id, stream.turn) = (summary.session_id, summary.turn);
        stream.session = summary.session();
        stream.lost_after = summary.lost_after;
        if let Some(old) = old {
            stream.parts.lighten(old.segment, weight(&old.entry));
            self.lighten(old.segment, weight(&old.entry));
        }
        self.resize(summary.tenant, before, summary.size);
        match (summary.state, summary.closed_at) {
            (RunState::Closed, Some(closed_at)) => {
                self.open.remove(&owner);
                self.closed.insert((closed_at, owner));
            }
            _ => drop(self.open.insert(owner)),
        }
        let names = [summary.tenant, summary.key].into_iter().chain(summary.others);
        self.names.extend(names.map(|name| (name, owner)));
        self.weigh(segment, weight(entry));
        if !summary.session_id.is_nil() && !self.gone.contains_key(&summary.session_id) {
            self.touch(summary.session_id, summary.closed_at.unwrap_or(summary.updated_at));
        }
    }

    pub(super) fn resize(&mut self, tenant: Name, before: u64, after: u64) {
        change(&mut self.sizes_of, tenant, before, after);
    }

    pub(super) fn touch(&mut self, id: Uuid, at: Timestamp) -> &mut Session {
        let session = self.sessions.entry(id).or_insert_with(Session::new);
        if at > session.used_at {
            self.used.remove(&(session.used_at, id));
            session.used_at = at;
            self.used.insert((at, id));
        }
        session
    }

    fn admit_session(&mut self, segment: u32, entry: &Entry, summary: &[u8]) {
        let Some(summary) = SessionSummary::read(summary) else { return };
        let session = self.touch(entry.owner, summary.used_at);
        session.parts.add(segment, weight(entry), None);
        (session.name, session.tenant) = (summary.name, summary.tenant);
        let bytes = session.bytes;
        if !std::mem::replace(&mut session.is_known, true) {
            *self.sessions_of.entry(summary.tenant).or_default() += 1;
            change(&mut self.turns_of, summary.tenant, 0, bytes);
        }
        self.session_ids.insert(summary.name, entry.owner);
        self.weigh(segment, weight(entry));
    }

    fn admit_turn(&mut self, segment: u32, entry: &Entry, summary: &[u8]) {
        let used_at = read_number(summary).map_or(i64::MIN, u64::cast_signed);
        let session = self.touch(entry.owner, Timestamp::from_micros(used_at));
        session.last_turn = session.last_turn.max(entry.seq);
        if session.gone_turns.contains(&entry.seq) {
            return session.parts.add(segment, 0, None);
        }
        session.turns += 1;
        if segment >= COMPACTED {
            session.copied_turns.insert(entry.seq, segment);
        }
        session.parts.add(segment, weight(entry), Some(entry.seq));
        if let Some(session) = self.sessions.get_mut(&entry.owner) {
            session.resize(0, u64::from(entry.length), &mut self.turns_of);
        }
        self.weigh(segment, weight(entry));
    }

    /// Adds an erased turn: only its place is left.
    pub(crate) fn admit_erased_turn(&mut self, segment: u32, entry: &Entry) {
        if !self.gone.contains_key(&entry.owner) {
            let session = self.sessions.entry(entry.owner).or_insert_with(Session::new);
            session.last_turn = session.last_turn.max(entry.seq);
            session.erased_turns.insert(entry.seq);
        }
        self.admit_dead(segment, entry);
    }

    /// Adds the deletion of a turn. Its summary has the turn's weight, which need not be looked up.
    fn admit_turn_gone(&mut self, segment: u32, entry: &Entry, summary: &[u8]) {
        let session = self.sessions.entry(entry.owner).or_insert_with(Session::new);
        session.parts.add(segment, weight(entry), None);
        session.last_turn = session.last_turn.max(entry.seq);
        let is_news = session.gone_turns.insert(entry.seq);
        let place = read_number(summary).map(|packed| ((packed >> 32) as u32, packed as u32));
        if let Some((of, turn)) = place.filter(|_| is_news && session.turns > 0) {
            let of = self.moved.get(&of).copied().unwrap_or(of);
            let is_there =
                session.parts.0.iter().any(|part| part.segment == of && part.last >= entry.seq);
            // Otherwise the turn was copied meanwhile, or a crash removed the copy in which it was
            // erased.
            let is_lost = of >= COMPACTED && !self.segments.contains_key(&of);
            let original = session.parts.0.iter().find(|part| {
                is_lost && part.segment < COMPACTED && (part.first..=part.last).contains(&entry.seq)
            });
            let elsewhere = || {
                session.copied_turns.get(&entry.seq).copied().or(original.map(|part| part.segment))
            };
            let found = if is_there { Some(of) } else { elsewhere() };
            if let Some(held) = found.filter(|_| !session.erased_turns.contains(&entry.seq)) {
                session.turns -= 1;
                session.resize(u64::from(turn.saturating_sub(HEADS)), 0, &mut self.turns_of);
                session.parts.lighten(held, turn);
                self.lighten(held, turn);
            }
        }
        self.weigh(segment, weight(entry));
    }

    fn admit_tokens(&mut self, segment: u32, entry: &Entry, summary: &[u8]) {
        let Some(tokens) =
            read_tokens(summary).filter(|_| self.tokens_revision(entry.owner) <= entry.seq)
        else {
            return;
        };
        let place = Location { segment, entry: *entry };
        if let Some((old, _)) = self.tokens_of.insert(entry.owner.into_bytes(), (place, tokens)) {
            self.lighten(old.segment, weight(&old.entry));
        }
        self.weigh(segment, weight(entry));
    }

    fn admit_gone(&mut self, segment: u32, entry: &Entry, summary: &[u8]) {
        let owner = entry.owner;
        let Some(summary) = GoneSummary::read(summary) else { return };
        let stream = self.take_stream(owner);
        let session = self.take_session(owner);
        let gone = self.gone.entry(owner).or_default();
        gone.own.push((segment, weight(entry)));
        let name = session.as_ref().map(|session| session.name);
        gone.session =
            gone.session.or(name).or_else(|| stream.as_ref().and_then(|stream| stream.session));
        let is_news = gone.summary.replace(summary).is_none();
        for part in [stream.map(|stream| stream.parts), session.map(|session| session.parts)]
            .into_iter()
            .flatten()
        {
            gone.segments.extend(part.0.iter().map(|part| part.segment));
        }
        if let Some(claim) = summary.claim
            && is_news
        {
            gone.is_claim_kept = true;
            self.names.insert((claim, owner));
            self.gone_at.insert((summary.at, owner));
        }
        self.weigh(segment, weight(entry));
    }
}

/// The name of a frame's session.
fn session_of(kind: Kind, summary: &[u8]) -> Option<Name> {
    match kind {
        Kind::Record => RunSummary::read(summary)?.session(),
        Kind::Session => Some(SessionSummary::read(summary)?.name),
        Kind::Body
        | Kind::Packets
        | Kind::Turn
        | Kind::Gone
        | Kind::TurnGone
        | Kind::Erased
        | Kind::Tokens => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::record::number_summary;
    use super::*;

    const SESSION: Uuid = Uuid::from_u128(7);

    fn entry(kind: Kind, seq: u64) -> Entry {
        Entry { owner: SESSION, kind, seq, offset: 0, length: 50 }
    }

    /// Turns 1 to 3 are in one segment. The second one was erased, by a mark that names its
    /// segment.
    fn turns_left(held: u32, named: u32) -> u64 {
        let mut index = Index::default();
        for seq in 1..=3 {
            index.admit(held, &entry(Kind::Turn, seq), &number_summary(0)[2..]);
        }
        let packed = u64::from(named) << 32 | u64::from(weight(&entry(Kind::Turn, 2)));
        for _ in 0..2 {
            index.admit(9, &entry(Kind::TurnGone, 2), &number_summary(packed)[2..]);
        }
        index.sessions[&SESSION].turns
    }

    #[test]
    fn purged_turn_is_subtracted_once() {
        assert_eq!(turns_left(3, 3), 2, "where it was");
        assert_eq!(turns_left(COMPACTED, 3), 2, "it was erased while it was copied");
        assert_eq!(turns_left(3, COMPACTED), 2, "the copy did not outlive a crash");
        assert_eq!(turns_left(3, 2), 3, "it went with its segment, and was never counted");
    }
}
