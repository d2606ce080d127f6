//! A caller: asks, and notes when each token comes.

use std::io;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{TOKENS, now};

pub fn question(nth: usize) -> String {
    let id = uuid::Uuid::now_v7();
    json!({ "request_id": id, "context": { "session_id": id, "agent_id": uuid::Uuid::nil(),
        "user": { "user_id": "u", "tier": "t", "locale": "en" }, "trace": { "trace_id": id,
        "span_id": id },
        "permissions": [], "created_at": "2026-02-03T10:15:37Z" },
        "payload": { "session_id": id, "payload": { "query": format!("stream {nth}") } } })
    .to_string()
}

/// One stream as its caller saw it, in microseconds since 1970.
pub struct Seen {
    pub asked: u64,
    /// When the head of the response came: for the gateway, when the run was claimed and the claim
    /// synced.
    pub answered: u64,
    /// Each token's sending and coming.
    pub tokens: Vec<(u64, u64)>,
}

pub async fn call(address: &str, path: &str, body: &str) -> io::Result<Seen> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let asked = now();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: \
         text/event-stream\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    let mut seen = Seen { asked, answered: 0, tokens: Vec::new() };
    let (mut rest, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
    while seen.tokens.len() < TOKENS {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            break;
        }
        let came = now();
        if seen.answered == 0 {
            seen.answered = came;
        }
        rest.extend_from_slice(&buffer[..n]);
        take(&mut rest, came, &mut seen.tokens);
    }
    Ok(seen)
}

/// Tokens look like `@<microseconds>@` on either wire.
fn take(rest: &mut Vec<u8>, came: u64, arrivals: &mut Vec<(u64, u64)>) {
    let mut done = 0;
    while let Some(start) = rest[done..].iter().position(|byte| *byte == b'@').map(|at| done + at) {
        let Some(len) = rest[start + 1..].iter().position(|byte| *byte == b'@') else {
            done = start;
            break;
        };
        let digits = std::str::from_utf8(&rest[start + 1..start + 1 + len]).unwrap_or_default();
        if let Ok(sent) = digits.parse() {
            arrivals.push((sent, came));
        }
        done = start + len + 2;
    }
    let keep = rest.len().min(rest.len() - done.min(rest.len()));
    rest.drain(..rest.len() - keep);
    if !rest.starts_with(b"@") {
        rest.clear();
    }
}
