//! Why a statement failed, and whether it may have taken effect.

use std::error::Error as _;

use capstan_journal::{ErrorKind, JournalError};
use tokio_postgres::error::SqlState;

/// The failure of a statement, which may have run all the same.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The connection is lost. The statement may have run.
    Unknown,
    /// The server did not answer in time. The statement may have run, or may still run.
    TimedOut,
    /// The statement did not run, and may be retried.
    Retryable,
    /// The rows to be inserted exist already.
    Exists,
    /// The statement did not run, and a retry would fail as well.
    Permanent,
}

impl FailureKind {
    /// Whether the statement may have run. Its connection cannot be used any more.
    pub(super) fn is_uncertain(self) -> bool {
        matches!(self, Self::Unknown | Self::TimedOut)
    }
}

impl Failure {
    /// A bug or a damaged database.
    pub(super) fn unexpected(message: &str) -> Self {
        Self { kind: FailureKind::Permanent, message: message.to_owned() }
    }

    /// A condition that ends without intervention.
    pub(super) fn retryable(message: &str) -> Self {
        Self { kind: FailureKind::Retryable, message: message.to_owned() }
    }

    /// The server did not answer within the caller's timeout.
    pub(super) fn timed_out() -> Self {
        Self { kind: FailureKind::TimedOut, message: "the server does not answer".into() }
    }

    /// The error for callers of the store. The server's message may contain data, so it belongs
    /// into the log and nowhere else.
    pub(super) fn into_error(self) -> JournalError {
        let kind = match self.kind {
            FailureKind::Unknown
            | FailureKind::TimedOut
            | FailureKind::Retryable
            | FailureKind::Exists => ErrorKind::Unavailable,
            FailureKind::Permanent => ErrorKind::Unsupported,
        };
        JournalError::new(kind, format!("PostgreSQL: {}", self.message))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(reported) = error.as_db_error() else {
            // Includes the operating system's message.
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            let is_ours = error.to_string().starts_with("error serializing");
            let kind = if is_ours { FailureKind::Permanent } else { FailureKind::Unknown };
            return Self { kind, message: format!("{error}{cause}") };
        };
        Self {
            kind: kind_of(reported.code()),
            message: format!("{} ({})", reported.message(), reported.code().code()),
        }
    }
}

fn kind_of(code: &SqlState) -> FailureKind {
    if *code == SqlState::UNIQUE_VIOLATION {
        return FailureKind::Exists;
    }
    match code.code().get(..2).unwrap_or_default() {
        // The server is stopping, or has lost the connection. The statement may have committed.
        "57" | "08" => FailureKind::Unknown,
        // Invalid data, unknown statements, missing permissions.
        "22" | "23" | "42" | "0A" | "28" | "3D" | "3F" | "54" => FailureKind::Permanent,
        _ => FailureKind::Retryable,
    }
}
