//! A server on a real socket that sends exactly what a script contains.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use capstan_client::protocol::{Close, Payload, StreamPacket, Timestamp};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use uuid::Uuid;

pub(crate) const STREAM: Uuid = Uuid::from_u128(7);

/// A request that arrived on the socket.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub line: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) struct Scripted {
    pub url: String,
    pub requests: mpsc::UnboundedReceiver<Seen>,
}

/// Answers each connection with the next of `answers`, then hangs up.
pub(crate) async fn scripted(answers: Vec<Vec<u8>>) -> Scripted {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = sender.send(read_request(&mut socket).await);
            // In small pieces, so that clients cannot rely on complete frames.
            for piece in answer.chunks(7) {
                if socket.write_all(piece).await.is_err() {
                    break;
                }
            }
            let _ = socket.shutdown().await;
        }
    });
    Scripted { url, requests }
}

pub(crate) async fn read_request(socket: &mut TcpStream) -> Seen {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lines = head.lines();
            let line = lines.next().unwrap().to_owned();
            let headers: Vec<_> = lines
                .filter_map(|l| l.split_once(": "))
                .map(|(n, v)| (n.to_ascii_lowercase(), v.to_owned()))
                .collect();
            let length = headers
                .iter()
                .find(|(n, _)| n == "content-length")
                .map_or(0, |(_, v)| v.parse().unwrap());
            if body.len() >= length {
                return Seen { line, headers, body: body.to_owned() };
            }
        }
        if socket.read_buf(&mut bytes).await.unwrap() == 0 {
            panic!("the request broke off: {text:?}", text = String::from_utf8_lossy(&bytes));
        }
    }
}

pub(crate) fn respond(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n\r\n{body}").into_bytes()
}

pub(crate) fn sse(body: &str) -> Vec<u8> {
    respond("200 OK", "content-type: text/event-stream\r\n", body)
}

pub(crate) fn packet(seq: u64, payload: Payload) -> StreamPacket {
    StreamPacket { stream_id: STREAM, seq, t: Timestamp::from_micros(0), payload }
}

/// A frame with an id of the server's own choosing.
pub(crate) fn frame(id: Option<&str>, seq: u64, text: &str) -> String {
    let id = id.map_or(String::new(), |id| format!("id: {id}\n"));
    format!("{id}data: {}\n\n", packet(seq, Payload::Delta(text.into())).to_json())
}

pub(crate) fn close(seq: u64) -> String {
    format!(
        "data: {}\n\n",
        packet(seq, Payload::Close(Close::Reason("completed".into()))).to_json()
    )
}
