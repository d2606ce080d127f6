//! The way to the client: bytes at a pace, bodies in chunks. Written by hand, because a proper HTTP
//! server would not leave a chunk unfinished.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until};

use crate::framing::{CHUNK_END, LAST_CHUNK, chunk_start};

/// The number of writes per second under a throttle.
const PIECES_PER_SECOND: u64 = 20;

/// The pace of writes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// Whether each byte is a write.
    pub(crate) drip: bool,
    /// The limit, if there is one.
    pub(crate) bytes_per_second: Option<u64>,
}

impl Pace {
    fn piece(self) -> usize {
        match self.bytes_per_second {
            _ if self.drip => 1,
            Some(rate) => usize::try_from(rate / PIECES_PER_SECOND).unwrap_or(usize::MAX).max(1),
            None => usize::MAX,
        }
    }
}

/// The client's socket.
#[derive(Debug)]
pub(crate) struct Outlet<W> {
    socket: W,
    pace: Pace,
    /// When a throttled line is free again.
    free: Instant,
    is_chunked: bool,
}

impl<W: AsyncWrite + Unpin> Outlet<W> {
    pub(crate) fn new(socket: W) -> Self {
        Self { socket, pace: Pace::default(), free: Instant::now(), is_chunked: false }
    }

    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Whether the body goes out in chunks.
    pub(crate) fn set_chunked(&mut self, is_chunked: bool) {
        self.is_chunked = is_chunked;
    }

    /// Bytes as they are.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(self.pace.piece()) {
            self.socket.write_all(piece).await?;
            self.pause(piece.len()).await;
        }
        Ok(())
    }

    async fn pause(&mut self, length: usize) {
        if let Some(rate) = self.pace.bytes_per_second {
            let time = Duration::from_secs_f64(length as f64 / rate as f64);
            self.free = self.free.max(Instant::now()) + time;
            sleep_until(self.free).await;
        } else if self.pace.drip {
            // Let the reader have the byte before the next one joins it.
            tokio::task::yield_now().await;
        }
    }

    /// Writes a complete chunk. An empty one would end the body.
    pub(crate) async fn write_chunk(&mut self, data: &[u8]) -> io::Result<()> {
        self.start_chunk(data.len()).await?;
        self.write(data).await?;
        self.end_chunk(data.len()).await
    }

    pub(crate) async fn start_chunk(&mut self, length: usize) -> io::Result<()> {
        if self.is_chunked && length > 0 { self.write(&chunk_start(length)).await } else { Ok(()) }
    }

    pub(crate) async fn end_chunk(&mut self, length: usize) -> io::Result<()> {
        if self.is_chunked && length > 0 { self.write(CHUNK_END).await } else { Ok(()) }
    }

    /// The well-formed end of the body.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        if self.is_chunked { self.write(LAST_CHUNK).await } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_throttled_line_takes_its_time() {
        for (rate, length, seconds) in [(1000, 10_000, 10.0), (3, 9, 3.0), (u64::MAX, 9, 0.0)] {
            let mut outlet = Outlet::new(tokio::io::sink());
            outlet.set_pace(Pace { drip: false, bytes_per_second: Some(rate) });
            let start = Instant::now();
            outlet.write(&vec![0; length]).await.unwrap();
            let error = start.elapsed().as_secs_f64() - seconds;
            assert!((0.0..0.01).contains(&error), "{rate}: {error} s off");
        }
    }

    #[tokio::test]
    async fn a_dripping_line_writes_single_bytes() {
        let mut socket = writes::Writes::default();
        let mut outlet = Outlet::new(&mut socket);
        outlet.set_pace(Pace { drip: true, bytes_per_second: None });
        outlet.set_chunked(true);
        outlet.write_chunk(b"abc").await.unwrap();
        outlet.finish().await.unwrap();
        assert!(socket.0.iter().all(|write| write.len() == 1));
        assert_eq!(socket.0.concat(), b"3\r\nabc\r\n0\r\n\r\n");
    }

    /// A socket that remembers each write.
    mod writes {
        use std::io;
        use std::pin::Pin;
        use std::task::{Context, Poll};

        use tokio::io::AsyncWrite;

        #[derive(Default)]
        pub(super) struct Writes(pub(super) Vec<Vec<u8>>);

        impl AsyncWrite for Writes {
            fn poll_write(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.0.push(bytes.to_vec());
                Poll::Ready(Ok(bytes.len()))
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }
    }
}
