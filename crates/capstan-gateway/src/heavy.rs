//! Heavy work: what keeps a thread busy for longer than other people's packets may wait, such as reading and decoding a body of
//! megabytes. Of each tenant's one is worked on at a time, however many have come: the threads are everybody's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::future::OptionFuture;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// What is not larger takes no time worth waiting for.
const LIGHT: usize = 64 * 1024;
/// How long the next piece of a body is waited for before another body is read instead.
const PATIENCE: Duration = Duration::from_millis(5);

/// How long one body is read before the others have their turn: whoever sends a byte now and then is not let in the way.
const LONGEST: Duration = Duration::from_millis(100);

/// Whose heavy work is under way, or waits.
#[derive(Default)]
pub(crate) struct Heavy(Mutex<HashMap<String, Arc<Semaphore>>>);

impl Heavy {
    /// Waits until the tenant has no other heavy work under way; what is light waits for nobody.
    pub(crate) async fn begin(&self, tenant: &str, bytes: usize) -> Option<OwnedSemaphorePermit> {
        if bytes <= LIGHT {
            return None;
        }
        self.of(tenant).acquire_owned().await.ok()
    }

    /// The next piece of a body of which so much is read. A body that has begun is read to its end as long as it comes: many
    /// that are read a little each would all be held, and none would ever be whole. One that comes slowly holds up no other.
    pub(crate) async fn next(
        &self,
        tenant: &str,
        body: &mut Body,
        read: usize,
        begun: &mut Option<(OwnedSemaphorePermit, Instant)>,
    ) -> Option<Result<Bytes, axum::Error>> {
        *begun = begun.take().filter(|(_, since)| since.elapsed() < LONGEST);
        if begun.is_none() {
            *begun = self.begin(tenant, read).await.map(|permit| (permit, Instant::now()));
        }
        let coming = begun.is_some().then(|| tokio::time::timeout(PATIENCE, body.frame()));
        let frame = match OptionFuture::from(coming).await {
            Some(Ok(frame)) => {
                // As long as pieces are there nothing else would get this thread.
                tokio::task::yield_now().await;
                frame
            }
            _ => {
                *begun = None;
                body.frame().await
            }
        };
        // What is no data, trailers, says nothing here.
        frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()))
    }

    fn of(&self, tenant: &str) -> Arc<Semaphore> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = known.get(tenant) {
            return Arc::clone(one);
        }
        // Only those remain that somebody works with, or waits for.
        known.retain(|_, one| Arc::strong_count(one) > 1);
        let one = Arc::new(Semaphore::new(1));
        known.insert(tenant.to_owned(), Arc::clone(&one));
        one
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn a_tenants_heavy_work_waits_for_its_own_alone() {
        let heavy = Heavy::default();
        let first = heavy.begin("a", LIGHT + 1).await;
        assert!(heavy.begin("a", LIGHT + 1).now_or_never().is_none(), "one at a time");
        assert!(heavy.begin("b", LIGHT + 1).now_or_never().is_some(), "another tenant's");
        assert!(heavy.begin("a", LIGHT).now_or_never().is_some(), "light work");
        drop(first);
        assert!(heavy.begin("a", LIGHT + 1).now_or_never().is_some());
        assert!(heavy.begin("c", LIGHT + 1).now_or_never().is_some());
        assert_eq!(heavy.0.lock().unwrap().len(), 1, "nobody is remembered for longer");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_slowly_holds_up_no_other() {
        let heavy = Heavy::default();
        let mut silent = Body::from_stream(stream::pending::<Result<Bytes, axum::Error>>());
        let mut ready = Body::from("piece");
        let (mut of_silent, mut of_ready) = (None, None);
        let waiting = heavy.next("a", &mut silent, LIGHT + 1, &mut of_silent);
        tokio::pin!(waiting);
        assert!(waiting.as_mut().now_or_never().is_none());
        let piece = tokio::select! {
            biased;
            _ = waiting => unreachable!("it never comes"),
            piece = heavy.next("a", &mut ready, LIGHT + 1, &mut of_ready) => piece,
        };
        assert_eq!(piece.unwrap().unwrap(), "piece");
        assert!(of_ready.is_some(), "it goes on as long as it comes");
        tokio::time::advance(LONGEST).await;
        let waiter = heavy.begin("a", LIGHT + 1);
        tokio::pin!(waiter);
        assert!(waiter.as_mut().now_or_never().is_none());
        assert!(
            heavy.next("a", &mut ready, LIGHT + 1, &mut of_ready).now_or_never().is_none(),
            "it waits again"
        );
        assert!(waiter.now_or_never().is_some(), "others have their turn");
    }
}
