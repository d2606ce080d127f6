//! The key of a run whose client names its session. No request can name the run by it; the gateway
//! reads from it what it has to know of the first request.

use capstan_journal::Run;

use crate::face::repeats;

const SESSION: &str = "session\u{b7}";
/// The finish reason of an answer that reached its `max_tokens`.
const LENGTH: &str = "length";

/// A new key for a request of a session.
pub(super) fn key(max_tokens: Option<u64>) -> String {
    repeats::new_key(&mark(max_tokens))
}

fn mark(max_tokens: Option<u64>) -> String {
    format!("{SESSION}{}\u{b7}", max_tokens.unwrap_or(0))
}

/// Whether the client that began the run named its session.
pub(super) fn is_of_session(run: &Run) -> bool {
    repeats::mark_of(run).is_some_and(|mark| mark.starts_with(SESSION))
}

/// Whether an answer that ended at its `max_tokens` has too few of them for this request.
pub(super) fn is_too_short(run: &Run, max_tokens: Option<u64>) -> bool {
    let has_same = || repeats::mark_of(run).is_some_and(|own| own.starts_with(&mark(max_tokens)));
    is_of_session(run) && run.reason.as_deref() == Some(LENGTH) && !has_same()
}
