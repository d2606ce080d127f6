//! One connection: requests in, steps out. Implements as much of HTTP/1.1 as it needs, and can
//! break it.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::packing::Packing;
use crate::record::{self, Ending};
use crate::request::Request;
use crate::step::Step;

/// The longest request, in bytes. A conversation may contain pictures.
const LONGEST: usize = 64 * 1024 * 1024;

pub(crate) struct Connection {
    socket: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(socket: TcpStream) -> Self {
        // Tokens are small and must not wait for each other.
        let _ = socket.set_nodelay(true);
        Self { socket, buffer: Vec::new() }
    }

    /// The next request; `None` if the client has closed, or sent something else than HTTP.
    pub(crate) async fn request(&mut self) -> Option<Request> {
        loop {
            if let Some((request, used)) = parse(&self.buffer)? {
                self.buffer.drain(..used);
                return Some(request);
            }
            if self.buffer.len() > LONGEST || self.read().await? == 0 {
                return None;
            }
        }
    }

    async fn read(&mut self) -> Option<usize> {
        self.socket.read_buf(&mut self.buffer).await.ok()
    }

    /// Does the steps, and calls `token` for each token. Returns how the call ended, and whether
    /// the connection can serve another.
    pub(crate) async fn perform(
        &mut self,
        steps: Vec<Step>,
        mut token: impl FnMut(),
    ) -> (Ending, bool) {
        let mut packing = Packing::Plain;
        for step in steps {
            let done = match step {
                Step::Whole { status, kind, headers, body } => {
                    self.collected(status, kind, &headers, &body).await.map(|()| None)
                }
                Step::Open(own) => {
                    packing = own;
                    self.open(&packing).await.map(|()| None)
                }
                Step::Write { bytes, is_token } => {
                    let sent = self.chunk(&packing.pack(&bytes)).await;
                    if is_token && sent.is_ok() {
                        token();
                    }
                    sent.map(|()| None)
                }
                Step::Pause(time) => self.wait(Some(time)).await.map(|()| None),
                Step::Pulse { bytes, every } => loop {
                    let sent = self.chunk(&packing.pack(&bytes)).await;
                    if let Err(error) = match sent {
                        Ok(()) => self.wait(Some(every)).await,
                        Err(error) => Err(error),
                    } {
                        break Err(error);
                    }
                },
                Step::Silence(time) => self.wait(time).await.map(|()| Some(Ending::Broken)),
                Step::Reset => {
                    // The written bytes go out first; the reset replaces the end.
                    let _ = self.socket.set_zero_linger();
                    Ok(Some(Ending::Broken))
                }
                Step::Close => Ok(Some(Ending::Broken)),
                Step::End => self.end(&packing).await.map(|()| None),
            };
            match done {
                Ok(None) => {}
                Ok(Some(ending)) => return (ending, false),
                Err(_) => return (Ending::HungUp, false),
            }
        }
        (Ending::Complete, true)
    }

    async fn collected(
        &mut self,
        status: u16,
        kind: &str,
        headers: &[(&'static str, String)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {status} {}\r\ncontent-type: {kind}\r\n", phrase(status));
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        self.socket.write_all(&[head.as_bytes(), body].concat()).await
    }

    async fn open(&mut self, packing: &Packing) -> io::Result<()> {
        let encoding =
            packing.name().map(|name| format!("content-encoding: {name}\r\n")).unwrap_or_default();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: \
             chunked\r\n{encoding}\r\n"
        );
        self.socket.write_all(head.as_bytes()).await?;
        self.chunk(packing.head()).await
    }

    async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let head = format!("{:x}\r\n", bytes.len());
        self.socket.write_all(&[head.as_bytes(), bytes, b"\r\n"].concat()).await
    }

    async fn end(&mut self, packing: &Packing) -> io::Result<()> {
        self.chunk(&packing.tail()).await?;
        self.socket.write_all(b"0\r\n\r\n").await
    }

    /// Waits, for ever without a time. An error if the client closes meanwhile.
    async fn wait(&mut self, time: Option<Duration>) -> io::Result<()> {
        let over = async {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => Ok(()),
            error = hang_up(&mut self.socket, &mut self.buffer) => Err(error),
        }
    }
}

/// Returns when the client has closed. Bytes that arrive meanwhile are the beginning of its next
/// request.
async fn hang_up(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Error {
    loop {
        match socket.read_buf(buffer).await {
            Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(_) if buffer.len() > LONGEST => return io::ErrorKind::InvalidData.into(),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

/// A request at the start of the bytes, and its length. The outer `None` means that it is
/// malformed.
fn parse(bytes: &[u8]) -> Option<Option<(Request, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut head = httparse::Request::new(&mut headers);
    let Ok(status) = head.parse(bytes) else { return None };
    let httparse::Status::Complete(at) = status else { return Some(None) };
    let headers: Vec<(String, String)> =
        head.headers.iter().map(|header| record::header(header.name, header.value)).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(Some(0), |(_, length)| length.trim().parse().ok())?;
    let end = at.checked_add(length).filter(|end| *end <= LONGEST)?;
    let Some(body) = bytes.get(at..end) else { return Some(None) };
    let (path, query) =
        head.path.map(|path| path.split_once('?').unwrap_or((path, ""))).unwrap_or_default();
    let request = Request {
        method: head.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body: body.to_vec(),
    };
    Some(Some((request, end)))
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Status",
    }
}
