//! Imports runs and sessions of another journal.

use capstan_journal::{JournalError, NameKind, RunCopy, SessionCopy};
use serde_json::Map;

use super::apply::put_packets;
use super::format::Kind;
use super::group::{Group, Undo};
use super::record::{Record, json, number_summary};
use super::view;
use super::writer::Writer;

impl Writer {
    /// Imports a run; false if its stream or its key exists.
    pub(crate) fn import(
        &mut self,
        kept: &RunCopy,
        group: &mut Group,
    ) -> Result<bool, JournalError> {
        let run = kept.counted();
        let stream = run.stream_id;
        let key = self.shared.names.of(&run.tenant, NameKind::Key, &run.key);
        let is_known = {
            let index = self.shared.index();
            index.claimed(key).is_some()
                || index.streams.contains_key(&stream)
                || index.gone.contains_key(&stream)
        };
        if is_known {
            return Ok(false);
        }
        let (session_id, _) = self.session(&run.tenant, &run.session, run.created_at, group);
        let record = Record {
            body_bytes: kept.body.len() as u64,
            // A run that may lack packets gets another boot id than this one.
            boot: (!kept.is_tail_certain).then(|| "elsewhere".to_owned()),
            session_id,
            turn: kept.turn,
            answers: None,
            revision: 1,
            more: Map::new(),
            run,
        };
        self.put_record(&record, group)?;
        group.put(Kind::Body, stream, 1, &[&kept.body]);
        // A gap in the numbers lies between two blocks.
        let (mut total, mut rest) = (0, &kept.frames[..]);
        while let Some(first) = rest.first() {
            let count =
                rest.iter().zip(first.seq..).take_while(|(frame, seq)| frame.seq == *seq).count();
            let (some, after) = rest.split_at(count);
            put_packets(stream, total, some, group);
            total += some.iter().map(|frame| frame.bytes.len() as u64).sum::<u64>();
            rest = after;
        }
        group.must_sync = true;
        if record.run.is_open() {
            group.undo.push(Undo::Whole { stream, record: None });
            self.open.insert(stream, record);
        }
        Ok(true)
    }

    /// Imports a session. Existing turns stay unchanged.
    pub(crate) fn import_session(
        &mut self,
        kept: &SessionCopy,
        group: &mut Group,
    ) -> Result<(), JournalError> {
        let (id, _) = self.session(&kept.tenant, &kept.session, kept.used_at, group);
        group.must_sync = true;
        for turn in &kept.turns {
            if view::turn_place(&self.shared, id, turn.number)?.is_some() {
                continue;
            }
            let payload = json(turn)?;
            let used_at = number_summary(turn.closed_at.as_micros().cast_unsigned());
            group.put(Kind::Turn, id, turn.number, &[&used_at, &payload]);
        }
        Ok(())
    }
}
