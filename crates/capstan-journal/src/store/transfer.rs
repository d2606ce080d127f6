//! Copying a store into another.

use async_trait::async_trait;
use bytes::Bytes;
use capstan_protocol::Timestamp;
use uuid::Uuid;

use crate::backend::rules;
use crate::{Frame, Result, Run, RunState, StoredTurn};

/// A store that can be copied, and copied into.
#[async_trait]
pub trait Transfer: Send + Sync {
    /// Runs of all tenants, the oldest first, after a stream.
    async fn runs_after(&self, after: Uuid, limit: usize) -> Result<Vec<Run>>;

    /// Takes in a run of another store as it is there, its packets and its claim, in one step;
    /// false if its stream or its key is there already, and then nothing is changed. One that runs
    /// is an orphan here.
    async fn import(&self, kept: Kept) -> Result<bool>;

    /// Takes in a session of another store, and those of its turns that are not there, under their
    /// numbers.
    async fn import_session(&self, kept: KeptSession) -> Result<()>;
}

/// A run with all that belongs to it, as another store has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// Its record.
    pub run: Run,
    /// What it was claimed with.
    pub body: Bytes,
    /// All packets.
    pub frames: Vec<Frame>,
    /// The number of the turn that it left to its session; 0 if it left none.
    pub turn: u64,
    /// Whether no packet can be missing; see
    /// [`Records::is_tail_certain`](crate::Records::is_tail_certain).
    pub is_tail_certain: bool,
}

/// A session with its turns, as another store has it.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptSession {
    /// Whose it is.
    pub tenant: String,
    /// Its name.
    pub session: String,
    /// When it was last used, as far as its runs and turns tell.
    pub used_at: Timestamp,
    /// The number of its last turn, whether or not it is still there.
    pub last_turn: u64,
    /// Its turns, in order.
    pub turns: Vec<StoredTurn>,
}

impl Kept {
    /// The run as it is to be shown, its counts being those of its packets.
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
