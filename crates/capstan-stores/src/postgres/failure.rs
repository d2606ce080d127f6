//! Why a statement failed, and what may have become of it.

use std::error::Error as _;

use capstan_journal::{ErrorKind, JournalError};
use tokio_postgres::error::SqlState;

/// Why a statement was not carried out, or is not known to have been.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The connection is gone: it may have been carried out or not.
    Unknown,
    /// No answer has come for too long: it may have been carried out or not, or be under way.
    Silent,
    /// It was not carried out, and may be tried again.
    Again,
    /// What it would have inserted is there.
    Exists,
    /// It was not carried out, and never will be.
    Never,
}

impl FailureKind {
    /// Whether the connection is of no use any more, and what was asked may have been done.
    pub(super) fn is_unsure(self) -> bool {
        matches!(self, Self::Unknown | Self::Silent)
    }
}

impl Failure {
    pub(super) fn odd(message: &str) -> Self {
        Self { kind: FailureKind::Never, message: message.to_owned() }
    }

    /// Something that mends itself.
    pub(super) fn again(message: &str) -> Self {
        Self { kind: FailureKind::Again, message: message.to_owned() }
    }

    /// Somebody else's patience is over.
    pub(super) fn silent() -> Self {
        Self { kind: FailureKind::Silent, message: "it does not answer".into() }
    }

    /// For a caller outside. The server's words may hold data, so they are for the log.
    pub(super) fn into_error(self) -> JournalError {
        let kind = match self.kind {
            FailureKind::Unknown
            | FailureKind::Silent
            | FailureKind::Again
            | FailureKind::Exists => ErrorKind::Unavailable,
            FailureKind::Never => ErrorKind::Unsupported,
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
        let Some(told) = error.as_db_error() else {
            // Down to the operating system's own words.
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            let is_ours = error.to_string().starts_with("error serializing");
            let kind = if is_ours { FailureKind::Never } else { FailureKind::Unknown };
            return Self { kind, message: format!("{error}{cause}") };
        };
        Self {
            kind: kind_of(told.code()),
            message: format!("{} ({})", told.message(), told.code().code()),
        }
    }
}

fn kind_of(code: &SqlState) -> FailureKind {
    if *code == SqlState::UNIQUE_VIOLATION {
        return FailureKind::Exists;
    }
    match code.code().get(..2).unwrap_or_default() {
        // The server is stopping, or has lost the connection: it may have committed.
        "57" | "08" => FailureKind::Unknown,
        // Data that it cannot take, statements that it does not know, what it does not allow.
        "22" | "23" | "42" | "0A" | "28" | "3D" | "3F" | "54" => FailureKind::Never,
        _ => FailureKind::Again,
    }
}
