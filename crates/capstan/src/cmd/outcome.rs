//! The exit code of a conversation.

use std::process::ExitCode;

use capstan_client::CapError;

/// The usual exit code of a program that Ctrl-C ended.
pub(super) const INTERRUPTED: u8 = 130;

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Complete,
    Failed,
    NoConnection,
    NoProtocol,
    /// Ctrl-C.
    Interrupted,
}

impl Outcome {
    pub(super) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Complete => 0,
            Self::Failed => 1,
            Self::NoConnection => 3,
            Self::NoProtocol => 4,
            Self::Interrupted => INTERRUPTED,
        })
    }

    pub(super) fn of(error: &CapError) -> Self {
        match error {
            CapError::Connection(_) => Self::NoConnection,
            CapError::Protocol(_) => Self::NoProtocol,
            CapError::Runtime(_) => Self::Failed,
        }
    }
}
