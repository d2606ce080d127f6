//! Ends a query of the console if the store's server does not answer. Readers and new runs wait
//! until it is back; a console page reports it instead.

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
const AWAY: &str = "The journal's database does not answer. See whether it runs and can be \
 reached from this gateway, then ask again.";

/// A layer that answers a query, or that the store is unreachable. Requests that change something
/// are answered when they are done.
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

/// Returns when the store's server has been silent for this long. A slow server is not silent.
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
