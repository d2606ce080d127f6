//! Breaking an attempt off, and saying why: what it started elsewhere must know whether to end as
//! well.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// Why an attempt is over before its agent was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// A client stopped the run.
    Stopped,
    /// The run, or its last attempt, took too long.
    TimedOut,
    /// The run has failed, and no attempt follows.
    Failed,
    /// The server goes down; another attempt may follow in its next life.
    Drained,
    /// This attempt failed, and another may follow.
    Retried,
}

impl CancelReason {
    /// Whether a run that the agent started elsewhere must end too. Otherwise it continues, because
    /// the next attempt attaches to it again.
    pub fn ends_run(self) -> bool {
        match self {
            Self::Stopped | Self::TimedOut | Self::Failed => true,
            Self::Drained | Self::Retried => false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum State {
    UnderWay,
    Over,
    Cancelled(CancelReason),
}

/// An attempt's own view of being broken off. Its future is dropped as well; this is for work that
/// outlives it.
#[derive(Debug, Clone)]
pub struct Cancel {
    state: Arc<watch::Sender<State>>,
    tasks: TaskTracker,
}

/// Breaks an attempt off. Dropped without a reason, the attempt has come to its own end.
#[derive(Debug)]
pub struct Canceller(Arc<watch::Sender<State>>);

impl Default for Cancel {
    /// A signal that never comes.
    fn default() -> Self {
        Self { state: Arc::new(watch::Sender::new(State::UnderWay)), tasks: TaskTracker::new() }
    }
}

impl Cancel {
    /// Creates both ends. A process that shuts down waits for `tasks`.
    pub fn new(tasks: TaskTracker) -> (Canceller, Self) {
        let cancel = Self { tasks, ..Self::default() };
        (Canceller(Arc::clone(&cancel.state)), cancel)
    }

    /// Returns when the attempt is over: with a reason, or with none if it came to its own end.
    pub async fn cancelled(&self) -> Option<CancelReason> {
        let mut state = self.state.subscribe();
        let over = state.wait_for(|state| !matches!(state, State::UnderWay)).await;
        match over.as_deref() {
            Ok(State::Cancelled(reason)) => Some(*reason),
            Ok(State::UnderWay | State::Over) | Err(_) => None,
        }
    }

    /// Runs work that may outlive the attempt. A server that drains waits for it, so it must have a
    /// time limit.
    pub fn outlive(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }
}

impl Canceller {
    /// Breaks the attempt off. The first reason counts.
    pub fn cancel(&self, reason: CancelReason) {
        self.end(State::Cancelled(reason));
    }

    fn end(&self, end: State) {
        self.0.send_if_modified(|state| {
            let is_first = matches!(state, State::UnderWay);
            if is_first {
                *state = end;
            }
            is_first
        });
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        self.end(State::Over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_attempt_learns_why_it_was_broken_off_and_the_first_reason_counts() {
        let (canceller, cancel) = Cancel::new(TaskTracker::new());
        canceller.cancel(CancelReason::Drained);
        canceller.cancel(CancelReason::Stopped);
        drop(canceller);
        assert_eq!(cancel.cancelled().await, Some(CancelReason::Drained));
    }

    #[tokio::test]
    async fn an_attempt_that_came_to_its_own_end_was_not_cancelled() {
        let (canceller, cancel) = Cancel::new(TaskTracker::new());
        drop(canceller);
        assert_eq!(cancel.cancelled().await, None);
    }
}
