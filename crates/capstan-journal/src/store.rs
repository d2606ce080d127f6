//! What a store is, in parts by who uses them. Nothing in it assumes that only one process uses it.
//!
//! A new store implements [`Records`], [`Sessions`], [`Catalog`] and [`Store`]; one that many
//! processes share implements [`Cluster`] as well, and one that can be copied [`Transfer`]. A
//! [`Layer`] over another store implements only what it changes.

mod catalog;
mod cluster;
mod records;
mod sessions;
mod transfer;

use async_trait::async_trait;
use capstan_protocol::Timestamp;
use tokio::sync::watch;
use uuid::Uuid;

use crate::{ErrorKind, Expired, Health, JournalError, Result, Retention, Secret, Stats};

pub use catalog::{Catalog, Named};
pub use cluster::Cluster;
pub use records::{Claimed, Found, Records, Transition};
pub use sessions::{Sessions, TurnRange};
pub use transfer::{Kept, KeptSession, Transfer};

/// Where a store finds what it does not do itself. By default nowhere: a store of its own does
/// everything.
pub trait Layer: Send + Sync + 'static {
    /// The store that answers whatever this one does not.
    fn below(&self) -> Option<&dyn Store> {
        None
    }

    /// The store that holds a stream, where a layer has several.
    fn at(&self, _stream: Uuid) -> Option<&dyn Store> {
        self.below()
    }
}

/// All of a store.
///
/// A writing operation that was begun may take effect even if its future is dropped.
#[async_trait]
pub trait Store: Records + Sessions + Catalog + Cluster {
    /// Deletes what the retention no longer covers, in small steps between which appends go on.
    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired> {
        found(self.below())?.expire(retention, now).await
    }

    /// A secret of the store's own, made when it first was used: whoever uses the store can check
    /// what was signed with it.
    async fn secret(&self) -> Result<Secret> {
        found(self.below())?.secret().await
    }

    /// Syncs everything and ends writing: later writes are `Unavailable`.
    async fn close(&self) -> Result<()> {
        found(self.below())?.close().await
    }

    /// How the store feels, as it changes.
    fn health(&self) -> watch::Receiver<Health> {
        match self.below() {
            Some(store) => store.health(),
            None => watch::Sender::new(Health::Well).subscribe(),
        }
    }

    /// The newest time that the store has written down, as far as it can tell at once: what the
    /// clock said then.
    fn newest(&self) -> Option<Timestamp> {
        self.below()?.newest()
    }

    /// What the store knows of itself.
    fn stats(&self) -> Stats {
        self.below().map(Store::stats).unwrap_or_default()
    }

    /// For copying it into another store; `None` if it cannot be copied.
    fn transfer(&self) -> Option<&dyn Transfer> {
        None
    }
}

/// The store that does it.
fn found(store: Option<&dyn Store>) -> Result<&dyn Store> {
    store.ok_or_else(|| JournalError::new(ErrorKind::Unsupported, "this store cannot do that"))
}
