//! Processes that share a journal.

use std::time::Duration;

/// What a process is among those that share a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its name, for whoever looks at the list: the machine's, or the pod's.
    pub name: String,
    /// Where the others reach it, if they do.
    pub url: Option<String>,
    /// After so long without a sign of life others take over its runs.
    pub lease: Duration,
    /// Where to listen for what the others tell, if a pooler stands before the database.
    pub listen_url: Option<String>,
}

impl Replica {
    /// The lease of a process that says nothing else.
    pub const LEASE: Duration = Duration::from_secs(10);
}

impl Default for Replica {
    fn default() -> Self {
        Self { name: "capstan".into(), url: None, lease: Self::LEASE, listen_url: None }
    }
}

/// A process as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaState {
    /// By which its lease is known: another one for every lease.
    pub id: uuid::Uuid,
    /// Its name.
    pub name: String,
    /// Where the others reach it, if they do.
    pub url: Option<String>,
    /// Its version.
    pub version: String,
    /// How it stands.
    pub standing: Standing,
    /// Whether it is the one who answers.
    pub is_self: bool,
    /// For how long it has had its lease.
    pub age: Duration,
    /// How long ago it gave its last sign of life.
    pub silent_for: Duration,
    /// How many runs it works on.
    pub runs: u64,
    /// What else it has to do, if its build tells.
    pub load: Option<Load>,
}

/// What a process has to do beside its runs, as it tells the others now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Responses that somebody reads from it.
    pub responses: u64,
    /// 95 in a hundred of its latest appends took no longer; nothing if there was none.
    pub append_p95: Option<Duration>,
}

/// Whether a process takes runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Live,
    /// It ends those that it has.
    Draining,
    /// Its lease is over, and others take over its runs.
    Gone,
}

/// Where a tenant lives of whom nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Home {
    /// In this process's memory.
    Here,
    /// In another's.
    Elsewhere(Peer),
    /// Nowhere: the process that had it is gone, or nobody ever asked.
    Nowhere,
}

/// Another process, as far as it matters to reach it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// By which its lease is known.
    pub id: uuid::Uuid,
    /// Its name.
    pub name: String,
    /// Where it is reached, if it said so.
    pub url: Option<String>,
}

/// Whether a key is noted as taken by a run of which nothing is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It is now.
    New,
    /// It was, by this stream.
    Taken(uuid::Uuid),
}

/// What a process has found out of an upstream, for the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerNotice {
    /// Its name.
    pub upstream: String,
    /// How often in a row it was left alone for a while; 0 if it is well.
    pub opened: u32,
    /// For how long it is left alone from now on.
    pub left: Duration,
    /// Another one for every change.
    pub change: uuid::Uuid,
}

/// Who reads a run in the other processes that share the store, by the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Elsewhere {
    /// Somebody does, in a process that lives.
    pub is_read: bool,
    /// For how long nobody has, if anybody did.
    pub unread_for: Option<Duration>,
    /// How long it is until somebody of its tenant is to be back who was told to wait.
    pub expected: Duration,
}
