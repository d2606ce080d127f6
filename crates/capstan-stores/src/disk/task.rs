//! The tasks of the compactor thread.

use std::sync::Arc;

use capstan_journal::JournalError;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::segment::Segment;

/// A task of the compactor.
pub(crate) enum Task {
    /// Seals a full segment.
    Seal(Arc<Segment>),
    /// Overwrites everything of deleted owners, and one turn of a session by its number. Their
    /// places are looked up when the task runs, because compaction may move them until then.
    Erase {
        owners: Vec<Uuid>,
        turn: Option<(Uuid, u64)>,
        reply: oneshot::Sender<Result<(), JournalError>>,
    },
    /// Checks whether compaction is worthwhile.
    Check,
    /// Makes the writer retry after a failure.
    Retry,
    /// Saves the manifest, because everything is synced.
    Save(oneshot::Sender<Result<(), JournalError>>),
    Stop,
}
