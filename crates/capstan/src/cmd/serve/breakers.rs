//! Breakers of routes, shared by the gateways of a cluster: what changes here is written to the
//! journal's store, and what the others have written is looked at once a second. A call costs
//! nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use capstan_journal::{BreakerState, Cluster, JournalError, Store};
use capstan_upstream::{BreakerChange, Breakers};
use tokio::time::Instant;
use uuid::Uuid;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shares for as long as it is awaited.
pub(super) async fn share(store: Arc<dyn Store>, breakers: Breakers) {
    let Some(cluster) = store.cluster() else { return };
    let mut changes = breakers.changes();
    let mut shared = Shared { cluster, breakers, seen: HashMap::new() };
    let mut look = tokio::time::interval(LOOK_EVERY);
    loop {
        // One after the other: what is read was written after what is being written here.
        let done = tokio::select! {
            Some(change) = changes.recv() => shared.tell(change).await,
            _ = look.tick() => shared.look().await,
        };
        if let Err(error) = done {
            tracing::debug!(%error, "what upstreams do could not be shared");
        }
    }
}

struct Shared<'a> {
    cluster: &'a dyn Cluster,
    breakers: Breakers,
    /// The last change of each upstream that is known here.
    seen: HashMap<String, Uuid>,
}

impl Shared<'_> {
    async fn tell(
        &mut self,
        BreakerChange { upstream, opened, left }: BreakerChange,
    ) -> Result<(), JournalError> {
        let change = Uuid::new_v4();
        self.seen.insert(upstream.clone(), change);
        self.cluster.set_breaker(&BreakerState { upstream, opened, left, change }).await
    }

    async fn look(&mut self) -> Result<(), JournalError> {
        for BreakerState { upstream, opened, left, change } in self.cluster.breakers().await? {
            if self.seen.insert(upstream.clone(), change) != Some(change) {
                tracing::info!(
                    upstream,
                    opened,
                    "another gateway has found out how an upstream stands"
                );
                self.breakers.hear(&BreakerChange { upstream, opened, left }, Instant::now());
            }
        }
        Ok(())
    }
}
