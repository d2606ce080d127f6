//! What a check or a repair of a journal found.

use std::fmt;
use std::path::PathBuf;

/// Something in a journal's folder that is not what was written there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// Where in the file.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}: {}", self.file.display(), self.offset, self.what)
    }
}

/// What a [`check`](crate::check) or a [`repair`](crate::repair) found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Files of packets, records and turns.
    pub segments: u64,
    /// Runs that are kept, and sessions.
    pub streams: u64,
    /// Sessions that are kept.
    pub sessions: u64,
    /// What all files take.
    pub bytes: u64,
    /// Bytes at the end of the log that a crash left half written; an opening drops them.
    pub torn_bytes: u64,
    /// What is damaged. A journal with any of it does not open, unless it is in packets, bodies and
    /// turns alone.
    pub damage: Vec<Damage>,
    /// Runs of which something is missing: their readers are told `stream_lost`.
    pub lost_streams: Vec<uuid::Uuid>,
    /// Where a repair put what it dropped.
    pub aside: Option<PathBuf>,
}
