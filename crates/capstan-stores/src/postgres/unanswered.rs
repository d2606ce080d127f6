//! Questions that a server has not answered yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::failure::Failure;

/// How many questions a server has not answered yet, connections included.
#[derive(Debug, Clone, Default)]
pub(super) struct Unanswered(Arc<AtomicUsize>);

impl Unanswered {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// What the server answers, if it answers.
    pub(super) async fn within<T>(
        &self,
        patience: Duration,
        asking: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let _one = Question(&self.0);
        match tokio::time::timeout(patience, asking).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Failure::silent()),
        }
    }
}

/// One of them, until it is answered or nobody wants to know any more.
struct Question<'a>(&'a AtomicUsize);

impl Drop for Question<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
