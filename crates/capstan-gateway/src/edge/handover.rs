//! A body that lasts is sent by us, not by hyper, which keeps 16 KB of buffers for a connection as
//! long as it serves it. hyper writes the head; then the socket is taken from it, and given back to
//! another hyper when the body has ended.
//!
//! For HTTP/1.1, whose bodies of unknown length are chunked. Nothing else is known of a body here.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice, Write as _};
use std::iter;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::{Buf as _, Bytes};
use http::header::CONNECTION;
use http::{Method, Request, Version};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::edge::socket::Socket;
use crate::face::reader::Lasting;

/// What is gathered for one write: as much as hyper would. A piece may be larger.
const GATHERED_BYTES: usize = 8 * 1024;
const GATHERED_PIECES: usize = 16;
/// Writes in a row before other tasks have their turn.
const IN_A_ROW: usize = 16;

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
            *self.handed() = Handed { body: Some((body, after)), stage: Stage::Offered };
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

/// Sends a body whose head is written. An error is the end of the connection: the body must not
/// look finished.
pub(crate) async fn send<S>(socket: &mut Socket<S>, body: Body) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut source, mut chunks) = (Source::new(body), Chunks::default());
    poll_fn(|cx| {
        for _ in 0..IN_A_ROW {
            let is_more = chunks.gather(&mut source, cx)?;
            if chunks.poll_write(socket, cx)?.is_pending() {
                source.insist(cx);
                return left(socket, cx);
            }
            if chunks.is_ended {
                return Poll::Ready(Ok(()));
            }
            if !is_more {
                return left(socket, cx);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Ready if nobody is there any more.
fn left<S>(socket: &mut Socket<S>, cx: &mut Context<'_>) -> Poll<io::Result<()>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    ready!(socket.poll_gone(cx))?;
    Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
}

/// What a body says when it is asked for more.
type Piece = Option<io::Result<Bytes>>;

/// A body that is asked for a piece at a time. What was asked once is asked until it is answered,
/// even while nothing can be written: to answer, it may wait in a line in which others stand behind
/// it.
struct Source {
    body: Body,
    is_asked: bool,
    /// Came while nothing could be written.
    early: Option<Piece>,
}

impl Source {
    fn new(body: Body) -> Self {
        Self { body, is_asked: false, early: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Piece> {
        if let Some(piece) = self.early.take() {
            return Poll::Ready(piece);
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.is_asked = polled.is_pending();
        let data = |frame: Frame<Bytes>| frame.into_data().unwrap_or_default();
        polled.map(|piece| piece.map(|frame| frame.map(data).map_err(io::Error::other)))
    }

    /// One piece at most is kept.
    fn insist(&mut self, cx: &mut Context<'_>) {
        if self.is_asked
            && let Poll::Ready(piece) = self.poll(cx)
        {
            self.early = Some(piece);
        }
    }
}

/// Pieces of a body as they go over the wire, a chunk at a time.
#[derive(Default)]
struct Chunks {
    /// The chunk's size.
    head: Head,
    pieces: VecDeque<Bytes>,
    tail: &'static [u8],
    is_ended: bool,
    /// Why there is no more, once the pieces before it are written.
    failed: Option<io::Error>,
    /// Something was written that is not flushed.
    is_dirty: bool,
}

impl Chunks {
    /// Takes what there is, as one chunk, unless the last one is still being written; false if the
    /// body has no more for now.
    fn gather(&mut self, source: &mut Source, cx: &mut Context<'_>) -> io::Result<bool> {
        if self.is_ended || !self.is_written() {
            return Ok(true);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let (mut size, mut is_more) = (0, true);
        while is_more && size < GATHERED_BYTES && self.pieces.len() < GATHERED_PIECES {
            match source.poll(cx) {
                Poll::Ready(Some(Ok(piece))) => {
                    size += piece.len();
                    self.pieces.extend(Some(piece).filter(|piece| !piece.is_empty()));
                }
                Poll::Ready(Some(Err(error))) if size == 0 => return Err(error),
                Poll::Ready(Some(Err(error))) => {
                    self.failed = Some(error);
                    break;
                }
                Poll::Ready(None) => {
                    self.is_ended = true;
                    break;
                }
                Poll::Pending => is_more = false,
            }
        }
        if size > 0 {
            self.head = Head::of(size);
        }
        self.tail = match (size, self.is_ended) {
            (0, false) => b"",
            (0, true) => b"0\r\n\r\n",
            (_, false) => b"\r\n",
            (_, true) => b"\r\n0\r\n\r\n",
        };
        Ok(is_more)
    }

    fn is_written(&self) -> bool {
        self.tail.is_empty()
    }

    fn poll_write<S>(
        &mut self,
        socket: &mut Socket<S>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        while !self.is_written() {
            let mut slices = [IoSlice::new(&[]); GATHERED_PIECES + 2];
            let parts =
                iter::once(self.head.rest()).chain(self.pieces.iter().map(|piece| &piece[..]));
            let parts = parts.chain(iter::once(self.tail));
            let count = self.pieces.len() + 2;
            slices.iter_mut().zip(parts).for_each(|(slice, part)| *slice = IoSlice::new(part));
            let slices = slices.get(..count).unwrap_or_default();
            let written = ready!(Pin::new(&mut *socket).poll_write_vectored(cx, slices))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_dirty = true;
            self.advance(written);
        }
        if self.is_dirty {
            ready!(Pin::new(&mut *socket).poll_flush(cx))?;
            self.is_dirty = false;
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, written: usize) {
        let mut written = self.head.advance(written);
        while let Some(first) = self.pieces.front_mut() {
            if first.len() > written {
                first.advance(written);
                return;
            }
            written -= first.len();
            self.pieces.pop_front();
        }
        self.tail = self.tail.get(written..).unwrap_or_default();
    }
}

/// The size of a chunk, in its own notation.
#[derive(Default)]
struct Head {
    text: [u8; 18],
    from: usize,
    to: usize,
}

impl Head {
    fn of(size: usize) -> Self {
        let mut text = [0; 18];
        let mut room = &mut text[..];
        // Sixteen digits and two more: it fits.
        let _ = write!(room, "{size:x}\r\n");
        let left = room.len();
        Self { to: text.len() - left, from: 0, text }
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.from..self.to).unwrap_or_default()
    }

    /// What was written beyond it.
    fn advance(&mut self, written: usize) -> usize {
        let own = written.min(self.to - self.from);
        self.from += own;
        written - own
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

    use super::*;

    /// Sends a body of these pieces over a pipe that holds so much; what comes out, and how it
    /// ended.
    async fn sent(pieces: Vec<io::Result<Bytes>>, room: usize) -> (Vec<u8>, io::Result<()>) {
        let (mut peer, socket) = duplex(room);
        let mut socket = Socket::new(socket, Handover::default());
        let sending =
            async move { send(&mut socket, Body::from_stream(stream::iter(pieces))).await };
        let mut wire = Vec::new();
        let (ended, read) = tokio::join!(sending, peer.read_to_end(&mut wire));
        read.unwrap();
        (wire, ended)
    }

    /// What chunks hold, and whether their end is there.
    fn unchunked(mut wire: &[u8]) -> (Vec<u8>, bool) {
        let mut whole = Vec::new();
        while let Some(line) = wire.windows(2).position(|pair| pair == b"\r\n") {
            let size =
                usize::from_str_radix(std::str::from_utf8(&wire[..line]).unwrap(), 16).unwrap();
            wire = &wire[line + 2..];
            whole.extend_from_slice(&wire[..size]);
            assert_eq!(&wire[size..size + 2], b"\r\n");
            wire = &wire[size + 2..];
            if size == 0 {
                assert!(wire.is_empty(), "nothing follows the end");
                return (whole, true);
            }
        }
        (whole, false)
    }

    #[tokio::test]
    async fn a_body_goes_over_whole_whatever_its_pieces_and_however_little_is_taken_at_once() {
        let sizes = [0, 1, 15, 16, 255, 9_000, 0, 70_000].into_iter().chain([3; 40]);
        let pieces: Vec<Bytes> =
            sizes.zip(b'a'..).map(|(size, byte)| vec![byte; size].into()).collect();
        let whole = pieces.concat();
        for room in [1, 7, 1_000, 1_000_000] {
            let (wire, ended) = sent(pieces.iter().cloned().map(Ok).collect(), room).await;
            ended.unwrap();
            assert!(unchunked(&wire) == (whole.clone(), true), "{room}");
        }
        assert_eq!(sent(Vec::new(), 9).await.0, b"0\r\n\r\n");
    }

    #[tokio::test]
    async fn a_body_that_waits_in_a_line_lets_the_next_have_its_turn_though_nothing_is_read() {
        let line = Arc::new(tokio::sync::Semaphore::new(1));
        let held = Arc::clone(&line).acquire_owned().await.unwrap();
        let first = stream::iter([Ok::<_, io::Error>(Bytes::from_static(&[b'x'; 100]))]);
        let (own, asked) = (Arc::clone(&line), Arc::new(tokio::sync::Notify::new()));
        let asking = Arc::clone(&asked);
        let second = stream::once(async move {
            asking.notify_one();
            let _turn = own.acquire().await.map_err(io::Error::other)?;
            Ok(Bytes::from_static(b"y"))
        });
        // The first piece does not fit, and nobody reads.
        let (peer, socket) = duplex(10);
        let mut socket = Socket::new(socket, Handover::default());
        let body = Body::from_stream(futures_util::StreamExt::chain(first, second));
        let behind = async {
            asked.notified().await;
            drop(held);
            drop(line.acquire().await.unwrap());
        };
        tokio::select! {
            ended = send(&mut socket, body) => panic!("{ended:?}"),
            () = behind => {}
        }
        drop(peer);
    }

    #[tokio::test]
    async fn a_body_that_fails_shows_what_came_before_and_does_not_look_finished() {
        let failing = || Err(io::Error::other("it broke"));
        let (wire, ended) = sent(vec![Ok("one".into()), Ok("two".into()), failing()], 4).await;
        assert_eq!((unchunked(&wire), ended.is_err()), ((b"onetwo".to_vec(), false), true));
        let (wire, ended) = sent(vec![failing()], 4).await;
        assert!(wire.is_empty() && ended.is_err());
    }

    #[tokio::test]
    async fn whoever_hangs_up_is_noticed_and_whoever_asks_ahead_is_not_lost() {
        let (peer, socket): (DuplexStream, DuplexStream) = duplex(64);
        let mut socket = Socket::new(socket, Handover::default());
        let lasting = || Body::from_stream(stream::pending::<io::Result<Bytes>>());
        drop(peer);
        assert!(send(&mut socket, lasting()).await.is_err());

        let (mut peer, socket) = duplex(64);
        let mut socket = Socket::new(socket, Handover::default());
        let asking = async {
            tokio::io::AsyncWriteExt::write_all(&mut peer, b"the next request").await.unwrap();
            tokio::time::timeout(std::time::Duration::from_millis(1), std::future::pending::<()>())
                .await
        };
        tokio::select! {
            ended = send(&mut socket, lasting()) => panic!("{ended:?}"),
            _ = asking => {}
        }
        let mut ahead = [0; 16];
        socket.read_exact(&mut ahead).await.unwrap();
        assert_eq!(&ahead, b"the next request");
    }

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
