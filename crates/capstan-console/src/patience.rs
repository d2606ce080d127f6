//! Ends a query of the console with an error if the store's server does not answer. Readers and new
//! runs wait until the server is back. A console page reports the outage instead.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::{Fault, FaultKind};
use http::Method;

use crate::Console;
use capstan_engine::faults::JOURNAL_RETRY;
use capstan_kit::refusal::Refusal;

/// Twice the usual interval between heartbeats of the server.
const PATIENCE: Duration = Duration::from_secs(2);
const AWAY: &str = "The journal's database does not answer. Check that it runs and that this \
 gateway can reach it, then try again.";

/// A layer that answers a query, or reports that the store is unreachable. Requests that change
/// something have no timeout.
pub async fn limit(State(console): State<Console>, request: Request, next: Next) -> Response {
    if request.method() != Method::GET {
        return next.run(request).await;
    }
    // The query must see everything that happened before it.
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

/// Returns when the store's server has been silent for the timeout. A slow server is not silent.
async fn lose(console: &Console) {
    let mut left = PATIENCE;
    while !left.is_zero() {
        tokio::time::sleep(left).await;
        let Some(shared) = console.engine.store().stats().shared else {
            return std::future::pending().await;
        };
        left = PATIENCE.saturating_sub(shared.silent_for);
    }
}
