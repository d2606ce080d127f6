//! A connection's socket between those who read and write it in turn: bytes that one has read too
//! many are the next one's.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use crate::edge::handover::Handover;

/// How a connection of HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What may come ahead of its time, while an answer is on its way: the next requests of whoever
/// does not wait for answers.
const AHEAD: usize = 8 * 1024;

/// A socket with what was read of it and not used yet.
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

    /// Gives back what was read too much, from the beginning.
    pub(crate) fn unread(&mut self, ahead: Bytes) {
        // Bytes that are none may still hold the whole buffer that they were part of.
        self.ahead = if ahead.is_empty() { Bytes::new() } else { ahead };
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// Whether the peer begins as HTTP/2 does. Nothing is used up.
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

    /// Ready when the peer has hung up. What it sends meanwhile is kept for later, up to a bound.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.len() < AHEAD {
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

    /// Whoever flushes has written all that it held.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        self.handover.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
