//! Sends a response body over a socket in HTTP/1.1 chunks, after hyper has written the head.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice, Write as _};
use std::iter;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use bytes::{Buf as _, Bytes};
use hyper::body::Frame;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::edge::socket::Socket;

/// How much one write gathers, about as much as hyper does. A single piece may be larger.
const GATHERED_BYTES: usize = 8 * 1024;
const GATHERED_PIECES: usize = 16;
/// Writes in a row before the task yields to others.
const WRITES_PER_POLL: usize = 16;

/// Sends a body whose head is written. On an error the caller closes the connection, so that the
/// body does not look complete.
pub(crate) async fn send<S>(socket: &mut Socket<S>, body: Body) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut source, mut chunks) = (Source::new(body), Chunks::default());
    poll_fn(|cx| {
        for _ in 0..WRITES_PER_POLL {
            let is_more = chunks.gather(&mut source, cx)?;
            if chunks.poll_write(socket, cx)?.is_pending() {
                source.poll_early(cx);
                return peer_closed(socket, cx);
            }
            if chunks.is_ended {
                return Poll::Ready(Ok(()));
            }
            if !is_more {
                return peer_closed(socket, cx);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Ready when the peer has disconnected.
fn peer_closed<S>(socket: &mut Socket<S>, cx: &mut Context<'_>) -> Poll<io::Result<()>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    ready!(socket.poll_gone(cx))?;
    Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()))
}

/// The result of one poll of the body: `None` at its end.
type Piece = Option<io::Result<Bytes>>;

/// A body that is polled one piece at a time. Once a poll was pending, the body is polled again
/// even while the socket is not writable. The body may wait in a fair queue, where a waiter that is
/// never polled would block all waiters behind it.
struct Source {
    body: Body,
    is_pending: bool,
    /// A piece that arrived while nothing could be written.
    early: Option<Piece>,
}

impl Source {
    fn new(body: Body) -> Self {
        Self { body, is_pending: false, early: None }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Piece> {
        if let Some(piece) = self.early.take() {
            return Poll::Ready(piece);
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.is_pending = polled.is_pending();
        let data = |frame: Frame<Bytes>| frame.into_data().unwrap_or_default();
        polled.map(|piece| piece.map(|frame| frame.map(data).map_err(io::Error::other)))
    }

    /// Polls a pending body while the socket is not writable. Keeps one piece at most.
    fn poll_early(&mut self, cx: &mut Context<'_>) {
        if self.is_pending
            && let Poll::Ready(piece) = self.poll(cx)
        {
            self.early = Some(piece);
        }
    }
}

/// The pieces of a body, framed as HTTP/1.1 chunks.
#[derive(Default)]
struct Chunks {
    /// The chunk header with the size.
    head: Head,
    pieces: VecDeque<Bytes>,
    tail: &'static [u8],
    is_ended: bool,
    /// The body's error, returned after the pieces before it are written.
    failed: Option<io::Error>,
    /// Data was written but not flushed.
    is_dirty: bool,
}

impl Chunks {
    /// Gathers the available pieces into one chunk, unless the last chunk is still being written.
    /// Returns false if the body has no more data for now.
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

/// A chunk header: the size in hex.
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
        // Cannot fail: at most sixteen hex digits and a line break.
        let _ = write!(room, "{size:x}\r\n");
        let left = room.len();
        Self { to: text.len() - left, from: 0, text }
    }

    fn rest(&self) -> &[u8] {
        self.text.get(self.from..self.to).unwrap_or_default()
    }

    /// Returns how many of the written bytes belong to what follows the header.
    fn advance(&mut self, written: usize) -> usize {
        let own = written.min(self.to - self.from);
        self.from += own;
        written - own
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::stream;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

    use super::*;
    use crate::edge::handover::Handover;

    /// Sends a body of these pieces over a pipe with `room` bytes of buffer. Returns the bytes that
    /// arrived, and the result of sending.
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

    /// Decodes chunks. Returns the content, and whether the final chunk is there.
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
    async fn a_body_arrives_whole_in_any_pieces() {
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
        // The first piece does not fit into the pipe, and the peer does not read.
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
    async fn a_closed_peer_is_noticed_and_pipelined_requests_are_kept() {
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
}
