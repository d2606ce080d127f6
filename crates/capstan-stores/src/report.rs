//! The report of a check or a repair of a journal.

use std::fmt;
use std::path::PathBuf;

/// Damaged data in a journal's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// The offset in the file.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}: {}", self.file.display(), self.offset, self.what)
    }
}

/// The result of a [`check`](crate::check) or a [`repair`](crate::repair).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The number of segment files.
    pub segments: u64,
    /// The number of stored runs.
    pub streams: u64,
    /// The number of stored sessions.
    pub sessions: u64,
    /// The size of all files.
    pub bytes: u64,
    /// Bytes at the end of the log that a crash left half written. The next opening drops them.
    pub torn_bytes: u64,
    /// The damage. A journal with damage does not open, unless only packets, bodies and turns are
    /// damaged.
    pub damage: Vec<Damage>,
    /// Runs with losses. Their readers get the fault `stream_lost`.
    pub lost_streams: Vec<uuid::Uuid>,
    /// The folder into which a repair moved damaged files.
    pub aside: Option<PathBuf>,
}
