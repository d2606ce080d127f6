//! Copying a store into another.

use async_trait::async_trait;
use uuid::Uuid;

use crate::{Kept, KeptSession, Result, Run};

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
