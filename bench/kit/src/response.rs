//! The cheapest client there is: it writes a request and counts what comes. It must not be what is
//! measured.

use std::io;
use std::net::SocketAddr;

use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Read at once; large, so that a fast stream costs few system calls.
const BUFFER: usize = 256 * 1024;

/// A response under way.
pub struct Response {
    socket: TcpStream,
    buffer: Vec<u8>,
    /// What was read and not yet looked at.
    pub unread: Vec<u8>,
}

/// What a body held.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    pub bytes: u64,
    pub frames: u64,
}

impl Response {
    pub async fn get(address: SocketAddr, path: &str, headers: &str) -> io::Result<Self> {
        Self::send(address, &format!("GET {path}"), headers, "").await
    }

    pub async fn send(
        address: SocketAddr,
        line: &str,
        headers: &str,
        body: &str,
    ) -> io::Result<Self> {
        let mut socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let request = format!(
            "{line} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n{body}"
        );
        socket.write_all(request.as_bytes()).await?;
        Ok(Self { socket, buffer: Vec::new(), unread: Vec::new() })
    }

    /// The next bytes; none at the end.
    pub async fn read(&mut self) -> io::Result<&[u8]> {
        self.buffer.resize(BUFFER, 0);
        let read = self.socket.read(&mut self.buffer).await?;
        Ok(&self.buffer[..read])
    }

    /// As `read`, but the end is an error.
    pub async fn read_some(&mut self) -> io::Result<&[u8]> {
        match self.read().await? {
            [] => Err(io::Error::other("the body ended")),
            bytes => Ok(bytes),
        }
    }

    /// Reads to the end and counts blank lines. A frame lies within one chunk, so none is cut by a
    /// chunk's head.
    pub async fn count(&mut self) -> io::Result<Tally> {
        let mut tally = Tally::default();
        let finder = memmem::Finder::new("\n\n");
        let mut ended_in_newline = false;
        loop {
            let bytes = self.read().await?;
            if bytes.is_empty() {
                return Ok(tally);
            }
            tally.bytes += bytes.len() as u64;
            tally.frames += finder.find_iter(bytes).count() as u64;
            tally.frames += u64::from(ended_in_newline && bytes.first() == Some(&b'\n'));
            ended_in_newline = bytes.last() == Some(&b'\n') && !bytes.ends_with(b"\n\n");
        }
    }

    /// Reads until `wanted` has come; what was read so far is in `unread`.
    pub async fn until(&mut self, wanted: &str) -> io::Result<()> {
        let finder = memmem::Finder::new(wanted);
        while finder.find(&self.unread).is_none() {
            let read = self.read_some().await?.len();
            self.unread.extend_from_slice(&self.buffer[..read]);
        }
        Ok(())
    }

    /// The value of a header of the response.
    pub async fn header(&mut self, name: &str) -> io::Result<String> {
        self.until("\r\n\r\n").await?;
        let text = String::from_utf8_lossy(&self.unread).into_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map(str::to_owned).ok_or_else(|| io::Error::other(format!("no {name}: {text}")))
    }

    /// Gives the buffer back: for those who only hold the connection.
    pub fn rest(&mut self) {
        (self.buffer, self.unread) = (Vec::new(), Vec::new());
    }
}
