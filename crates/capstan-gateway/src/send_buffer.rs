//! A socket whose room in the kernel fits what is written to it: little for most, who read as fast as a run speaks, and more for
//! one who is sent much at a time and would otherwise be woken for every few dozen kilobytes.
//!
//! Whoever stops reading holds what there is room for. Long writes are as few as their own memory allows ([`capstan_journal`] lends it),
//! so that much room is as well; and with the first short one it is little again.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What the kernel may hold for a connection (it takes twice as much): left to itself it lends megabytes to a reader
/// that has stopped reading. Enough for a megabyte a second to the other side of the world.
pub(crate) const USUAL: usize = 64 * 1024;
/// The same for long writes, if the system allows as much.
const WIDE: usize = 1024 * 1024;
/// A write is long from here on.
const LONG: usize = 128 * 1024;

/// A connection that was accepted with the usual room.
pub(crate) struct FittingBuffer {
    socket: TcpStream,
    is_wide: bool,
}

impl FittingBuffer {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket, is_wide: false }
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    fn fit(&mut self, bytes: usize) {
        let is_wide = bytes >= LONG;
        if is_wide != self.is_wide {
            self.is_wide = is_wide;
            // Without it the socket works as well.
            let room = if is_wide { WIDE } else { USUAL };
            let _ = SockRef::from(&self.socket).set_send_buffer_size(room);
        }
    }
}

impl AsyncWrite for FittingBuffer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.fit(bytes.len());
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.fit(bytes.iter().map(|slice| slice.len()).sum());
        Pin::new(&mut self.socket).poll_write_vectored(cx, bytes)
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

impl AsyncRead for FittingBuffer {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn room_is_much_for_long_writes_and_little_again_after_a_short_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        SockRef::from(&listener).set_send_buffer_size(USUAL).unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut socket = FittingBuffer::new(listener.accept().await.unwrap().0);
        let room = |socket: &FittingBuffer| SockRef::from(&socket.socket).send_buffer_size().unwrap();
        let usual = room(&socket);
        // Nobody reads, so that only some of it is taken.
        assert!(socket.write(&[b'x'; LONG]).await.unwrap() > 0);
        assert!(room(&socket) > usual, "{usual}");
        let _ = tokio::time::timeout(std::time::Duration::from_millis(1), socket.write(b"a token")).await;
        assert_eq!(room(&socket), usual);
        drop(peer);
    }
}
