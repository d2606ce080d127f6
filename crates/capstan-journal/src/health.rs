//! The health of a store, for readiness checks and supervisors.

/// Whether a store accepts writes. Stored data can be read in every state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Health {
    /// The store accepts writes.
    #[default]
    Well,
    /// The store does not accept writes at the moment, and tries to recover by itself. Has the
    /// reason.
    Unavailable(String),
    /// The store does not accept writes, and only a restart can fix it. Has the reason.
    Broken(String),
}

/// Statistics of a store, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of its files; 0 if it has none.
    pub disk_bytes: u64,
    /// Bytes of these files that are still needed.
    pub live_bytes: u64,
    /// The number of segment files.
    pub segments: u64,
    /// The number of stored streams.
    pub streams: u64,
    /// Damaged records that were found since the store was opened.
    pub damaged: u64,
    /// Whether new runs are refused because the disk is nearly full.
    pub is_low_on_space: bool,
    /// The cluster's statistics; `None` for a store of one process.
    pub shared: Option<SharedStats>,
}

/// Statistics of a process that shares its store with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedStats {
    /// Runs that this process owns.
    pub runs: u64,
    /// Other live processes.
    pub peers: u64,
    /// Time since the last heartbeat of this process.
    pub silent_for: std::time::Duration,
    /// Streams of other processes that have viewers here.
    pub followed: u64,
    /// Queries that the database has not answered yet.
    pub unanswered: u64,
}
