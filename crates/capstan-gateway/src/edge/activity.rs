//! Counts the requests in flight on one connection. The server closes a connection without any, and
//! gives up a reader that takes nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::edge::admission::Entry;
use crate::edge::progress::Progress;
use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use capstan_engine::tenant_scheduler::TaskSlot;
use tokio::sync::Notify;

/// Counts the requests of a connection whose responses are not fully sent.
#[derive(Default)]
pub(crate) struct Activity {
    in_flight: AtomicUsize,
    changed: Notify,
}

/// A request in flight. Dropping it ends the count.
pub(crate) struct InFlight {
    activity: Arc<Activity>,
    /// The request's own admission slot, if the connection's slot was in use by another request.
    _slot: Option<Entry>,
}

impl Activity {
    /// Whether a request is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Counts a new request. `slot` is its own admission slot, if it needed one.
    pub(crate) fn begin(self: &Arc<Self>, slot: Option<Entry>) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
        InFlight { activity: Arc::clone(self), _slot: slot }
    }

    /// Returns when no request has been in flight for too long. `first` is the limit before the
    /// first request, `later` the limit between requests.
    ///
    /// A request counts once its head is complete. Half an HTTP/2 preface, or headers that never
    /// end, do not count as activity.
    pub(crate) async fn idle(self: Arc<Self>, first: Duration, later: Duration) {
        let mut timeout = first;
        loop {
            if self.is_busy() {
                timeout = later;
                self.changed.notified().await;
            } else if tokio::time::timeout(timeout, self.changed.notified()).await.is_err() {
                return;
            }
        }
    }
}

impl InFlight {
    /// Keeps the request in flight until the response is sent, or its reader disconnects.
    pub(crate) fn until_sent(self, response: Response) -> Response {
        let progress = Progress::current();
        progress.iter().for_each(|progress| progress.hand_over());
        response.map(|body| Body::new(Sent { body, is_begun: false, progress, _in_flight: self }))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.activity.in_flight.fetch_sub(1, Ordering::Relaxed) == 1 {
            TaskSlot::free_connection();
        }
        self.activity.changed.notify_one();
    }
}

/// A response body that counts as in flight until it is dropped.
struct Sent {
    body: Body,
    is_begun: bool,
    /// On HTTP/2, how far the reader of this response is.
    progress: Option<Arc<Progress>>,
    _in_flight: InFlight,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        self.is_begun = true;
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Some(progress) = &self.progress {
            match frame {
                Poll::Ready(Some(_)) => progress.hand_over(),
                Poll::Ready(None) | Poll::Pending => progress.wait(),
            }
        }
        frame
    }

    /// True only before the first poll. Later, hyper has to poll once more to see the end, and that
    /// poll proves that the reader took everything before it. Otherwise an HTTP/2 connection could
    /// hold the last piece for any time, unnoticed by the stall timeout.
    fn is_end_stream(&self) -> bool {
        !self.is_begun && self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_when_nothing_has_been_in_flight_for_long() {
        let (activity, began) = (Arc::<Activity>::default(), Instant::now());
        activity.clone().idle(SECOND, 9 * SECOND).await;
        assert_eq!(began.elapsed(), SECOND, "nothing was ever asked");
        let idle = tokio::spawn(activity.clone().idle(SECOND, 9 * SECOND));
        let response = activity.begin(None).until_sent(Response::new(Body::from("answer")));
        tokio::time::sleep(100 * SECOND).await;
        assert!(!idle.is_finished(), "a response is being read");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "answer");
        let sent = Instant::now();
        idle.await.unwrap();
        assert_eq!(sent.elapsed(), 9 * SECOND);
    }
}
