//! Shares the breakers of routes between the gateways of a cluster. Changes here go to the
//! journal's store; changes of other gateways are read once a second. Calls do no I/O for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_journal::{BreakerState, Cluster, JournalError, Store};
use capstan_upstream::{BreakerChange, Breakers};
use tokio::time::Instant;
use uuid::Uuid;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Shares changes until the task is dropped.
pub(super) async fn share(store: Arc<dyn Store>, breakers: Breakers) {
    let Some(cluster) = store.cluster() else { return };
    let mut changes = breakers.changes();
    let mut shared = Shared { cluster, breakers, seen: HashMap::new() };
    let mut poll = tokio::time::interval(POLL_INTERVAL);
    loop {
        // One at a time, so that a read never misses a write of this process.
        let done = tokio::select! {
            Some(change) = changes.recv() => shared.publish(change).await,
            _ = poll.tick() => shared.poll().await,
        };
        if let Err(error) = done {
            tracing::debug!(%error, "changes of breakers could not be shared");
        }
    }
}

struct Shared<'a> {
    cluster: &'a dyn Cluster,
    breakers: Breakers,
    /// The last known change of each upstream.
    seen: HashMap<String, Uuid>,
}

impl Shared<'_> {
    async fn publish(
        &mut self,
        BreakerChange { upstream, opened, left }: BreakerChange,
    ) -> Result<(), JournalError> {
        let change = Uuid::new_v4();
        self.seen.insert(upstream.clone(), change);
        self.cluster.set_breaker(&BreakerState { upstream, opened, left, change }).await
    }

    async fn poll(&mut self) -> Result<(), JournalError> {
        for BreakerState { upstream, opened, left, change } in self.cluster.breakers().await? {
            if self.seen.insert(upstream.clone(), change) != Some(change) {
                tracing::info!(upstream, opened, "another gateway reported a change of a breaker");
                self.breakers.apply(&BreakerChange { upstream, opened, left }, Instant::now());
            }
        }
        Ok(())
    }
}
