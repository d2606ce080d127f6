//! Copying a store to another.

use async_trait::async_trait;
use bytes::Bytes;
use capstan_protocol::Timestamp;
use uuid::Uuid;

use crate::backend::rules;
use crate::{Frame, Result, Run, RunState, StoredTurn};

/// A store that can be the source and the target of a copy.
#[async_trait]
pub trait Transfer: Send + Sync {
    /// Runs of all tenants after a stream, oldest first.
    async fn runs_after(&self, after: Uuid, limit: usize) -> Result<Vec<Run>>;

    /// Imports a run with its packets and its claim in one step. Returns false, and changes
    /// nothing, if its stream or its key exists already. A running run becomes an orphan.
    async fn import(&self, copy: RunCopy) -> Result<bool>;

    /// Imports a session and those of its turns that do not exist here, with their numbers.
    async fn import_session(&self, copy: SessionCopy) -> Result<()>;
}

/// A run with all of its data, from another store.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCopy {
    /// Its record.
    pub run: Run,
    /// The body of its claim.
    pub body: Bytes,
    /// All packets.
    pub frames: Vec<Frame>,
    /// The number of its session's turn; 0 if it has none.
    pub turn: u64,
    /// Whether no packet can be missing; see
    /// [`Records::is_tail_certain`](crate::Records::is_tail_certain).
    pub is_tail_certain: bool,
}

/// A session with its turns, from another store.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionCopy {
    /// The tenant.
    pub tenant: String,
    /// Its name.
    pub session: String,
    /// When it was last used, according to its runs and turns.
    pub used_at: Timestamp,
    /// The number of its last turn, even if that turn is deleted.
    pub last_turn: u64,
    /// Its turns, in order.
    pub turns: Vec<StoredTurn>,
}

impl RunCopy {
    /// The run's record, with the counts of its packets.
    pub fn counted(&self) -> Run {
        let (last_seq, bytes) = match self.run.state {
            RunState::Running => {
                let (mut last_seq, mut bytes) = (0, 0);
                rules::count(&mut last_seq, &mut bytes, &self.frames);
                (last_seq, bytes)
            }
            RunState::Waiting | RunState::Closed => (self.run.last_seq, self.run.bytes),
        };
        Run { last_seq, bytes, owner: None, ..self.run.clone() }
    }
}
