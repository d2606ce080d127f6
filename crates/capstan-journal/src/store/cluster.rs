//! What the processes that share a store tell each other through it.
//!
//! The defaults are right for a store of one process, so such a store implements none of these
//! methods.

use std::time::Duration;

use async_trait::async_trait;
use capstan_protocol::Timestamp;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::Layer;
use crate::{
    BreakerNotice, Elsewhere, Home, Load, News, Noted, ReplicaState, Result, Tenure, Watch,
};

/// Replicas and their leases, notifications, stop requests, readers, circuit breakers, and the
/// hosts of `no_store` tenants.
#[async_trait]
pub trait Cluster: Layer {
    /// Whether other processes may use the store at the same time.
    fn is_shared(&self) -> bool {
        self.below().is_some_and(|store| store.is_shared())
    }

    /// Notifications about watched streams that other processes write. Only the first call returns
    /// the receiver.
    fn news(&self) -> Option<mpsc::Receiver<News>> {
        self.below()?.news()
    }

    /// Follows a stream that other processes may write, for as long as the returned value lives.
    fn watch(&self, stream: Uuid) -> Option<Watch> {
        self.at(stream)?.watch(stream)
    }

    /// Changes when this process loses its lease, and with it the runs that it owns.
    fn tenure(&self) -> Tenure {
        match self.below() {
            Some(store) => store.tenure(),
            None => watch::Sender::new(0).subscribe(),
        }
    }

    /// The same for one run. A run in memory cannot be lost.
    fn tenure_of(&self, stream: Uuid) -> Tenure {
        match self.at(stream) {
            Some(store) => store.tenure_of(stream),
            None => self.tenure(),
        }
    }

    /// Asks the owner of a run to stop it; false if the run is not running this attempt. The
    /// request may be stored even if this call fails. A second request does no harm.
    async fn ask_stop(&self, stream: Uuid, attempt: u32) -> Result<bool> {
        match self.at(stream) {
            Some(store) => store.ask_stop(stream, attempt).await,
            None => Ok(false),
        }
    }

    /// Whether the run has a stop request.
    async fn is_stop_asked(&self, stream: Uuid) -> Result<bool> {
        match self.at(stream) {
            Some(store) => store.is_stop_asked(stream).await,
            None => Ok(false),
        }
    }

    /// Stop requests for runs of this process, possibly repeated. Only the first call returns the
    /// receiver.
    fn stops(&self) -> Option<mpsc::Receiver<Uuid>> {
        self.below()?.stops()
    }

    /// Announces that the run has a reader in this process, or has none any more. Used for runs
    /// that end without readers.
    fn mark_read(&self, stream: Uuid, is_read: bool) {
        if let Some(store) = self.at(stream) {
            store.mark_read(stream, is_read);
        }
    }

    /// Marks a run as read by this process, unless another process has a reader. Of concurrent
    /// calls one succeeds.
    async fn take_unread(&self, stream: Uuid) -> Result<bool> {
        match self.at(stream) {
            Some(store) => store.take_unread(stream).await,
            None => Ok(true),
        }
    }

    /// The readers of a run in other processes, and when its tenant's clients are expected back.
    async fn elsewhere(&self, stream: Uuid, tenant: &str) -> Result<Elsewhere> {
        match self.at(stream) {
            Some(store) => store.elsewhere(stream, tenant).await,
            None => Ok(Elsewhere::default()),
        }
    }

    /// Announces that a client of this tenant was told to retry after this delay.
    fn expect(&self, tenant: &str, within: Duration) {
        if let Some(store) = self.below() {
            store.expect(tenant, within);
        }
    }

    /// The host of a `no_store` tenant. If it has none, this process becomes its host if
    /// `may_move_in`.
    async fn home(&self, tenant: &str, may_move_in: bool) -> Result<Home> {
        match self.below() {
            Some(store) => store.home(tenant, may_move_in).await,
            None => Ok(Home::Here),
        }
    }

    /// Records that a stream of a `no_store` tenant uses a key. `key` is a hash.
    async fn note(&self, tenant: &str, key: &str, stream: Uuid, now: Timestamp) -> Result<Noted> {
        match self.below() {
            Some(store) => store.note(tenant, key, stream, now).await,
            None => Ok(Noted::New),
        }
    }

    /// Removes such a record, because the run did not start.
    async fn unnote(&self, tenant: &str, key: &str, stream: Uuid) -> Result<()> {
        match self.below() {
            Some(store) => store.unnote(tenant, key, stream).await,
            None => Ok(()),
        }
    }

    /// The circuit breakers of all processes.
    async fn breakers(&self) -> Result<Vec<BreakerNotice>> {
        match self.below() {
            Some(store) => store.breakers().await,
            None => Ok(Vec::new()),
        }
    }

    /// Shares a breaker's state with the other processes.
    async fn set_breaker(&self, notice: &BreakerNotice) -> Result<()> {
        match self.below() {
            Some(store) => store.set_breaker(notice).await,
            None => Ok(()),
        }
    }

    /// Whether the store requires a newer build, so that this process has to stop.
    fn outdated(&self) -> watch::Receiver<bool> {
        match self.below() {
            Some(store) => store.outdated(),
            None => watch::Sender::new(false).subscribe(),
        }
    }

    /// This process's name as a replica.
    fn replica_name(&self) -> Option<&str> {
        self.below()?.replica_name()
    }

    /// The replicas that use the store.
    async fn replicas(&self) -> Result<Vec<ReplicaState>> {
        match self.below() {
            Some(store) => store.replicas().await,
            None => Ok(Vec::new()),
        }
    }

    /// Sets the load that the next heartbeat reports.
    fn set_load(&self, load: Load) {
        if let Some(store) = self.below() {
            store.set_load(load);
        }
    }

    /// Announces that this process accepts no new runs.
    fn drain(&self) {
        if let Some(store) = self.below() {
            store.drain();
        }
    }
}
