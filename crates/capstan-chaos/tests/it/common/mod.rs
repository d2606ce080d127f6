//! A scripted upstream and a plain client, both raw TCP, so that tests see bytes rather than a
//! library's view.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use capstan_chaos::{Chaos, Faults, Handle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Three packets of stream `s`, with a character of several bytes in the second.
pub(crate) const PACKETS: [&str; 3] = [
    "event: stream.packet\nid: s:1\ndata: {\"p\":\"one\"}\n\n",
    "event: stream.packet\nid: s:2\ndata: {\"p\":\"zw\u{f6}i\"}\n\n",
    "event: stream.packet\nid: s:3\ndata: {\"op\":\"CLOSE\"}\n\n",
];
pub(crate) const OPENING: &str = "retry: 500\nid: s:0\n\n";

pub(crate) fn body() -> String {
    format!("{OPENING}{}", PACKETS.concat())
}

/// A response in chunks of a few bytes, as slow networks deliver it.
pub(crate) fn stream(body: &str) -> Vec<u8> {
    let mut out =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-stream-id: s\r\n".to_vec();
    out.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    for chunk in body.as_bytes().chunks(7) {
        out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// A server that answers every request with the same bytes and records the requests.
pub(crate) struct Upstream {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    pub(crate) async fn start(response: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (response, seen) = (response.clone(), Arc::clone(&seen));
                tokio::spawn(async move {
                    let request = read_request(&mut socket).await;
                    seen.lock().unwrap().push(request);
                    let _ = socket.write_all(&response).await;
                });
            }
        });
        Self { address, requests }
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// Reads a request with its body, by its content-length.
async fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        if socket.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
            return text;
        }
    }
}

pub(crate) struct Proxy {
    pub address: SocketAddr,
    pub handle: Handle,
}

impl Proxy {
    pub(crate) async fn start(upstream: SocketAddr, faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let chaos = Chaos::new(upstream.into(), faults, 1);
        let handle = chaos.handle();
        tokio::spawn(chaos.serve(listener, std::future::pending()));
        Self { address, handle }
    }

    /// Requests a stream.
    pub(crate) async fn get(&self) -> Answer {
        self.send("GET /stream HTTP/1.1\r\naccept: text/event-stream\r\n\r\n").await
    }

    pub(crate) async fn resume(&self, cursor: &str) -> Answer {
        self.send(&format!(
            "GET /stream HTTP/1.1\r\naccept: text/event-stream\r\nlast-event-id: {cursor}\r\n\r\n"
        ))
        .await
    }

    pub(crate) async fn send(&self, request: &str) -> Answer {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let end = loop {
            match socket.read_buf(&mut bytes).await {
                Ok(0) => break Ok(()),
                Ok(_) => {}
                Err(error) => break Err(error.kind()),
            }
        };
        Answer { bytes, end }
    }
}

/// A started proxy in front of a started upstream that streams [`body`].
pub(crate) async fn proxy(faults: Faults) -> Proxy {
    let upstream = Upstream::start(stream(&body())).await;
    Proxy::start(upstream.address, faults).await
}

/// Everything that came, and how it ended: FIN is `Ok`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub bytes: Vec<u8>,
    pub end: Result<(), io::ErrorKind>,
}

impl Answer {
    pub(crate) fn head(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        text.split_once("\r\n\r\n").map(|(head, _)| head.to_owned()).unwrap_or_default()
    }

    /// The body's data so far, and whether the chunked encoding was well-formed to its end.
    /// end.
    pub(crate) fn dechunk(&self) -> (Vec<u8>, bool) {
        let start = self.bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let mut rest = &self.bytes[start..];
        let mut data = Vec::new();
        loop {
            let Some(line) = rest.windows(2).position(|w| w == b"\r\n") else {
                return (data, false);
            };
            let size =
                usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
            rest = &rest[line + 2..];
            data.extend_from_slice(&rest[..size.min(rest.len())]);
            if rest.len() < size + 2 {
                return (data, false);
            }
            assert_eq!(&rest[size..size + 2], b"\r\n");
            rest = &rest[size + 2..];
            if size == 0 {
                assert!(rest.is_empty(), "nothing follows the last chunk");
                return (data, true);
            }
        }
    }

    /// The body of a well-formed answer.
    pub(crate) fn text(&self) -> String {
        assert_eq!(self.end, Ok(()));
        let (data, is_whole) = self.dechunk();
        assert!(is_whole, "{}", String::from_utf8_lossy(&self.bytes));
        String::from_utf8(data).unwrap()
    }
}
