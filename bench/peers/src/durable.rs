//! Durable Streams as a client uses them: a stream is made, fed by POSTs of some tokens each, and
//! read as events.

use std::io;
use std::net::SocketAddr;

use capstan_bench_kit::response::Response;
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::contender::Contender;

/// What it counts as generous: a writer that has waited for so many before it sends them.
pub const A_POST: usize = 100;

/// A stream and the connection of its writer, which is kept.
pub struct Durable {
    socket: TcpStream,
    address: SocketAddr,
    path: String,
    /// Where the stream ends so far.
    pub offset: String,
}

impl Durable {
    pub async fn make(contender: Contender, address: SocketAddr) -> io::Result<Self> {
        let folder = if contender == Contender::DurableRust { "/v1/stream" } else { "" };
        let path = format!("{folder}/run-{}", Uuid::now_v7());
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let mut made = Self { socket, address, path, offset: String::new() };
        made.request("PUT", "").await?;
        Ok(made)
    }

    /// So many tokens from the n-th on, in one POST.
    pub async fn append(&mut self, from: usize, count: usize) -> io::Result<()> {
        let token = |n| format!("{{\"type\":\"text-delta\",\"id\":\"1\",\"delta\":\"tok{n} \"}}");
        let items: Vec<String> = (from..from + count).map(token).collect();
        self.request("POST", &format!("[{}]", items.join(","))).await
    }

    /// Reads on from a place, as events.
    pub async fn read(&self, offset: &str) -> io::Result<Response> {
        let path = format!("{}?offset={offset}&live=sse", self.path);
        Response::get(self.address, &path, "accept: text/event-stream\r\n").await
    }

    async fn request(&mut self, method: &str, body: &str) -> io::Result<()> {
        let request = format!(
            "{method} {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: \
             application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.path,
            body.len()
        );
        self.socket.write_all(request.as_bytes()).await?;
        let head = self.head().await?;
        if !head.starts_with("HTTP/1.1 2") {
            return Err(io::Error::other(format!("{method} {}: {head}", self.path)));
        }
        let lower = head.to_ascii_lowercase();
        let offset = lower
            .lines()
            .zip(head.lines())
            .find(|(name, _)| name.starts_with("stream-next-offset:"));
        self.offset = offset
            .and_then(|(_, line)| line.split_once(": "))
            .map(|(_, at)| at.to_owned())
            .unwrap_or_default();
        Ok(())
    }

    /// The head of an answer that has no body, or one of no chunks.
    async fn head(&mut self) -> io::Result<String> {
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        while !is_whole(&seen) {
            let n = self.socket.read(&mut buffer).await?;
            if n == 0 {
                return Err(io::Error::other("the writer's connection was closed"));
            }
            seen.extend_from_slice(&buffer[..n]);
        }
        Ok(String::from_utf8_lossy(&seen).into_owned())
    }
}

fn is_whole(seen: &[u8]) -> bool {
    let chunked = seen.to_ascii_lowercase();
    match memmem::find(&chunked, b"transfer-encoding: chunked") {
        Some(_) => seen.ends_with(b"\r\n\r\n0\r\n\r\n"),
        None => seen.ends_with(b"\r\n\r\n"),
    }
}
