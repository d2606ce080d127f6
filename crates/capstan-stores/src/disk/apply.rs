//! Turns each command of the writer into frames of the group.

use capstan_journal::backend::planted_bug::{self, Bug};
use capstan_journal::backend::rules::{self, expired, not_found, shown};
use capstan_journal::{
    Claim, Claimed, ErrorKind, Frame, JournalError, NameKind, Quota, Run, RunState, Tokens, Usage,
};
use capstan_protocol::Timestamp;
use serde_json::Map;
use uuid::Uuid;

use super::format::Kind;
use super::group::{Group, Undo};
use super::names::Name;
use super::packets;
use super::record::{
    GoneSummary, Record, SessionSummary, WrittenTurn, number_summary, tokens_summary,
};
use super::view;
use super::writer::Writer;
use crate::Durability;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Writer {
    pub(crate) fn claim(
        &mut self,
        claim: Claim,
        quota: &Quota,
        group: &mut Group,
    ) -> Result<Claimed, JournalError> {
        let key = self.shared.names.of(&claim.tenant, NameKind::Key, &claim.key);
        let claimed = group.claims.get(&key).copied().or_else(|| self.shared.index().claimed(key));
        if let Some(stream) = claimed.filter(|_| !planted_bug::is(Bug::DoubleClaim)) {
            let record = self.record(stream)?;
            let run = shown(record.ok_or_else(|| expired(&claim.key))?.run);
            return Ok(Claimed { run, is_new: false });
        }
        if self.shared.is_low.load(Ordering::Relaxed) {
            let message = "the journal's disk is nearly full, so it accepts no new runs";
            return Err(JournalError::new(ErrorKind::Full, message));
        }
        let asker = claim.answers.map(|asker| self.answered(asker, &claim)).transpose()?;
        self.admit(&claim, quota, group)?;
        if let Some((record, run)) = asker {
            self.keep_unsynced(run.stream_id, group);
            self.rewrite_run(record, run, group)?;
        }
        let (session_id, last_turn) =
            self.session(&claim.tenant, &claim.session, claim.created_at, group);
        let mut run = claim.to_run();
        run.turns_before += last_turn;
        let record = Record {
            run: run.clone(),
            body_bytes: claim.body.len() as u64,
            boot: self.boot.clone(),
            session_id,
            turn: 0,
            answers: claim.answers,
            revision: 1,
            more: Map::new(),
        };
        let stream = claim.stream_id;
        self.put_record(&record, group)?;
        group.put(Kind::Body, stream, 1, &[&claim.body]);
        group.claims.insert(key, stream);
        group.weigh(self.shared.names.tenant(&claim.tenant), record.body_bytes);
        self.keep_unsynced(stream, group);
        group.undo.push(Undo::Whole { stream, record: None });
        self.open.insert(stream, record);
        Ok(Claimed { run, is_new: true })
    }

    /// Withdraws a claim that no caller knows of. The key is free again.
    pub(crate) fn withdraw(&mut self, stream: Uuid, group: &mut Group) {
        let is_untouched = |record: &&Record| {
            (record.run.state, record.run.attempt, record.run.last_seq) == (RunState::Running, 1, 0)
        };
        let Some(record) = self.open.get(&stream).filter(is_untouched) else { return };
        let names = &self.shared.names;
        let summary = record.summary(names);
        let gone = GoneSummary {
            at: record.run.updated_at,
            is_purged: false,
            claim: None,
            tenant: summary.tenant,
        };
        group.forgotten.push((
            stream,
            [summary.tenant, summary.key].into_iter().chain(summary.others).collect(),
        ));
        group.put(Kind::Gone, stream, 1, &[&gone.encode()]);
        let withdrawn = self.open.remove(&stream);
        let asker = withdrawn.as_ref().and_then(|record| record.answers);
        group.undo.push(Undo::Whole { stream, record: withdrawn.map(Box::new) });
        if let Some(asker) = asker
            && let Err(error) = self.ask_again(asker, stream, group)
        {
            tracing::warn!(%error, stream = %asker,
            "a question stays marked as answered by a run that was withdrawn");
        }
    }

    /// Checks the claim against its tenant's quota. Call it last, because it counts the claim.
    fn admit(&mut self, claim: &Claim, quota: &Quota, group: &Group) -> Result<(), JournalError> {
        if *quota == Quota::UNLIMITED {
            return Ok(());
        }
        let used = self.usage(&claim.tenant, &claim.session, group);
        quota.check(&used, claim.body.len() as u64)?;
        quota.check_tokens(&used.tokens, claim.created_at)?;
        let tenant = self.shared.names.tenant(&claim.tenant);
        Ok(self.rates.take(tenant, quota, Instant::now())?)
    }

    /// A tenant's usage once the group is written.
    fn usage(&self, tenant: &str, session: &str, group: &Group) -> Usage {
        let open = self.open.tally().usage(tenant, session);
        let name = self.shared.names.of(tenant, NameKind::Session, session);
        let tenant = self.shared.names.tenant(tenant);
        let index = self.shared.index();
        let known = index.session_ids.get(&name).and_then(|id| index.sessions.get(id));
        let (last_turn, turns) = known.map_or((0, 0), |session| (session.last_turn, session.turns));
        let begun = group.sessions.get(&name);
        // Turns of the group continue the numbers after the last one.
        let turns = turns + begun.map_or(0, |(_, last)| last.saturating_sub(last_turn));
        let size = known.map_or(0, |session| session.bytes) + group.added(&name);
        Usage {
            sessions: index.sessions_of.get(&tenant).copied().unwrap_or(0)
                + group.sessions_begun(&tenant),
            bytes: index.held_by(&tenant) + group.added(&tenant),
            has_session: known.is_some() || begun.is_some(),
            messages: open.messages + turns,
            session_bytes: open.session_bytes + size,
            tokens: group.tokens.get(&tenant).map(|(_, tokens)| *tokens).unwrap_or_else(|| {
                index.tokens_of.get(&tenant).map(|(_, tokens)| *tokens).unwrap_or_default()
            }),
            ..open
        }
    }

    /// The run whose questions a claim answers, with its new record. The same group contains it.
    fn answered(&self, asker: Uuid, claim: &Claim) -> Result<(Record, Run), JournalError> {
        let record = self.record(asker)?;
        let run = rules::answer(record.as_ref().map(|record| record.run.clone()), claim)?;
        record.map(|record| (record, run)).ok_or_else(|| not_found(asker))
    }

    /// The claim with the answers was withdrawn, so the run's questions are open again.
    fn ask_again(&mut self, asker: Uuid, by: Uuid, group: &mut Group) -> Result<(), JournalError> {
        let Some(record) = self.record(asker)? else { return Ok(()) };
        let mut run = record.run.clone();
        match &mut run.asked {
            Some(asked) if asked.answered_by == Some(by) => asked.answered_by = None,
            _ => return Ok(()),
        }
        self.keep_unsynced(asker, group);
        self.rewrite_run(record, run, group)
    }

    /// Records when the answer of a closed run was sent; false if there is no such run.
    pub(crate) fn mark_sent(
        &mut self,
        stream: Uuid,
        at: Timestamp,
        group: &mut Group,
    ) -> Result<bool, JournalError> {
        let Some(record) = self.record(stream)?.filter(|record| !record.run.is_open()) else {
            return Ok(false);
        };
        let run = Run { sent_at: Some(at), ..record.run.clone() };
        self.rewrite_run(record, run, group).map(|()| true)
    }

    /// Writes the record of a run that changed without a transition. Later commands of the group
    /// see the change.
    fn rewrite_run(
        &mut self,
        record: Record,
        run: Run,
        group: &mut Group,
    ) -> Result<(), JournalError> {
        let stream = run.stream_id;
        let record = Record { run, revision: record.revision + 1, ..record };
        self.put_record(&record, group)?;
        if !record.run.is_open() {
            self.closing.push(stream);
        }
        let before = self.open.insert(stream, record).map(Box::new);
        group.undo.push(Undo::Whole { stream, record: before });
        Ok(())
    }

    pub(crate) fn append(
        &mut self,
        stream: Uuid,
        attempt: u32,
        frames: &[Frame],
        group: &mut Group,
    ) -> Result<(), JournalError> {
        let Some(record) = self.open.get(&stream) else {
            let record = self.record(stream)?.ok_or_else(|| not_found(stream))?;
            return rules::check_append(&record.run, attempt, frames);
        };
        rules::check_append(&record.run, attempt, frames)?;
        let (last_seq, bytes) = (record.run.last_seq, record.run.bytes);
        group.undo.push(Undo::Counts { stream, last_seq, bytes });
        if let Some((last_seq, bytes)) = self.open.counts(&stream) {
            rules::count(last_seq, bytes, frames);
        }
        put_packets(stream, bytes, frames, group);
        Ok(())
    }

    pub(crate) fn transition(
        &mut self,
        from: (RunState, u32),
        to: Run,
        frames: &[Frame],
        turn: Option<&WrittenTurn>,
        quota: &Quota,
        group: &mut Group,
    ) -> Result<bool, JournalError> {
        let stream = to.stream_id;
        let mut record = self.record(stream)?.ok_or_else(|| not_found(stream))?;
        if !rules::check_transition(&record.run, from, frames)? {
            return Ok(false);
        }
        if to.state == RunState::Waiting && record.run.state != RunState::Waiting {
            quota.check_waiting(self.open.tally().waiting(&record.run.tenant))?;
        }
        let old = self.open.get(&stream).cloned().map(Box::new);
        let before = record.run.bytes;
        let (tokens, at) = (rules::tokens_used(&record.run, &to), to.updated_at);
        record.run = rules::advance(&record.run, to, frames);
        record.boot = self.boot.clone();
        record.revision += 1;
        if let Some(turn) = turn {
            let Run { tenant, session, .. } = record.run.clone();
            let (id, last) = self.session(&tenant, &session, turn.closed_at, group);
            let number = last + 1;
            let (begin, rest) = turn.numbered(number);
            let used_at = number_summary(turn.closed_at.as_micros().cast_unsigned());
            group.put(Kind::Turn, id, number, &[&used_at, &begin, rest]);
            let name = self.shared.names.of(&tenant, NameKind::Session, &session);
            for owner in [name, self.shared.names.tenant(&tenant)] {
                group.weigh(owner, (used_at.len() + begin.len() + rest.len()) as u64);
            }
            group.sessions.insert(name, (id, number));
            (record.session_id, record.turn) = (id, number);
        }
        self.put_record(&record, group)?;
        put_packets(stream, before, frames, group);
        self.put_tokens(&record.run.tenant, tokens, at, group);
        if !record.run.is_open() {
            self.closing.push(stream);
        }
        self.keep_unsynced(stream, group);
        group.undo.push(Undo::Whole { stream, record: old });
        self.open.insert(stream, record);
        Ok(true)
    }

    /// Adds to a tenant's used tokens, in the same group as the record of the attempt that used
    /// them.
    fn put_tokens(&self, tenant: &str, tokens: u64, at: Timestamp, group: &mut Group) {
        if tokens == 0 {
            return;
        }
        let tenant = self.shared.names.tenant(tenant);
        let written = || {
            let index = self.shared.index();
            index
                .tokens_of
                .get(&tenant)
                .map_or((0, Tokens::default()), |(place, tokens)| (place.entry.seq, *tokens))
        };
        let (revision, mut used) = group.tokens.get(&tenant).copied().unwrap_or_else(written);
        used.add(tokens, at);
        group.put(Kind::Tokens, Uuid::from_bytes(tenant), revision + 1, &[&tokens_summary(&used)]);
        group.tokens.insert(tenant, (revision + 1, used));
    }

    /// Deletes closed streams and returns their number. It is not synced: if a power cut undoes it,
    /// the next expiry repeats it.
    pub(crate) fn retire(&mut self, streams: &[Uuid], now: Timestamp, group: &mut Group) -> u64 {
        streams.iter().map(|stream| u64::from(self.put_gone(*stream, now, false, group))).sum()
    }

    /// Purges a stream; false if it does not exist or is open.
    pub(crate) fn purge(
        &mut self,
        stream: Uuid,
        now: Timestamp,
        group: &mut Group,
    ) -> Result<bool, JournalError> {
        if !self.put_gone(stream, now, true, group) {
            return Ok(false);
        }
        if let Some((session, number)) = view::turn_of(&self.shared, stream)
            && let Some(place) = view::turn_place(&self.shared, session, number)?
        {
            let packed =
                u64::from(place.segment) << 32 | u64::from(super::index::weight(&place.entry));
            group.put(
                Kind::TurnGone,
                place.entry.owner,
                place.entry.seq,
                &[&number_summary(packed)],
            );
        }
        group.must_sync = true;
        self.keep_unsynced(stream, group);
        Ok(true)
    }

    /// Marks a closed stream as deleted; false if there is none.
    fn put_gone(&self, stream: Uuid, now: Timestamp, is_purged: bool, group: &mut Group) -> bool {
        let found = {
            let index = self.shared.index();
            let closed =
                index.streams.get(&stream).filter(|stream| stream.state == RunState::Closed);
            closed.map(|stream| (stream.tenant, stream.key))
        };
        let Some((tenant, key)) = found else { return false };
        let gone = GoneSummary { at: now, is_purged, claim: Some(key), tenant };
        group.put(Kind::Gone, stream, 1, &[&gone.encode()]);
        group.forgotten.push((stream, self.other_names(stream)));
        true
    }

    /// All names of a stream. Its claim is added again when the stream is marked as deleted.
    fn other_names(&self, stream: Uuid) -> Vec<Name> {
        match view::record(&self.shared, stream) {
            Ok(Some(record)) => {
                let summary = record.summary(&self.shared.names);
                [summary.tenant, summary.key].into_iter().chain(summary.others).collect()
            }
            // If the record is damaged, search the index for its names.
            _ => {
                let index = self.shared.index();
                index
                    .names
                    .iter()
                    .filter(|(_, owner)| *owner == stream)
                    .map(|(name, _)| *name)
                    .collect()
            }
        }
    }

    /// Deletes a session; false if there is none, or it was used meanwhile. On request it is synced
    /// and erased.
    pub(crate) fn forget_session(
        &mut self,
        id: Uuid,
        unused_since: Option<Timestamp>,
        now: Timestamp,
        group: &mut Group,
    ) -> bool {
        let found = {
            let index = self.shared.index();
            index.sessions.get(&id).map(|session| (session.used_at, session.tenant))
        };
        let Some((used_at, tenant)) = found else { return false };
        if unused_since.is_some_and(|cutoff| used_at > cutoff) {
            return false;
        }
        let is_purged = unused_since.is_none();
        let gone = GoneSummary { at: now, is_purged, claim: None, tenant };
        group.put(Kind::Gone, id, 1, &[&gone.encode()]);
        if is_purged {
            group.must_sync = true;
            self.keep_unsynced(id, group);
        }
        true
    }

    /// Deletes runs whose record is damaged, and keeps their claims. For the other runs it records
    /// the last intact packet.
    pub(crate) fn mark_lost(
        &mut self,
        lost: &[(Uuid, u64)],
        unrecorded: &[Uuid],
        group: &mut Group,
    ) -> Result<(), JournalError> {
        let mut gone = unrecorded.to_vec();
        for (stream, upto) in lost {
            let Ok(Some(mut record)) = self.record(*stream) else {
                gone.push(*stream);
                continue;
            };
            record.run.lost_after = Some(*upto);
            record.revision += 1;
            self.put_record(&record, group)?;
        }
        for stream in gone {
            let index = self.shared.index();
            let Some(found) = index.streams.get(&stream) else { continue };
            let claim = Some(found.key).filter(|_| found.record.is_some());
            let at = Timestamp::now();
            let summary = GoneSummary { at, is_purged: false, claim, tenant: found.tenant };
            group.put(Kind::Gone, stream, 1, &[&summary.encode()]);
            self.open.remove(&stream);
        }
        group.must_sync = true;
        Ok(())
    }

    /// Records that these owners are overwritten and synced.
    pub(crate) fn erased(&mut self, owners: &[Uuid], group: &mut Group) {
        for owner in owners {
            if self.shared.index().gone.contains_key(owner) {
                group.put(Kind::Erased, *owner, 1, &[]);
            }
        }
    }

    /// A tenant's session, created if it does not exist: its id and its last turn.
    pub(crate) fn session(
        &self,
        tenant: &str,
        session: &str,
        at: Timestamp,
        group: &mut Group,
    ) -> (Uuid, u64) {
        let names = &self.shared.names;
        let name = names.of(tenant, NameKind::Session, session);
        if let Some(known) = group.sessions.get(&name) {
            return *known;
        }
        let known = {
            let index = self.shared.index();
            let id = index.session_ids.get(&name).copied();
            id.and_then(|id| index.sessions.get(&id).map(|session| (id, session.last_turn)))
        };
        let known = known.unwrap_or_else(|| {
            let id = Uuid::now_v7();
            let summary = SessionSummary { name, tenant: names.tenant(tenant), used_at: at };
            group.put(Kind::Session, id, 1, &[&summary.encode()]);
            group.begin_session(summary.tenant);
            (id, 0)
        });
        group.sessions.insert(name, known);
        known
    }

    /// Makes readers of the stream wait for the sync, unless packets are synced as well: then all
    /// callers wait for the same sync.
    fn keep_unsynced(&self, owner: Uuid, group: &mut Group) {
        if self.shared.settings.durability == Durability::Process {
            group.unsynced.push(owner);
        }
    }

    /// A run's record as it will be once the group is written.
    fn record(&self, stream: Uuid) -> Result<Option<Record>, JournalError> {
        match self.open.get(&stream) {
            Some(record) => Ok(Some(record.clone())),
            None => view::record(&self.shared, stream),
        }
    }

    pub(crate) fn put_record(
        &self,
        record: &Record,
        group: &mut Group,
    ) -> Result<(), JournalError> {
        let (summary, json) = record.encode(&self.shared.names)?;
        group.put(Kind::Record, record.run.stream_id, record.revision, &[&summary, &json]);
        Ok(())
    }
}

pub(crate) fn put_packets(stream: Uuid, before: u64, frames: &[Frame], group: &mut Group) {
    let mut total = before;
    for block in packets::blocks(frames) {
        let Some(last) = block.last() else { continue };
        total =
            block.iter().fold(total, |total, frame| total.saturating_add(frame.bytes.len() as u64));
        group.put_with(Kind::Packets, stream, last.seq, |out| {
            packets::encode(stream, total, block, out)
        });
    }
}
