//! Which process hosts a `no_store` tenant, and which of the tenant's keys are in use.

use async_trait::async_trait;
use capstan_protocol::Timestamp;
use uuid::Uuid;

use crate::Result;

/// All that a shared store does for `no_store` tenants: it routes their requests to one process,
/// and keeps a request from running twice. No content of theirs reaches it.
#[async_trait]
pub trait TenantHosts: Send + Sync {
    /// The host of a tenant. If it has none, this process becomes its host if `may_host`.
    async fn host_of(&self, tenant: &str, may_host: bool) -> Result<TenantHost>;

    /// Records that a stream of the tenant uses a key. `key` is a hash.
    async fn record_key(
        &self,
        tenant: &str,
        key: &str,
        stream: Uuid,
        now: Timestamp,
    ) -> Result<KeyRecord>;

    /// Removes such a record, because the run did not start.
    async fn release_key(&self, tenant: &str, key: &str, stream: Uuid) -> Result<()>;
}

/// The replica that hosts a `no_store` tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TenantHost {
    /// This process.
    Here,
    /// Another process.
    Elsewhere(Peer),
    /// None: its host is gone, or it had none yet.
    Nowhere,
}

/// Another replica, for forwarding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The id of its lease.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Its URL, if it has reported one.
    pub url: Option<String>,
}

/// The result of recording the key of an unstored run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRecord {
    /// The key was free and is now in use.
    New,
    /// The key is in use by this stream.
    InUse(Uuid),
}
