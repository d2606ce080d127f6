//! Counts the requests that a server has not answered yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::failure::Failure;

/// The number of requests that a server has not answered yet, including connection attempts.
#[derive(Debug, Clone, Default)]
pub(super) struct Unanswered(Arc<AtomicUsize>);

impl Unanswered {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits for the server's answer, until a timeout.
    pub(super) async fn within<T>(
        &self,
        timeout: Duration,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let _counted = Counted(&self.0);
        match tokio::time::timeout(timeout, request).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Failure::timed_out()),
        }
    }
}

/// Counts a request until it is answered or abandoned.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
