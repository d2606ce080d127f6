//! The processes that share a journal.

use std::time::Duration;

use serde::Serialize;

/// The settings of a process that shares its journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// A name for operators: that of the machine or pod.
    pub name: String,
    /// The URL at which other replicas reach it, if they can.
    pub url: Option<String>,
    /// The lease: after this time without a heartbeat, other replicas take over its runs.
    pub lease: Duration,
    /// The URL of a direct connection for notifications, if a pooler is in front of the database.
    pub listen_url: Option<String>,
}

impl Replica {
    /// The default lease.
    pub const LEASE: Duration = Duration::from_secs(10);
}

impl Default for Replica {
    fn default() -> Self {
        Self { name: "capstan".into(), url: None, lease: Self::LEASE, listen_url: None }
    }
}

/// A replica as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaState {
    /// The id of its lease. Each lease has a new one.
    pub id: uuid::Uuid,
    /// Its name.
    pub name: String,
    /// The URL at which other replicas reach it, if they can.
    pub url: Option<String>,
    /// Its version.
    pub version: String,
    /// Whether it accepts runs.
    pub standing: Standing,
    /// Whether it is the replica that answers this call.
    pub is_self: bool,
    /// Time since it got its lease.
    pub age: Duration,
    /// Time since its last heartbeat.
    pub silent_for: Duration,
    /// How many runs it owns.
    pub runs: u64,
    /// Its other load, if its build reports it.
    pub load: Option<Load>,
}

/// The load of a replica beside its runs, reported with heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Open responses.
    pub responses: u64,
    /// The 95th percentile of its latest appends; `None` if there were none.
    pub append_p95: Option<Duration>,
}

/// Whether a replica accepts runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Standing {
    /// It accepts runs.
    Live,
    /// It shuts down and ends its runs.
    Draining,
    /// Its lease has ended, and other replicas take over its runs.
    Gone,
}

/// A circuit breaker's state, shared with the other replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerState {
    /// The upstream's name.
    pub upstream: String,
    /// How often in a row the breaker opened; 0 if it is closed.
    pub opened: u32,
    /// How long the breaker stays open from now on.
    pub left: Duration,
    /// A new id for every change.
    pub change: uuid::Uuid,
}

/// The readers of a run in other replicas, by the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemoteReaders {
    /// A live replica has a reader of the run.
    pub is_read: bool,
    /// How long the run has had no reader, if it had one before.
    pub unread_for: Option<Duration>,
    /// The time until the tenant's clients are expected back.
    pub expected: Duration,
}
