//! The error type of the stores. Callers decide by `kind()`; the text is for logs.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::Refused;

/// The kind of a failure, which is all that a caller may depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The store cannot read or write at the moment: disk full, I/O error, or closed. A retry may
    /// help.
    Unavailable,
    /// The store accepts no more writes. Only a restart can fix it.
    Broken,
    /// The disk is nearly full. New runs are refused, and open ones go on.
    Full,
    /// The run is no longer in the expected state or attempt.
    Fenced,
    /// The `seq` of a frame is not the last one plus one.
    OutOfOrder,
    /// Another process has locked the folder.
    Locked,
    /// Stored data cannot be read.
    Corrupt,
    /// The stream does not exist.
    NotFound,
    /// The key was used, and retention has deleted its stream.
    Expired,
    /// The interrupt that the claim answers does not exist or has an answer already.
    Answered,
    /// The claim exceeds its tenant's quota.
    Refused(Refused),
    /// This build does not support the URL, the format version or the size.
    Unsupported,
}

/// The result of an operation of the journal.
pub type Result<T, E = JournalError> = std::result::Result<T, E>;

/// A failed operation of the journal.
#[derive(Debug, Clone)]
pub struct JournalError {
    kind: ErrorKind,
    message: String,
    // Shared, because one failed commit answers all of its callers.
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl JournalError {
    /// Creates an error without a cause. It is public because stores may be in other crates.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for JournalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
