//! Traits that other crates implement for the engine: the protocols of requests, the rules of
//! tenants, and the records that must exist before a run starts.

use capstan_agent::async_trait;
use capstan_journal::{Quota, Retention, Run};
use capstan_protocol::Fault;
use uuid::Uuid;

use super::ask::Ask;
use super::settings::Limits;

/// The protocols in which clients request runs.
pub trait Protocols: Send + Sync + 'static {
    /// Decodes the body of a run that came in this protocol; `None` if the protocol is unknown.
    fn decode(&self, protocol: &str, body: &[u8]) -> Option<Result<Ask, Fault>>;

    /// Whether a run is stopped after it had no reader for a while. True if its client cannot come
    /// back for it.
    fn ends_unread(&self, run: &Run) -> bool;

    /// Whether no request can name this run. Then a repeated request may attach to it if it has no
    /// reader.
    fn is_keyless(&self, run: &Run) -> bool;

    /// Drops caches of a stream that was erased.
    fn forget(&self, stream: Uuid);
}

/// The rules of single tenants.
pub trait TenantRules: Send + Sync + 'static {
    /// The quota of a tenant. The journal checks it in a claim.
    fn quota(&self, tenant: &str, limits: &Limits) -> Quota;

    /// The retention rules, given the configured ones.
    fn retention(&self, usual: &Retention, limits: &Limits) -> Retention;
}

/// Stores records that must exist before a run starts, so that a crash loses nothing. For example:
/// where to deliver the end of the run. A second call for the same run has no effect.
#[async_trait]
pub trait BeforeWork: Send + Sync + 'static {
    /// Whether this run needs a record.
    fn concerns(&self, run: &Run) -> bool;

    /// Stores the record.
    async fn prepare(&self, run: &Run, ask: &Ask);
}

/// No protocols: stored bodies cannot be decoded.
impl Protocols for () {
    fn decode(&self, _: &str, _: &[u8]) -> Option<Result<Ask, Fault>> {
        None
    }

    fn ends_unread(&self, _: &Run) -> bool {
        false
    }

    fn is_keyless(&self, _: &Run) -> bool {
        false
    }

    fn forget(&self, _: Uuid) {}
}

/// The same rules for all tenants.
impl TenantRules for () {
    fn quota(&self, _: &str, _: &Limits) -> Quota {
        Quota::UNLIMITED
    }

    fn retention(&self, usual: &Retention, _: &Limits) -> Retention {
        usual.clone()
    }
}

/// No records.
#[async_trait]
impl BeforeWork for () {
    fn concerns(&self, _: &Run) -> bool {
        false
    }

    async fn prepare(&self, _: &Run, _: &Ask) {}
}
