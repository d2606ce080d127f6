//! How long a question of the console waits for a store whose server is away. Readers and starts
//! are worth waiting for until it is back; whoever looks at an empty page would rather know.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::{Fault, FaultKind};
use http::Method;

use crate::Console;
use capstan_engine::faults::JOURNAL_RETRY;
use capstan_kit::refusal::Refusal;

/// Twice as long as the server is without a sign of life while all is well.
const PATIENCE: Duration = Duration::from_secs(2);
const AWAY: &str = "The journal's database does not answer. See whether it runs and can be \
 reached from this gateway, then ask again.";

/// Answers what is asked, or that the store is away. What changes something is answered once it is
/// done.
pub async fn limit(State(console): State<Console>, request: Request, next: Next) -> Response {
    if request.method() != Method::GET {
        return next.run(request).await;
    }
    // It is told what has happened before it asked.
    console.engine.observed().await;
    tokio::select! {
        biased;
        response = next.run(request) => response,
        () = lose(&console) => {
            let fault = Fault::new(FaultKind::JournalUnavailable);
            Refusal::from(fault.with_message(AWAY).with_retry_after(JOURNAL_RETRY)).into_response()
        }
    }
}

/// Returns when the store's server has been silent for so long. One that answers slowly is no
/// reason.
async fn lose(console: &Console) {
    let mut left = PATIENCE;
    while !left.is_zero() {
        tokio::time::sleep(left).await;
        let Some(shared) = console.engine.journal.store().stats().shared else {
            return std::future::pending().await;
        };
        left = PATIENCE.saturating_sub(shared.silent_for);
    }
}
