//! The one error of this crate. Callers decide by `kind()`; the text is for logs.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::Refused;

/// What kind of failure this is: all that a caller may decide by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The store cannot write or read now: disk full, I/O error, closed. Trying again may help.
    Unavailable,
    /// The store takes no writes any more, and only a new process can mend that.
    Broken,
    /// The disk is nearly full: no new runs. What is under way goes on.
    Full,
    /// The run is no longer in the state or attempt that the caller writes for.
    Fenced,
    /// The frame's seq does not follow the last one.
    OutOfOrder,
    /// Another process holds the folder.
    Locked,
    /// What is stored cannot be read.
    Corrupt,
    /// There is no such stream.
    NotFound,
    /// The key was claimed once, and its stream was deleted by retention.
    Expired,
    /// What the claim answers is not asked, or not any more.
    Answered,
    /// The claim asks for more than its tenant may have.
    Refused(Refused),
    /// A URL, a format version or a size that this build does not know.
    Unsupported,
}

/// What an operation of the journal comes to.
pub type Result<T, E = JournalError> = std::result::Result<T, E>;

/// A failed operation of the journal.
#[derive(Debug, Clone)]
pub struct JournalError {
    kind: ErrorKind,
    message: String,
    // Shared, because one failed commit answers everybody who was in it.
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl JournalError {
    /// A failure without a cause of its own. Public, because stores may live in other crates.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same failure with what caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What kind of failure this is.
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
