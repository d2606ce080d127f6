//! What each command of the writer puts into the group.

use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::group::Group;
use super::keys;
use super::tables::Table;
use super::values::{self, Held, Record};
use super::writer::Writer;
use crate::plant::{self, Bug};
use crate::rules::{self, expired, not_found, shown};
use crate::{Claim, Claimed, Durability, Frame, JournalError, Run, RunState, Turn};

impl Writer {
    pub(crate) fn claim(&mut self, claim: Claim, group: &mut Group) -> Result<Claimed, JournalError> {
        keys::check_names(&[&claim.tenant, &claim.key, &claim.session])?;
        let name = keys::names(&[&claim.tenant, &claim.key]);
        if let Some(value) = group.get(&self.tables, Table::Claims, &name)?
            && !plant::is(Bug::DoubleClaim)
        {
            let record = self.record(values::read_held(&value)?.stream, group)?;
            let run = shown(record.ok_or_else(|| expired(&claim.key))?.run);
            return Ok(Claimed { run, is_new: false });
        }
        if let Some(asker) = claim.answers {
            self.answer(asker, &claim, group)?;
        }
        let body_bytes = claim.body.len() as u64;
        let record = Record { run: claim.to_run(), body_bytes, boot: self.boot.clone() };
        let stream = claim.stream_id;
        group.put(Table::Runs, stream.as_bytes().to_vec(), values::json(&record)?);
        group.put(Table::Claims, name, values::held(Held { stream, gone_at: None }));
        group.put(Table::Index, keys::index(keys::OPEN, &[stream.as_bytes()]), Vec::new());
        group.put(Table::Index, listed(&record.run), Vec::new());
        self.touch(&claim.tenant, &claim.session, claim.created_at, group);
        let body = Frame { seq: 0, bytes: claim.body };
        group.put_block(&self.tables, stream, 0, values::block(0, &[body]));
        self.require_sync(stream, group);
        let run = record.run.clone();
        self.open.insert(stream, record);
        Ok(Claimed { run, is_new: true })
    }

    /// Marks the questions of a run as answered, in the same group as the claim that answers them.
    fn answer(&mut self, asker: Uuid, claim: &Claim, group: &mut Group) -> Result<(), JournalError> {
        let record = self.record(asker, group)?;
        let run = rules::answer(record.as_ref().map(|record| record.run.clone()), claim)?;
        let Some(record) = record.map(|record| Record { run, ..record }) else { return Ok(()) };
        group.put(Table::Runs, asker.as_bytes().to_vec(), values::json(&record)?);
        if let Some(open) = self.open.get_mut(&asker) {
            *open = record;
        }
        Ok(())
    }

    pub(crate) fn append(
        &mut self,
        stream: Uuid,
        attempt: u32,
        frames: &[Frame],
        group: &mut Group,
    ) -> Result<(), JournalError> {
        let Some(record) = self.open.get_mut(&stream) else {
            let record = self.record(stream, group)?.ok_or_else(|| not_found(stream))?;
            return rules::check_append(&record.run, attempt, frames);
        };
        rules::check_append(&record.run, attempt, frames)?;
        let before = record.run.bytes;
        rules::count(&mut record.run, frames);
        self.put_frames(stream, before, frames, group);
        if self.durability == Durability::Power {
            group.require_sync();
        }
        Ok(())
    }

    pub(crate) fn transition(
        &mut self,
        from: (RunState, u32),
        to: Run,
        frames: &[Frame],
        turn: Option<&Turn>,
        group: &mut Group,
    ) -> Result<bool, JournalError> {
        let stream = to.stream_id;
        let mut record = self.record(stream, group)?.ok_or_else(|| not_found(stream))?;
        if !rules::check_transition(&record.run, from, frames)? {
            return Ok(false);
        }
        // Whatever may fail comes before the group is touched.
        let turn =
            turn.map(|turn| Ok::<_, JournalError>((turn.closed_at, values::json(turn)?))).transpose()?;
        let before = record.run.bytes;
        record.run = rules::advance(&record.run, to, frames);
        record.boot = self.boot.clone();
        group.put(Table::Runs, stream.as_bytes().to_vec(), values::json(&record)?);
        self.put_frames(stream, before, frames, group);
        if let Some(closed_at) = record.run.closed_at {
            group.remove(Table::Index, keys::index(keys::OPEN, &[stream.as_bytes()]));
            group.put(
                Table::Index,
                closed(stream, closed_at),
                values::closed(record.size(), &record.run.tenant),
            );
            self.closing.push(stream);
        }
        if let Some((closed_at, turn)) = turn {
            let Run { tenant, session, .. } = &record.run;
            group.put(Table::Turns, keys::turn(tenant, session, stream), turn);
            self.touch(tenant, session, closed_at, group);
        }
        self.require_sync(stream, group);
        self.open.insert(stream, record);
        Ok(true)
    }

    /// Not synced: if a power cut undoes it, the next expiry does it again.
    pub(crate) fn retire(
        &mut self,
        streams: &[Uuid],
        now: Timestamp,
        group: &mut Group,
    ) -> Result<(), JournalError> {
        for &stream in streams {
            let Some(record) = self.record(stream, group)? else { continue };
            let Some(closed_at) = record.run.closed_at else { continue };
            let name = keys::names(&[&record.run.tenant, &record.run.key]);
            group.remove(Table::Runs, stream.as_bytes().to_vec());
            group.remove(Table::Index, listed(&record.run));
            group.remove(Table::Index, closed(stream, closed_at));
            group.put(Table::Index, keys::index(keys::DOOMED, &[stream.as_bytes()]), Vec::new());
            let late = keys::late(&record.run.tenant, stream);
            group.put(Table::Index, late.clone(), Vec::new());
            // The one entry leads to the other, so that they go together.
            group.put(Table::Index, keys::index(keys::GONE, &[&keys::time(now), &name]), late);
            group.put(Table::Claims, name, values::held(Held { stream, gone_at: Some(now) }));
        }
        Ok(())
    }

    /// False if the run is not closed, or not there.
    pub(crate) fn purge(
        &mut self,
        stream: Uuid,
        now: Timestamp,
        group: &mut Group,
    ) -> Result<bool, JournalError> {
        let Some(record) = self.record(stream, group)?.filter(|record| !record.run.is_open()) else {
            return Ok(false);
        };
        self.retire(&[stream], now, group)?;
        group.remove(Table::Turns, keys::turn(&record.run.tenant, &record.run.session, stream));
        group.require_sync();
        Ok(true)
    }

    /// False if there is no such session, or it was used meanwhile. Synced if somebody wants it gone.
    pub(crate) fn forget_session(
        &mut self,
        entry: Vec<u8>,
        unused_since: Option<Timestamp>,
        group: &mut Group,
    ) -> Result<bool, JournalError> {
        let used_at = group.get(&self.tables, Table::Index, &entry)?;
        let Some(used_at) = used_at.as_deref().and_then(keys::read_time) else { return Ok(false) };
        match unused_since {
            Some(cutoff) if used_at > cutoff => return Ok(false),
            Some(_) => {}
            None => group.require_sync(),
        }
        let session = entry.get(1..).unwrap_or_default();
        for turn in self.tables.view().prefix(Table::Turns, session) {
            group.remove(Table::Turns, turn?.0.to_vec());
        }
        group.remove(Table::Index, entry);
        Ok(true)
    }

    /// Where packets are synced as well, all wait for the same; where they are not, they go on meanwhile.
    fn require_sync(&self, stream: Uuid, group: &mut Group) {
        match self.durability {
            Durability::Power => group.require_sync(),
            Durability::Process => group.sync_later(stream),
        }
    }

    /// A run as it will be once the group is committed.
    fn record(&self, stream: Uuid, group: &Group) -> Result<Option<Record>, JournalError> {
        if let Some(record) = self.open.get(&stream) {
            return Ok(Some(record.clone()));
        }
        let value = group.get(&self.tables, Table::Runs, stream.as_bytes())?;
        value.map(|value| values::read_json(&value)).transpose()
    }

    fn put_frames(&self, stream: Uuid, before: u64, frames: &[Frame], group: &mut Group) {
        let mut total = before;
        for block in values::blocks(frames) {
            let Some(last) = block.last() else { continue };
            total = block.iter().fold(total, |total, frame| total.saturating_add(frame.bytes.len() as u64));
            group.put_block(&self.tables, stream, last.seq, values::block(total, block));
        }
    }

    fn touch(&self, tenant: &str, session: &str, at: Timestamp, group: &mut Group) {
        let key = keys::index(keys::SESSION, &[&keys::names(&[tenant, session])]);
        group.put(Table::Index, key, keys::time(at).to_vec());
    }
}

fn listed(run: &Run) -> Vec<u8> {
    keys::index(keys::LISTED, &[&keys::names(&[&run.tenant]), run.stream_id.as_bytes()])
}

fn closed(stream: Uuid, closed_at: Timestamp) -> Vec<u8> {
    keys::index(keys::CLOSED, &[&keys::time(closed_at), stream.as_bytes()])
}
