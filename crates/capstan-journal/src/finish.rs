//! Futures that run to their end even if their caller is dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Awaits `work`. If it is dropped before the end, a task finishes the work.
///
/// A commit cannot be undone, so its wake-up must happen even if the caller was cancelled.
pub(crate) struct Finish<T: Send + 'static> {
    work: Option<Work<T>>,
    is_begun: bool,
}

impl<T: Send + 'static> Finish<T> {
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self { work: Some(Box::pin(work)), is_begun: false }
    }
}

impl<T: Send + 'static> Future for Finish<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        self.is_begun = true;
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let outcome = work.as_mut().poll(context);
        if outcome.is_ready() {
            self.work = None;
        }
        outcome
    }
}

impl<T: Send + 'static> Drop for Finish<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take()
            && self.is_begun
            && let Ok(runtime) = Handle::try_current()
        {
            drop(runtime.spawn(work));
        }
    }
}
