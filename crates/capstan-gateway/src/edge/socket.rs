//! A connection's socket. hyper and `body_sender` use it in turn. Bytes that one of them read too
//! early are stored for the next one.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use crate::edge::handover::Handover;

/// The HTTP/2 connection preface.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How many bytes a client may send while a response is on its way: pipelined requests.
const MAX_AHEAD_BYTES: usize = 8 * 1024;

/// A socket with the bytes that were read from it but not used yet.
pub(crate) struct Socket<S> {
    inner: S,
    ahead: Bytes,
    handover: Handover,
}

impl<S> Drop for Socket<S> {
    fn drop(&mut self) {
        self.handover.socket_gone();
    }
}

impl<S> Socket<S> {
    pub(crate) fn new(inner: S, handover: Handover) -> Self {
        Self { inner, ahead: Bytes::new(), handover }
    }

    /// Puts back bytes that were read too early.
    pub(crate) fn unread(&mut self, ahead: Bytes) {
        // An empty `Bytes` may still hold the whole buffer it was sliced from, so replace it.
        self.ahead = if ahead.is_empty() { Bytes::new() } else { ahead };
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Whether the peer starts with the HTTP/2 preface. Consumes nothing.
    pub(crate) async fn begins_as_http2(&mut self) -> io::Result<bool> {
        let mut begun = BytesMut::new();
        while PREFACE.starts_with(&begun) && begun.len() < PREFACE.len() {
            if self.inner.read_buf(&mut begun).await? == 0 {
                break;
            }
        }
        let is_http2 = begun.starts_with(PREFACE);
        self.unread(begun.freeze());
        Ok(is_http2)
    }

    /// Ready when the peer has disconnected. Stores what the peer sends meanwhile, up to a bound.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.len() < MAX_AHEAD_BYTES {
            let mut space = [0; 512];
            let mut read = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut self.inner).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.ahead = [&self.ahead, read.filled()].concat().into();
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buffer);
        }
        let taken = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead.split_to(taken));
        let rest = std::mem::take(&mut self.ahead);
        self.unread(rest);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// A flush means that hyper has written everything it had.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        self.handover.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
