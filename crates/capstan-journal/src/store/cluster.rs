//! What the processes that share a store tell each other through it.
//!
//! Each default is what holds where only one process uses the store, so a store that is not shared
//! implements nothing of it.

use std::time::Duration;

use async_trait::async_trait;
use capstan_protocol::Timestamp;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::Layer;
use crate::{
    BreakerNotice, Elsewhere, Home, Load, News, Noted, ReplicaState, Result, Tenure, Watch,
};

/// Replicas and their leases, notifications, stops, readers, breakers, and where tenants live of
/// whom nothing is stored.
#[async_trait]
pub trait Cluster: Layer {
    /// Whether other processes may use the store at the same time.
    fn is_shared(&self) -> bool {
        self.below().is_some_and(|store| store.is_shared())
    }

    /// What others write to the streams that are watched, as it becomes known. Whoever asks first
    /// gets it.
    fn news(&self) -> Option<mpsc::Receiver<News>> {
        self.below()?.news()
    }

    /// Follows a stream that others may write, for as long as what is returned lives.
    fn watch(&self, stream: Uuid) -> Option<Watch> {
        self.at(stream)?.watch(stream)
    }

    /// For how long the runs that were claimed, armed or taken over here are this process's.
    fn tenure(&self) -> Tenure {
        match self.below() {
            Some(store) => store.tenure(),
            None => watch::Sender::new(0).subscribe(),
        }
    }

    /// For how long a run is this process's; as `tenure`, but what lives in memory is nobody
    /// else's.
    fn tenure_of(&self, stream: Uuid) -> Tenure {
        match self.at(stream) {
            Some(store) => store.tenure_of(stream),
            None => self.tenure(),
        }
    }

    /// Asks whoever works on the run to stop; false if it does not run this attempt. It may have
    /// been asked although this fails, and asking twice does no harm.
    async fn ask_stop(&self, stream: Uuid, attempt: u32) -> Result<bool> {
        match self.at(stream) {
            Some(store) => store.ask_stop(stream, attempt).await,
            None => Ok(false),
        }
    }

    /// Whether somebody has asked that this run stops.
    async fn is_stop_asked(&self, stream: Uuid) -> Result<bool> {
        match self.at(stream) {
            Some(store) => store.is_stop_asked(stream).await,
            None => Ok(false),
        }
    }

    /// The runs of this process that somebody has asked to stop, perhaps more than once. Whoever
    /// asks first gets it.
    fn stops(&self) -> Option<mpsc::Receiver<Uuid>> {
        self.below()?.stops()
    }

    /// Lets the others know that somebody reads this run here, or nobody any more. Told for runs
    /// that only their readers look after.
    fn mark_read(&self, stream: Uuid, is_read: bool) {
        if let Some(store) = self.at(stream) {
            store.mark_read(stream, is_read);
        }
    }

    /// Marks such a run as read here, unless somebody reads it in another process: of several that
    /// ask at once, one gets it.
    async fn take_unread(&self, stream: Uuid) -> Result<bool> {
        match self.at(stream) {
            Some(store) => store.take_unread(stream).await,
            None => Ok(true),
        }
    }

    /// Who reads such a run in other processes, and until when they expect its tenant back.
    async fn elsewhere(&self, stream: Uuid, tenant: &str) -> Result<Elsewhere> {
        match self.at(stream) {
            Some(store) => store.elsewhere(stream, tenant).await,
            None => Ok(Elsewhere::default()),
        }
    }

    /// Lets the others know that somebody of this tenant was told to come back after so long.
    fn expect(&self, tenant: &str, within: Duration) {
        if let Some(store) = self.below() {
            store.expect(tenant, within);
        }
    }

    /// Where a tenant lives of whom nothing is stored; it moves in here if it lives nowhere and
    /// may.
    async fn home(&self, tenant: &str, may_move_in: bool) -> Result<Home> {
        match self.below() {
            Some(store) => store.home(tenant, may_move_in).await,
            None => Ok(Home::Here),
        }
    }

    /// Notes that a key of such a tenant is taken by a stream of which nothing is stored. The key
    /// is a hash.
    async fn note(&self, tenant: &str, key: &str, stream: Uuid, now: Timestamp) -> Result<Noted> {
        match self.below() {
            Some(store) => store.note(tenant, key, stream, now).await,
            None => Ok(Noted::New),
        }
    }

    /// Takes back a note: the run was not begun.
    async fn unnote(&self, tenant: &str, key: &str, stream: Uuid) -> Result<()> {
        match self.below() {
            Some(store) => store.unnote(tenant, key, stream).await,
            None => Ok(()),
        }
    }

    /// What all processes know of upstreams that fail.
    async fn breakers(&self) -> Result<Vec<BreakerNotice>> {
        match self.below() {
            Some(store) => store.breakers().await,
            None => Ok(Vec::new()),
        }
    }

    /// Tells the others.
    async fn set_breaker(&self, notice: &BreakerNotice) -> Result<()> {
        match self.below() {
            Some(store) => store.set_breaker(notice).await,
            None => Ok(()),
        }
    }

    /// Whether the store asks for a newer build than this one, which has to leave.
    fn outdated(&self) -> watch::Receiver<bool> {
        match self.below() {
            Some(store) => store.outdated(),
            None => watch::Sender::new(false).subscribe(),
        }
    }

    /// This process's name among those that use the store.
    fn replica_name(&self) -> Option<&str> {
        self.below()?.replica_name()
    }

    /// Who uses the store.
    async fn replicas(&self) -> Result<Vec<ReplicaState>> {
        match self.below() {
            Some(store) => store.replicas().await,
            None => Ok(Vec::new()),
        }
    }

    /// Lets the others know what this process has to do, with its next sign of life.
    fn set_load(&self, load: Load) {
        if let Some(store) = self.below() {
            store.set_load(load);
        }
    }

    /// Lets the others know that this process takes no new runs.
    fn drain(&self) {
        if let Some(store) = self.below() {
            store.drain();
        }
    }
}
