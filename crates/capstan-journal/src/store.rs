//! The traits of a store, split by their users. Other processes may use the store at the same time.
//!
//! A new store implements [`Records`], [`Sessions`], [`Catalog`] and [`Store`]. A shared store also
//! has a [`Cluster`], and a store that can be copied has a [`Transfer`]. A [`Layer`] over another
//! store implements only what it changes.

mod catalog;
mod cluster;
mod records;
mod sessions;
mod tenant_hosts;
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
pub use tenant_hosts::{KeyRecord, Peer, TenantHost, TenantHosts};
pub use transfer::{RunCopy, SessionCopy, Transfer};

/// The store below a layer. A store of its own has none and implements everything.
pub trait Layer: Send + Sync + 'static {
    /// The store for all operations that this one does not implement.
    fn below(&self) -> Option<&dyn Store> {
        None
    }

    /// The store that has a stream, for a layer over several stores.
    fn at(&self, _stream: Uuid) -> Option<&dyn Store> {
        self.below()
    }
}

/// A complete store.
///
/// A write that was polled once may take effect even if its future is dropped.
#[async_trait]
pub trait Store: Records + Sessions + Catalog {
    /// Applies retention in small steps, so that appends can go on in between.
    async fn expire(&self, retention: &Retention, now: Timestamp) -> Result<Expired> {
        found(self.below())?.expire(retention, now).await
    }

    /// The store's secret, created at its first use. All processes with this store share it.
    async fn secret(&self) -> Result<Secret> {
        found(self.below())?.secret().await
    }

    /// Syncs everything and closes the store. Later writes return `Unavailable`.
    async fn close(&self) -> Result<()> {
        found(self.below())?.close().await
    }

    /// The health of the store, as a watch channel.
    fn health(&self) -> watch::Receiver<Health> {
        match self.below() {
            Some(store) => store.health(),
            None => watch::Sender::new(Health::Well).subscribe(),
        }
    }

    /// The newest time among the stored records, if the store knows it without a search.
    fn newest(&self) -> Option<Timestamp> {
        self.below()?.newest()
    }

    /// Statistics of the store.
    fn stats(&self) -> Stats {
        self.below().map(Store::stats).unwrap_or_default()
    }

    /// The other processes that share the store; `None` if it belongs to one process.
    fn cluster(&self) -> Option<&dyn Cluster> {
        self.below()?.cluster()
    }

    /// The interface for copying it to another store; `None` if it cannot be copied.
    fn transfer(&self) -> Option<&dyn Transfer> {
        None
    }
}

impl dyn Store {
    /// Whether other processes may use the store at the same time.
    pub fn is_shared(&self) -> bool {
        self.cluster().is_some()
    }

    /// The other processes that may write a stream; `None` if the stream belongs to this process.
    pub fn cluster_of(&self, stream: Uuid) -> Option<&dyn Cluster> {
        match self.at(stream) {
            Some(store) => store.cluster_of(stream),
            None => self.cluster(),
        }
    }
}

/// The store below, or an error.
fn found(store: Option<&dyn Store>) -> Result<&dyn Store> {
    store.ok_or_else(|| JournalError::new(ErrorKind::Unsupported, "this store cannot do that"))
}
