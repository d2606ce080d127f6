//! Translates journal errors into faults.

use capstan_journal::{ErrorKind, JournalError};
use capstan_protocol::fault::Cause;
use capstan_protocol::{Fault, FaultKind};

use super::limits;

/// Seconds after which a client should try a recovering journal again.
pub const JOURNAL_RETRY: f64 = 2.0;
pub(crate) const NEARLY_FULL: &str = "The journal's disk is nearly full, so no new run is taken.";

/// Translates a journal error. If the journal cannot serve, the client learns only that it is
/// unavailable; the log has the reason.
pub fn journal_fault(error: JournalError) -> Fault {
    let unavailable = || {
        let cause = Cause { error_type: "JournalError".into(), chain: vec![error.to_string()] };
        Fault::new(FaultKind::JournalUnavailable).with_cause(cause)
    };
    match error.kind() {
        // The caller has just found the run, so it was deleted in between.
        ErrorKind::Expired | ErrorKind::NotFound => Fault::new(FaultKind::StreamExpired),
        ErrorKind::Refused(refused) => limits::refusal(refused),
        ErrorKind::Answered => Fault::new(FaultKind::InterruptNotOpen),
        ErrorKind::Full => unavailable().with_message(NEARLY_FULL).with_retry_after(JOURNAL_RETRY),
        ErrorKind::Unavailable => unavailable().with_retry_after(JOURNAL_RETRY),
        ErrorKind::Corrupt => {
            tracing::error!(%error, "the journal is damaged in a place that was asked for");
            Fault::new(FaultKind::StreamLost)
        }
        ErrorKind::Broken
        | ErrorKind::Fenced
        | ErrorKind::OutOfOrder
        | ErrorKind::Locked
        | ErrorKind::Unsupported => unavailable(),
    }
}
