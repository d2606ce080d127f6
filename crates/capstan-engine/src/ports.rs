//! What the engine needs of others, as traits: the protocols in which runs are asked for, the rules
//! of tenants, and what must be on record before anybody works on a run.

use capstan_agent::async_trait;
use capstan_journal::{Quota, Retention, Run};
use capstan_protocol::Fault;
use uuid::Uuid;

use super::ask::Ask;
use super::settings::Limits;

/// The protocols in which runs are asked for.
pub trait Protocols: Send + Sync + 'static {
    /// Reads the body of a run that was asked for in this protocol; `None` if nobody speaks it.
    fn decode(&self, protocol: &str, body: &[u8]) -> Option<Result<Ask, Fault>>;

    /// Whether a run is stopped when nobody has read it for a while: nobody can come back for it.
    fn ends_unread(&self, run: &Run) -> bool;

    /// Whether no request can name a run, so that who repeats it may have it if nobody reads it.
    fn is_keyless(&self, run: &Run) -> bool;

    /// A stream was erased: nothing of it may be remembered.
    fn forget(&self, stream: Uuid);
}

/// What holds for single tenants.
pub trait TenantRules: Send + Sync + 'static {
    /// What a tenant may have, as the journal checks it in a claim.
    fn quota(&self, tenant: &str, limits: &Limits) -> Quota;

    /// What is kept, and how long.
    fn retention(&self, usual: &Retention, limits: &Limits) -> Retention;
}

/// What must be on record before anybody works on a run, so that a crash in between loses nothing:
/// for instance that its end is to be delivered to somebody. Asked again for the same run, it does
/// nothing more.
#[async_trait]
pub trait BeforeWork: Send + Sync + 'static {
    /// Whether this run is of any concern.
    fn concerns(&self, run: &Run) -> bool;

    /// Puts it on record.
    async fn prepare(&self, run: &Run, ask: &Ask);
}

/// No protocol: nobody asks for runs by a stored body.
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

/// The same for all tenants.
impl TenantRules for () {
    fn quota(&self, _: &str, _: &Limits) -> Quota {
        Quota::UNLIMITED
    }

    fn retention(&self, usual: &Retention, _: &Limits) -> Retention {
        usual.clone()
    }
}

/// Nothing.
#[async_trait]
impl BeforeWork for () {
    fn concerns(&self, _: &Run) -> bool {
        false
    }

    async fn prepare(&self, _: &Run, _: &Ask) {}
}
