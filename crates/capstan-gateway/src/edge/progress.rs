//! Progress of one HTTP/2 response. The socket does not show it: a peer may read everything that is
//! sent, but never open the flow-control window of one stream. That response would stay in memory
//! forever.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

use capstan_engine::live::Stalled;

tokio::task_local! {
    static CURRENT: Arc<Progress>;
}

/// Counts the events of a response. The count is odd while a piece waits for the reader, and even
/// while the response waits for its next piece.
#[derive(Default)]
pub(crate) struct Progress {
    count: AtomicU64,
    stalled: Stalled,
}

impl Progress {
    /// The progress of the request that this task answers. `None` on HTTP/1.
    pub(crate) fn current() -> Option<Arc<Self>> {
        CURRENT.try_with(Arc::clone).ok()
    }

    /// A piece is ready for the reader.
    pub(crate) fn hand_over(&self) {
        self.count
            .store((self.count.load(Ordering::Relaxed) | 1).wrapping_add(2), Ordering::Relaxed);
    }

    /// The reader has taken everything.
    pub(crate) fn wait(&self) {
        self.count.fetch_and(!1, Ordering::Relaxed);
    }

    /// The flag that says whether the response was given up.
    pub(crate) fn stalled(&self) -> Stalled {
        self.stalled.clone()
    }

    fn state(&self) -> (u64, bool) {
        let count = self.count.load(Ordering::Relaxed);
        (count, count & 1 == 1)
    }
}

/// Runs the work of one request to its end and returns true. Returns false if the reader takes
/// nothing for `timeout` while a piece waits. Zero turns the timeout off. There is no timer while
/// nothing waits.
pub(crate) async fn until_stalled(timeout: Duration, work: impl Future) -> bool {
    let progress = Arc::<Progress>::default();
    let mut work = pin!(CURRENT.scope(Arc::clone(&progress), work));
    let mut waiting: Option<(u64, Pin<Box<Sleep>>)> = None;
    std::future::poll_fn(move |context: &mut Context<'_>| {
        if work.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        let (count, is_there) = progress.state();
        if !is_there || timeout.is_zero() {
            waiting = None;
            return Poll::Pending;
        }
        let known = waiting.take().filter(|(since, _)| *since == count);
        let (_, timer) = waiting.insert(known.unwrap_or_else(|| (count, Box::pin(sleep(timeout)))));
        ready!(timer.as_mut().poll(context));
        progress.stalled.set();
        Poll::Ready(false)
    })
    .await
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    enum Step {
        Piece,
        Nothing,
        Done,
    }

    /// Work that follows the steps it receives.
    async fn work(mut steps: mpsc::UnboundedReceiver<Step>) {
        let progress = Progress::current().unwrap();
        while let Some(step) = steps.recv().await {
            match step {
                Step::Piece => progress.hand_over(),
                Step::Nothing => progress.wait(),
                Step::Done => return,
            }
        }
        std::future::pending().await
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_is_given_up_and_one_that_waits_is_not() {
        let (step_sender, steps) = mpsc::unbounded_channel();
        let (done, began) = (tokio::spawn(until_stalled(TIMEOUT, work(steps))), Instant::now());
        tokio::time::sleep(10 * TIMEOUT).await;
        assert!(!done.is_finished(), "nothing was there to take");
        for _ in 0..10 {
            assert!(step_sender.send(Step::Piece).is_ok());
            tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
        }
        assert!(!done.is_finished(), "each piece was taken in time");
        assert!(step_sender.send(Step::Nothing).is_ok());
        tokio::time::sleep(10 * TIMEOUT).await;
        assert!(!done.is_finished());
        let before = began.elapsed();
        assert!(step_sender.send(Step::Piece).is_ok());
        assert!(!done.await.unwrap());
        assert_eq!(began.elapsed() - before, TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_ends_is_done_and_without_an_end_of_patience_it_lasts() {
        let (step_sender, steps) = mpsc::unbounded_channel();
        let done = tokio::spawn(until_stalled(Duration::ZERO, work(steps)));
        assert!(step_sender.send(Step::Piece).is_ok());
        tokio::time::sleep(100 * TIMEOUT).await;
        assert!(!done.is_finished());
        assert!(step_sender.send(Step::Done).is_ok());
        assert!(done.await.unwrap());
    }
}
