//! What the processes that share a store tell each other through it.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::{
    BreakerState, LeaseEpoch, Load, Notification, RemoteReaders, ReplicaState, Result, TenantHosts,
    Watch,
};

/// Replicas and their leases, notifications, stop requests, readers, and circuit breakers. Only a
/// store that several processes share has one.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// Notifications about watched streams that other processes write. Only the first call returns
    /// the receiver.
    fn notifications(&self) -> Option<mpsc::Receiver<Notification>>;

    /// Follows a stream that other processes may write, for as long as the returned value lives.
    fn watch(&self, stream: Uuid) -> Watch;

    /// Changes when this process loses its lease, and with it the runs that it owns.
    fn lease_epoch(&self) -> LeaseEpoch;

    /// Asks the owner of a run to stop it; false if the run is not running this attempt. The
    /// request may be stored even if this call fails. A second request does no harm.
    async fn request_stop(&self, stream: Uuid, attempt: u32) -> Result<bool>;

    /// Whether the run has a stop request.
    async fn has_stop_request(&self, stream: Uuid) -> Result<bool>;

    /// Stop requests for runs of this process, possibly repeated. Only the first call returns the
    /// receiver.
    fn stop_requests(&self) -> Option<mpsc::Receiver<Uuid>>;

    /// Announces that the run has a reader in this process, or has none any more. Used for runs
    /// that end without readers.
    fn mark_read(&self, stream: Uuid, is_read: bool);

    /// Marks a run as read by this process, unless another process has a reader. Of concurrent
    /// calls one succeeds.
    async fn take_unread(&self, stream: Uuid) -> Result<bool>;

    /// The readers of a run in other processes, and when its tenant's clients are expected back.
    async fn remote_readers(&self, stream: Uuid, tenant: &str) -> Result<RemoteReaders>;

    /// Announces that a client of this tenant was told to retry after this delay.
    fn expect_clients(&self, tenant: &str, within: Duration);

    /// The circuit breakers of all processes.
    async fn breakers(&self) -> Result<Vec<BreakerState>>;

    /// Shares a breaker's state with the other processes.
    async fn set_breaker(&self, state: &BreakerState) -> Result<()>;

    /// Whether the store requires a newer build, so that this process has to stop.
    fn outdated(&self) -> watch::Receiver<bool>;

    /// This process's name as a replica.
    fn replica_name(&self) -> &str;

    /// The replicas that use the store.
    async fn replicas(&self) -> Result<Vec<ReplicaState>>;

    /// Sets the load that the next heartbeat reports.
    fn set_load(&self, load: Load);

    /// Announces that this process accepts no new runs.
    fn drain(&self);

    /// The hosts of `no_store` tenants.
    fn tenant_hosts(&self) -> &dyn TenantHosts;
}
