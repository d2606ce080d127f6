//! A socket that is given up when its peer takes nothing for too long. A peer that is not written
//! to is never given up, and has no timer.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A socket whose writes fail when none gets on for as long as `patience`. Reads are as ever.
///
/// A write gets on when the kernel takes some of it. It says that it does once about a third of its
/// buffer is free again, so that a peer which is slower than that in `patience` counts as one that
/// takes nothing.
pub(crate) struct StallTimeout<S, F> {
    socket: S,
    /// No end of it if zero.
    patience: Duration,
    /// There only while a write waits: most viewers are idle.
    waiting: Option<Pin<Box<Sleep>>>,
    give_up: F,
}

impl<S, F: FnMut(&S)> StallTimeout<S, F> {
    /// `give_up` is called once, before the write fails.
    pub(crate) fn new(socket: S, patience: Duration, give_up: F) -> Self {
        Self { socket, patience, waiting: None, give_up }
    }

    /// What a write came to, or its failure if it has waited for too long.
    fn judge(
        &mut self,
        cx: &mut Context<'_>,
        write: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if write.is_ready() || self.patience.is_zero() {
            self.waiting = None;
            return write;
        }
        let patience = self.patience;
        ready!(self.waiting.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(cx));
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
        self.judge(cx, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.socket).poll_write_vectored(cx, bytes);
        self.judge(cx, write)
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

    const PATIENCE: Duration = Duration::from_secs(60);
    /// What the pipe between the two holds.
    const ROOM: usize = 8;

    /// A peer, and the patient side of the pipe to it.
    fn pair<F: FnMut(&DuplexStream)>(
        patience: Duration,
        give_up: F,
    ) -> (DuplexStream, StallTimeout<DuplexStream, F>) {
        let (peer, socket) = duplex(ROOM);
        (peer, StallTimeout::new(socket, patience, give_up))
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up_when_patience_ends() {
        let mut given_up = 0;
        let (_peer, mut socket) = pair(PATIENCE, |_| given_up += 1);
        let start = Instant::now();
        let error = socket.write_all(&[0; ROOM + 1]).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
        drop(socket);
        assert_eq!(given_up, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_byte_now_and_then_is_never_given_up() {
        let (mut peer, mut socket) = pair(PATIENCE, |_| panic!("it was given up"));
        let start = Instant::now();
        let slow = async {
            for _ in 0..20 {
                tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
                peer.read_u8().await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(socket.write_all(&[0; ROOM + 20]), slow);
        written.unwrap();
        assert!(start.elapsed() > PATIENCE * 19, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_not_written_to_is_never_given_up() {
        let (_peer, mut socket) = pair(PATIENCE, |_| panic!("it was given up"));
        // Full, but nothing waits.
        socket.write_all(&[0; ROOM]).await.unwrap();
        let idle = tokio::time::timeout(PATIENCE * 100, socket.read_u8()).await;
        assert!(idle.is_err() && socket.waiting.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_is_counted_from_its_own_start() {
        let (mut peer, mut socket) = pair(PATIENCE, |_| panic!("it was given up"));
        for _ in 0..3 {
            let slow = async {
                tokio::time::sleep(PATIENCE / 2).await;
                peer.read_exact(&mut [0; ROOM]).await.unwrap();
            };
            let (written, ()) = tokio::join!(socket.write_all(&[0; ROOM]), slow);
            written.unwrap();
            assert!(socket.waiting.is_none(), "nothing waits, nothing is timed");
            tokio::time::sleep(PATIENCE).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_end_of_patience_a_write_waits_for_ever() {
        let (_peer, mut socket) = pair(Duration::ZERO, |_| panic!("it was given up"));
        let written = tokio::time::timeout(PATIENCE * 100, socket.write_all(&[0; ROOM + 1])).await;
        assert!(written.is_err());
    }
}
