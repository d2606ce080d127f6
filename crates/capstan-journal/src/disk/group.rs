//! One group commit in the making: everything that goes to disk together, and who waits for it.

use std::collections::HashMap;

use fjall::{OwnedWriteBatch, PersistMode};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::tables::{Table, Tables};
use super::{failure, keys};
use crate::JournalError;

/// Where the answer to a command goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, JournalError>>;

type Answer = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

pub(crate) struct Group {
    batch: OwnedWriteBatch,
    /// Everything but frames. A key may be written twice in a group; the engine's batch has no order within itself.
    staged: HashMap<(Table, Vec<u8>), Option<Vec<u8>>>,
    answers: Vec<Answer>,
    size: usize,
    has_frames: bool,
    /// Streams that are to be synced, though not by the commit itself.
    unsynced: Vec<Uuid>,
    mode: PersistMode,
}

impl Group {
    pub(crate) fn new(tables: &Tables) -> Self {
        Self {
            batch: tables.batch(),
            staged: HashMap::new(),
            answers: Vec::new(),
            size: 0,
            has_frames: false,
            unsynced: Vec::new(),
            mode: PersistMode::Buffer,
        }
    }

    /// How many bytes of frames are in it.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn has_frames(&self) -> bool {
        self.has_frames
    }

    /// The commit itself syncs: the strictest of all who are in it decides for all.
    pub(crate) fn require_sync(&mut self) {
        self.mode = PersistMode::SyncData;
    }

    /// What the group says of the stream has to be synced before anybody is told.
    pub(crate) fn sync_later(&mut self, stream: Uuid) {
        self.unsynced.push(stream);
    }

    pub(crate) fn unsynced(&self) -> &[Uuid] {
        &self.unsynced
    }

    pub(crate) fn put_block(&mut self, tables: &Tables, stream: Uuid, last: u64, value: Vec<u8>) {
        self.size += value.len();
        // Seq 0 is the request's body.
        self.has_frames |= last > 0;
        self.batch.insert(tables.keyspace(Table::Frames), keys::frame(stream, last), value);
    }

    pub(crate) fn put(&mut self, table: Table, key: Vec<u8>, value: Vec<u8>) {
        self.staged.insert((table, key), Some(value));
    }

    pub(crate) fn remove(&mut self, table: Table, key: Vec<u8>) {
        self.staged.insert((table, key), None);
    }

    /// What will be stored under the key once the group is committed.
    pub(crate) fn get(
        &self,
        tables: &Tables,
        table: Table,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, JournalError> {
        if let Some(staged) = self.staged.get(&(table, key.to_vec())) {
            return Ok(staged.clone());
        }
        Ok(tables.keyspace(table).get(key).map_err(failure)?.map(|value| value.to_vec()))
    }

    /// A refusal is told at once, a success when it is true.
    pub(crate) fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, result: Result<T, JournalError>) {
        match result {
            // Whoever asked may be gone: that is no failure.
            Err(error) => drop(reply.send(Err(error))),
            Ok(value) => {
                self.answers.push(Box::new(move |outcome| drop(reply.send(outcome.map(|()| value)))))
            }
        }
    }

    /// Writes all or nothing. The answers are given afterwards, with [`Answers::give`].
    pub(crate) fn commit(self, tables: &Tables) -> (Result<(), JournalError>, Answers) {
        let mut batch = self.batch;
        let mut written = HashMap::from([(Table::Frames, self.size as u64)]);
        for ((table, key), value) in self.staged {
            let size = key.len() + value.as_ref().map_or(0, Vec::len);
            *written.entry(table).or_default() += size as u64;
            match value {
                Some(value) => batch.insert(tables.keyspace(table), key, value),
                None => batch.remove(tables.keyspace(table), key),
            }
        }
        let outcome = batch.durability(Some(self.mode)).commit().map_err(failure);
        let outcome = outcome
            .and_then(|()| written.into_iter().try_for_each(|(table, bytes)| tables.wrote(table, bytes)));
        (outcome, Answers(self.answers))
    }
}

/// The answers that a committed group owes.
pub(crate) struct Answers(Vec<Answer>);

impl Answers {
    pub(crate) fn give(self, outcome: &Result<(), JournalError>) {
        self.0.into_iter().for_each(|answer| answer(outcome.clone()));
    }
}
