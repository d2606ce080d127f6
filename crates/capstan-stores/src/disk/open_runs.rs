//! The records of open runs, as the writer knows them, and their number.

use std::collections::HashMap;

use capstan_journal::backend::Tally;
use uuid::Uuid;

use super::record::Record;

/// Records by stream, with their number. A run that the current group closes stays until the group
/// is written, but is not counted.
#[derive(Default)]
pub(crate) struct OpenRuns {
    records: HashMap<Uuid, Record>,
    tally: Tally,
}

impl OpenRuns {
    pub(crate) fn get(&self, stream: &Uuid) -> Option<&Record> {
        self.records.get(stream)
    }

    /// The number of the run's last packet, and its size. Changing them changes no count.
    pub(crate) fn counts(&mut self, stream: &Uuid) -> Option<(&mut u64, &mut u64)> {
        let record = self.records.get_mut(stream)?;
        Some((&mut record.run.last_seq, &mut record.run.bytes))
    }

    pub(crate) fn insert(&mut self, stream: Uuid, record: Record) -> Option<Record> {
        self.tally.add(&record.run, record.body_bytes);
        let before = self.records.insert(stream, record);
        before.inspect(|record| self.tally.remove(&record.run, record.body_bytes))
    }

    pub(crate) fn remove(&mut self, stream: &Uuid) -> Option<Record> {
        self.records
            .remove(stream)
            .inspect(|record| self.tally.remove(&record.run, record.body_bytes))
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }
}
