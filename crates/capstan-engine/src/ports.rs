//! Traits that other crates implement for the engine: the protocols of requests, the rules of
//! tenants, the records that must exist before a run starts, and the audit of stops and purges.

use capstan_agent::async_trait;
use capstan_journal::{Quota, Retention, Run};
use capstan_protocol::{ChatMessage, Fault};
use uuid::Uuid;

use super::ask::{Ask, RequestBody};
use super::settings::Limits;

/// The protocols in which clients request runs.
pub trait Protocols: Send + Sync + 'static {
    /// Decodes the body of a run that came in this protocol; `None` if the protocol is unknown.
    fn decode(&self, protocol: &str, body: &RequestBody) -> Option<Result<Ask, Fault>>;

    /// The messages of a body, with the items that its client wrote as native parts before what
    /// they became; `None` if the protocol has no such items.
    fn native_messages(&self, protocol: &str, body: &[u8]) -> Option<Vec<ChatMessage>>;

    /// Whether a run is stopped after it had no reader for a while. True if its client cannot come
    /// back for it.
    fn ends_unread(&self, run: &Run) -> bool;

    /// Whether the run's client asks by itself for the rest of an answer that broke off. Then no
    /// attempt follows one that sent a complete part, and the run waits longer for a reader.
    fn asks_for_rest(&self, run: &Run) -> bool;

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

/// Who asks the engine to stop a run or to erase data. The engine reports the act to it after the
/// act is done, so that the audit records it whichever route was used.
pub trait Requester: Send + Sync {
    /// The act is done.
    fn acted(&self, act: &Act<'_>);
}

/// What the engine did for a requester.
#[derive(Debug, Clone, Copy)]
pub enum Act<'a> {
    /// An open run was stopped.
    Stopped(&'a Run),
    /// A stream and its turn were erased.
    PurgedStream(&'a Run),
    /// A session was erased.
    PurgedSession {
        /// The tenant of the session.
        tenant: &'a str,
        /// The session's name, which a client has chosen.
        session: &'a str,
        /// How many streams were erased with it.
        streams: usize,
    },
}

/// The gateway itself asks, so there is nothing to audit.
pub struct ByGateway;

impl Requester for ByGateway {
    fn acted(&self, _: &Act<'_>) {}
}

/// No protocols: stored bodies cannot be decoded.
impl Protocols for () {
    fn decode(&self, _: &str, _: &RequestBody) -> Option<Result<Ask, Fault>> {
        None
    }

    fn native_messages(&self, _: &str, _: &[u8]) -> Option<Vec<ChatMessage>> {
        None
    }

    fn ends_unread(&self, _: &Run) -> bool {
        false
    }

    fn asks_for_rest(&self, _: &Run) -> bool {
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
