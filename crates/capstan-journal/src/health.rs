//! How a store feels: what readiness and a supervisor go by.

/// Whether a store takes writes. What it already holds can be read in every state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Health {
    /// It takes writes.
    #[default]
    Well,
    /// It takes no writes for now and tries by itself to mend that; why.
    Unavailable(String),
    /// It takes no writes, and only a new process can mend that; why.
    Broken(String),
}

/// What a store knows of itself, for metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of its files; 0 if it has none.
    pub disk_bytes: u64,
    /// Bytes of them that are needed.
    pub live_bytes: u64,
    /// Files that hold streams.
    pub segments: u64,
    /// Streams that are kept.
    pub streams: u64,
    /// Pieces that turned out to be damaged since the store was opened.
    pub damaged: u64,
    /// Whether new runs are refused because the disk is nearly full.
    pub is_low_on_space: bool,
    /// What it is among those that share the store; nothing where nobody does.
    pub shared: Option<SharedStats>,
}

/// What a process is among those that share a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedStats {
    /// Runs that this process works on.
    pub runs: u64,
    /// Other processes that live.
    pub peers: u64,
    /// How long ago this process gave its last sign of life.
    pub silent_for: std::time::Duration,
    /// Streams of others that somebody here follows.
    pub followed: u64,
    /// Questions that the database has not answered yet.
    pub unanswered: u64,
}
