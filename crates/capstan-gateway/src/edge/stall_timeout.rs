//! A socket that fails when its peer reads nothing for too long. Without a pending write there is
//! no timeout and no timer.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A socket whose writes fail when none makes progress for `timeout`. Reads are unchanged.
///
/// A write makes progress when the kernel accepts some of it. The kernel accepts more only when
/// about a third of its buffer is free again. A peer that takes longer than `timeout` to free a
/// third counts as stalled.
pub(crate) struct StallTimeout<S, F> {
    socket: S,
    /// Zero turns the timeout off.
    timeout: Duration,
    /// The timer. It exists only while a write waits, since most viewers are idle.
    waiting: Option<Pin<Box<Sleep>>>,
    give_up: F,
}

impl<S, F: FnMut(&S)> StallTimeout<S, F> {
    /// `give_up` is called once, before the write fails.
    pub(crate) fn new(socket: S, timeout: Duration, give_up: F) -> Self {
        Self { socket, timeout, waiting: None, give_up }
    }

    /// Returns the result of a write, or a timeout error if the write has waited too long.
    fn check_timeout(
        &mut self,
        cx: &mut Context<'_>,
        write: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if write.is_ready() || self.timeout.is_zero() {
            self.waiting = None;
            return write;
        }
        let timeout = self.timeout;
        ready!(self.waiting.get_or_insert_with(|| Box::pin(sleep(timeout))).as_mut().poll(cx));
        self.waiting = None;
        (self.give_up)(&self.socket);
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl<S: AsyncWrite + Unpin, F: FnMut(&S) + Unpin> AsyncWrite for StallTimeout<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.check_timeout(cx, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.socket).poll_write_vectored(cx, bytes);
        self.check_timeout(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin, F: Unpin> AsyncRead for StallTimeout<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);
    /// The size of the pipe's buffer.
    const ROOM: usize = 8;

    /// A peer, and the socket with the timeout at the other end of the pipe.
    fn pair<F: FnMut(&DuplexStream)>(
        timeout: Duration,
        give_up: F,
    ) -> (DuplexStream, StallTimeout<DuplexStream, F>) {
        let (peer, socket) = duplex(ROOM);
        (peer, StallTimeout::new(socket, timeout, give_up))
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_when_patience_ends() {
        let mut given_up = 0;
        let (_peer, mut socket) = pair(TIMEOUT, |_| given_up += 1);
        let start = Instant::now();
        let error = socket.write_all(&[0; ROOM + 1]).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, TIMEOUT));
        drop(socket);
        assert_eq!(given_up, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_byte_now_and_then_is_never_given_up() {
        let (mut peer, mut socket) = pair(TIMEOUT, |_| panic!("it was given up"));
        let start = Instant::now();
        let slow = async {
            for _ in 0..20 {
                tokio::time::sleep(TIMEOUT - Duration::from_secs(1)).await;
                peer.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(socket.write_all(&[0; ROOM + 20]), slow);
        written.unwrap();
        assert!(start.elapsed() > TIMEOUT * 19, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_not_written_to_is_never_given_up() {
        let (_peer, mut socket) = pair(TIMEOUT, |_| panic!("it was given up"));
        // The pipe is full, but no write waits.
        socket.write_all(&[0; ROOM]).await.unwrap();
        let idle = tokio::time::timeout(TIMEOUT * 100, socket.read_u8()).await;
        assert!(idle.is_err() && socket.waiting.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_is_counted_from_its_own_start() {
        let (mut peer, mut socket) = pair(TIMEOUT, |_| panic!("it was given up"));
        for _ in 0..3 {
            let slow = async {
                tokio::time::sleep(TIMEOUT / 2).await;
                peer.read_exact(&mut [0; ROOM]).await.unwrap();
            };
            let (written, ()) = tokio::join!(socket.write_all(&[0; ROOM]), slow);
            written.unwrap();
            assert!(socket.waiting.is_none(), "nothing waits, nothing is timed");
            tokio::time::sleep(TIMEOUT).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_end_of_patience_a_write_waits_for_ever() {
        let (_peer, mut socket) = pair(Duration::ZERO, |_| panic!("it was given up"));
        let written = tokio::time::timeout(TIMEOUT * 100, socket.write_all(&[0; ROOM + 1])).await;
        assert!(written.is_err());
    }
}
