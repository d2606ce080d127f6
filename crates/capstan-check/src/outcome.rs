//! The outcome of a check.

use crate::evidence::Evidence;

/// Passed, or not.
pub(crate) type Outcome = Result<(), NotPassed>;

/// Why a check did not pass.
#[derive(Debug, Clone)]
pub(crate) enum NotPassed {
    /// The promise is broken.
    Broken(Evidence),
    /// It cannot be decided here.
    Skip(String),
}

impl NotPassed {
    pub(crate) fn skip(reason: impl Into<String>) -> Self {
        Self::Skip(reason.into())
    }
}
