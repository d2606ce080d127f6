//! The end of an engine, step by step, and the signals of these steps. Only the engine gives them.

use std::time::Duration;

use capstan_agent::END_LIMIT;
use tokio_util::sync::{
    CancellationToken, WaitForCancellationFuture, WaitForCancellationFutureOwned,
};

use crate::Engine;

/// How long the end waits at most for a journal that accepts no writes.
const UNWELL: Duration = Duration::from_secs(5);

impl Engine {
    /// Begins a shutdown: refuses new runs. Returns how many tasks of runs are left.
    pub fn begin_drain(&self) -> usize {
        self.draining.cancel();
        if let Some(cluster) = self.store().cluster() {
            cluster.drain();
        }
        self.tasks.close();
        self.tasks.len()
    }

    /// Lets runs finish for a while, with their viewers. Then it interrupts those that are left,
    /// and ends open responses.
    pub async fn drain_runs(&self) {
        let limit = self.settings.timeouts.drain;
        let _ = tokio::time::timeout(limit, self.tasks.wait()).await;
        self.stopped.cancel();
        tokio::select! {
            () = self.tasks.wait() => {}
            () = self.unwell_for(limit.min(UNWELL)) => tracing::warn!("the journal takes no \
             writes: what is left open is recovered by the next life"),
        }
        // Runs that wait go on in another life; their spans end here.
        self.forget_waiting_spans(Duration::ZERO);
        self.closing.cancel();
        self.ended.cancel();
    }

    /// Waits for agents that were told to end, here and elsewhere, and for the observers. An agent
    /// that never yields is not waited for.
    pub async fn drain_agents(&self, grace: Duration) {
        self.agents_at_work.close();
        let _ = tokio::time::timeout(END_LIMIT + grace, self.agents_at_work.wait()).await;
        self.observed().await;
    }

    /// Cancels everything after a fatal error: the gateway refuses requests and ends open
    /// responses.
    pub fn give_up(&self) {
        [&self.draining, &self.stopped, &self.closing, &self.ended]
            .into_iter()
            .for_each(CancellationToken::cancel);
    }

    /// The journal has failed for good. Open responses are cut, so that no client takes its stream
    /// for complete.
    pub(crate) fn break_off(&self) {
        self.broken.cancel();
        self.ended.cancel();
    }

    /// Whether a shutdown has begun, so that the engine refuses new runs.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Waits until a shutdown begins.
    pub fn until_draining(&self) -> WaitForCancellationFuture<'_> {
        self.draining.cancelled()
    }

    /// Waits until open responses have to end, after the runs have written their last packet.
    pub fn until_closing(&self) -> WaitForCancellationFuture<'_> {
        self.closing.cancelled()
    }

    /// Tokens that are cancelled when a shutdown begins, and when open responses have to end.
    pub fn shutdown_tokens(&self) -> [CancellationToken; 2] {
        [self.draining.child_token(), self.closing.child_token()]
    }

    /// Whether the journal has failed for good.
    pub fn is_broken(&self) -> bool {
        self.broken.is_cancelled()
    }

    /// Waits until the journal has failed for good.
    pub fn until_broken(&self) -> WaitForCancellationFuture<'_> {
        self.broken.cancelled()
    }

    /// Waits until open responses have to end, or the journal has failed for good.
    pub fn until_ended(&self) -> WaitForCancellationFuture<'_> {
        self.ended.cancelled()
    }

    /// [`Self::until_ended`] for a response that outlives its request.
    pub fn until_ended_owned(&self) -> WaitForCancellationFutureOwned {
        self.ended.clone().cancelled_owned()
    }
}
