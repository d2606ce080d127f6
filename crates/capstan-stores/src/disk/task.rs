//! What the thread that keeps house can be asked for.

use std::sync::Arc;

use capstan_journal::JournalError;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::segment::Segment;

/// What the keeper can be asked for.
pub(crate) enum Task {
    /// The segment is full.
    Seal(Arc<Segment>),
    /// Overwrites what is left of owners that are gone, and this turn of a session, by its number:
    /// where they lie is looked up when it is done, since they may be copied until then.
    Erase {
        owners: Vec<Uuid>,
        turn: Option<(Uuid, u64)>,
        reply: oneshot::Sender<Result<(), JournalError>>,
    },
    /// Something may be worth cleaning.
    Look,
    /// The journal failed: have it tried again.
    Retry,
    /// Everything is synced: write it down.
    Save(oneshot::Sender<Result<(), JournalError>>),
    Stop,
}
