//! A body that lasts is sent by us, not by hyper, which keeps 16 KB of buffers for a connection as
//! long as it serves it. hyper writes the head; then the socket is taken from it, and given back to
//! another hyper when the body has ended.
//!
//! For HTTP/1.1, whose bodies of unknown length are chunked. Nothing else is known of a body here.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use http::header::CONNECTION;
use http::{Method, Request, Version};
use hyper::body::{Frame, SizeHint};

use crate::face::reader::Lasting;

/// Whether an answer to this request may be handed over, and what becomes of the connection then.
pub(crate) fn after<B>(request: &Request<B>) -> Option<After> {
    let is_possible = request.version() == Version::HTTP_11 && request.method() != Method::HEAD;
    let closes =
        request.headers().get_all(CONNECTION).iter().any(|value| is_close(value.as_bytes()));
    is_possible.then_some(if closes { After::Close } else { After::GoOn })
}

fn is_close(connection: &[u8]) -> bool {
    connection
        .split(|byte| *byte == b',')
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// A request's body that notes when it was read to its end. What is left of one would be taken for
/// the next request.
pub(crate) struct Noted<B> {
    body: B,
    is_read: Arc<AtomicBool>,
}

impl<B: HttpBody> Noted<B> {
    /// The body, and whether it was read.
    pub(crate) fn new(body: B) -> (Self, Arc<AtomicBool>) {
        let is_read = Arc::new(AtomicBool::new(body.is_end_stream()));
        (Self { body, is_read: Arc::clone(&is_read) }, is_read)
    }
}

impl<B: HttpBody + Unpin> HttpBody for Noted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.is_read.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What becomes of a connection when a body that was handed over has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    GoOn,
    Close,
}

/// The body of a connection's present answer, on its way from hyper to us.
#[derive(Clone, Default)]
pub(crate) struct Handover(Arc<Mutex<Handed>>);

#[derive(Default)]
struct Handed {
    body: Option<(Body, After)>,
    stage: Stage,
    /// The socket is gone.
    is_gone: bool,
    /// Whoever waits for that.
    waits: Option<Waker>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// hyper has the response.
    #[default]
    Offered,
    /// It has taken the head and asked for the body.
    Asked,
    /// It has written the head.
    Due,
}

impl Handover {
    /// The response as hyper is to have it: with its body, unless that lasts.
    pub(crate) fn offer(&self, response: Response, after: After) -> Response {
        if response.extensions().get::<Lasting>().is_none() {
            return response;
        }
        response.map(|body| {
            let mut handed = self.handed();
            (handed.body, handed.stage) = (Some((body, after)), Stage::Offered);
            drop(handed);
            Body::new(StandIn(self.clone()))
        })
    }

    /// All that was to be written is written.
    pub(crate) fn flushed(&self) {
        self.step(Stage::Asked, Stage::Due);
    }

    /// Lets hyper serve a connection until a body is due, or the connection ends.
    pub(crate) async fn wait(&self, serving: &mut (impl Future + Unpin)) -> Option<(Body, After)> {
        poll_fn(|cx| match Pin::new(&mut *serving).poll(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => self.take().map_or(Poll::Pending, |body| Poll::Ready(Some(body))),
        })
        .await
    }

    /// The socket was dropped, by whoever had it.
    pub(crate) fn socket_gone(&self) {
        let mut handed = self.handed();
        handed.is_gone = true;
        if let Some(waiting) = handed.waits.take() {
            waiting.wake();
        }
    }

    /// Waits until then. A socket that speaks another protocol by now belongs to others, and the
    /// connection keeps its place as long as they have it.
    pub(crate) async fn until_gone(&self) {
        poll_fn(|cx| {
            let mut handed = self.handed();
            if handed.is_gone {
                return Poll::Ready(());
            }
            handed.waits = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// The body, once its head is written.
    fn take(&self) -> Option<(Body, After)> {
        let mut handed = self.handed();
        if handed.stage == Stage::Due { handed.body.take() } else { None }
    }

    fn step(&self, from: Stage, to: Stage) {
        let mut handed = self.handed();
        if handed.stage == from {
            handed.stage = to;
        }
    }

    fn handed(&self) -> MutexGuard<'_, Handed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What hyper has for a body: nothing ever comes of it.
struct StandIn(Handover);

impl HttpBody for StandIn {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.0.step(Stage::Offered, Stage::Asked);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_a_connection_is_what_its_request_says() {
        let after = |method: &str, version, connection: &str| {
            let request =
                Request::builder().method(method).version(version).header(CONNECTION, connection);
            after(&request.body(()).unwrap())
        };
        assert_eq!(after("GET", Version::HTTP_11, "keep-alive"), Some(After::GoOn));
        assert_eq!(after("GET", Version::HTTP_11, "keep-alive, Close"), Some(After::Close));
        assert_eq!(after("GET", Version::HTTP_10, "keep-alive"), None);
        assert_eq!(after("HEAD", Version::HTTP_11, "keep-alive"), None);
    }
}
