//! Long-lived response bodies are sent by this crate, not by hyper, which keeps 16 KB of buffers
//! per connection while it serves one. hyper writes the head. Then this code takes the socket,
//! sends the body, and passes the socket to a new hyper connection.
//!
//! Only for HTTP/1.1, where bodies of unknown length are chunked.

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

use crate::face::reader::LongLived;

/// What to do with the connection after a handed-over body, or `None` if the response to this
/// request cannot be handed over.
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

/// A request body that records when it was read to the end. Unread bytes of a body would be parsed
/// as the next request.
pub(crate) struct TrackedBody<B> {
    body: B,
    is_read: Arc<AtomicBool>,
}

impl<B: HttpBody> TrackedBody<B> {
    /// Returns the wrapped body, and a flag that becomes true at its end.
    pub(crate) fn new(body: B) -> (Self, Arc<AtomicBool>) {
        let is_read = Arc::new(AtomicBool::new(body.is_end_stream()));
        (Self { body, is_read: Arc::clone(&is_read) }, is_read)
    }
}

impl<B: HttpBody + Unpin> HttpBody for TrackedBody<B> {
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

/// What happens to a connection after a handed-over body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    GoOn,
    Close,
}

/// Passes the body of a connection's current response from hyper to `body_sender`.
#[derive(Clone, Default)]
pub(crate) struct Handover(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    body: Option<(Body, After)>,
    stage: Stage,
    /// The socket was dropped.
    is_gone: bool,
    /// The task that waits until the socket is dropped.
    waits: Option<Waker>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// hyper has got the response.
    #[default]
    Offered,
    /// hyper has taken the head and polled the body.
    Asked,
    /// hyper has written the head.
    Due,
}

impl Handover {
    /// The response for hyper. If its body is long-lived, hyper gets a placeholder body instead.
    pub(crate) fn offer(&self, response: Response, after: After) -> Response {
        if response.extensions().get::<LongLived>().is_none() {
            return response;
        }
        response.map(|body| {
            let mut state = self.state();
            (state.body, state.stage) = (Some((body, after)), Stage::Offered);
            drop(state);
            Body::new(Placeholder(self.clone()))
        })
    }

    /// hyper has flushed all that it wrote.
    pub(crate) fn flushed(&self) {
        self.step(Stage::Asked, Stage::Due);
    }

    /// Drives hyper's connection until a body is ready to be handed over, or the connection ends.
    pub(crate) async fn wait(&self, serving: &mut (impl Future + Unpin)) -> Option<(Body, After)> {
        poll_fn(|cx| match Pin::new(&mut *serving).poll(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => self.take().map_or(Poll::Pending, |body| Poll::Ready(Some(body))),
        })
        .await
    }

    /// The socket was dropped, by hyper or by this crate.
    pub(crate) fn socket_gone(&self) {
        let mut state = self.state();
        state.is_gone = true;
        if let Some(waiting) = state.waits.take() {
            waiting.wake();
        }
    }

    /// Waits until the socket is dropped. After an upgrade another protocol owns the socket, and
    /// the connection must keep its admission slot for that long.
    pub(crate) async fn until_gone(&self) {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.is_gone {
                return Poll::Ready(());
            }
            state.waits = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Takes the body, once its head is written.
    fn take(&self) -> Option<(Body, After)> {
        let mut state = self.state();
        if state.stage == Stage::Due { state.body.take() } else { None }
    }

    fn step(&self, from: Stage, to: Stage) {
        let mut state = self.state();
        if state.stage == from {
            state.stage = to;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The placeholder body that hyper gets. It never yields anything.
struct Placeholder(Handover);

impl HttpBody for Placeholder {
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
    fn the_request_decides_about_the_connection() {
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
