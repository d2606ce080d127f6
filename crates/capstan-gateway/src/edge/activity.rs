//! What is under way on one connection, so that one on which nothing is can be closed, and a reader
//! that takes nothing be given up.

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

/// Requests whose responses are not sent yet.
#[derive(Default)]
pub(crate) struct Activity {
    under_way: AtomicUsize,
    changed: Notify,
}

/// One of them.
pub(crate) struct UnderWay {
    activity: Arc<Activity>,
    /// Its place beside another's on the same connection.
    _place: Option<Entry>,
}

impl Activity {
    /// Whether a request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
    }

    /// A request has come; `place` is its own, if the connection's is taken.
    pub(crate) fn begin(self: &Arc<Self>, place: Option<Entry>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
        UnderWay { activity: Arc::clone(self), _place: place }
    }

    /// Returns when nothing has been under way for too long: the first request may take this long
    /// to come, others that.
    ///
    /// A request counts once its head is whole. Half a preface, or headers that never end, are
    /// nothing, in either version of HTTP.
    pub(crate) async fn idle(self: Arc<Self>, first: Duration, later: Duration) {
        let mut patience = first;
        loop {
            if self.is_busy() {
                patience = later;
                self.changed.notified().await;
            } else if tokio::time::timeout(patience, self.changed.notified()).await.is_err() {
                return;
            }
        }
    }
}

impl UnderWay {
    /// Until the response is sent, or whoever reads it is gone.
    pub(crate) fn until_sent(self, response: Response) -> Response {
        let progress = Progress::current();
        progress.iter().for_each(|progress| progress.hand_over());
        response.map(|body| Body::new(Sent { body, is_begun: false, progress, _under_way: self }))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.activity.under_way.fetch_sub(1, Ordering::Relaxed) == 1 {
            TaskSlot::free_connection();
        }
        self.activity.changed.notify_one();
    }
}

/// A body that is under way.
struct Sent {
    body: Body,
    is_begun: bool,
    /// Where its reader stands, on HTTP/2.
    progress: Option<Arc<Progress>>,
    _under_way: UnderWay,
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

    /// Not before it is asked for more than there is: then the reader has room for more, so that it
    /// has what was before. A connection of HTTP/2 would hold the last piece otherwise, and nobody
    /// would know for how long.
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
    async fn a_connection_is_idle_when_nothing_has_been_under_way_for_long() {
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
