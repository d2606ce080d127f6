//! The client over real sockets, against a server that says exactly what a script says: the cases that SSE clients are
//! known to get wrong, and a plain CAP server that knows nothing of our extensions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use capstan_client::protocol::{Close, Cursor, Payload, StreamPacket, Timestamp};
use capstan_client::{CapClient, CapError, Options, PacketStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use uuid::Uuid;

const STREAM: Uuid = Uuid::from_u128(7);

/// A request as it came over the socket.
#[derive(Debug, Clone)]
struct Seen {
    line: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Seen {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

struct Scripted {
    url: String,
    requests: mpsc::UnboundedReceiver<Seen>,
}

/// Answers each connection with the next of `answers`, then hangs up.
async fn scripted(answers: Vec<Vec<u8>>) -> Scripted {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = sender.send(read_request(&mut socket).await);
            // In small pieces, so that no client can count on frames coming whole.
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

async fn read_request(socket: &mut TcpStream) -> Seen {
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
            let length =
                headers.iter().find(|(n, _)| n == "content-length").map_or(0, |(_, v)| v.parse().unwrap());
            if body.len() >= length {
                return Seen { line, headers, body: body.to_owned() };
            }
        }
        if socket.read_buf(&mut bytes).await.unwrap() == 0 {
            panic!("the request broke off: {text:?}", text = String::from_utf8_lossy(&bytes));
        }
    }
}

fn respond(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\n\r\n{body}").into_bytes()
}

fn sse(body: &str) -> Vec<u8> {
    respond("200 OK", "content-type: text/event-stream\r\n", body)
}

fn packet(seq: u64, payload: Payload) -> StreamPacket {
    StreamPacket { stream_id: STREAM, seq, t: Timestamp::from_micros(0), payload }
}

/// A frame with an id of the server's own choosing.
fn frame(id: Option<&str>, seq: u64, text: &str) -> String {
    let id = id.map_or(String::new(), |id| format!("id: {id}\n"));
    format!("{id}data: {}\n\n", packet(seq, Payload::Delta(text.into())).to_json())
}

fn close(seq: u64) -> String {
    format!("data: {}\n\n", packet(seq, Payload::Close(Close::Reason("completed".into()))).to_json())
}

fn client(url: &str) -> CapClient {
    let options = Options::new().backoff(Duration::from_millis(100), Duration::from_millis(100));
    CapClient::with_options(url, "sk_test", options).unwrap()
}

async fn text_of(mut packets: PacketStream) -> Result<String, CapError> {
    let mut text = String::new();
    while let Some(packet) = packets.next().await? {
        if let Payload::Delta(piece) = packet.payload {
            text.push_str(&piece);
        }
    }
    Ok(text)
}

async fn ask(url: &str) -> Result<String, CapError> {
    let client = client(url);
    text_of(client.assist(&client.question(Uuid::now_v7(), "Hi"))).await
}

#[tokio::test]
async fn line_ends_of_every_kind_and_a_byte_order_mark_are_read() {
    for end in ["\n", "\r\n", "\r"] {
        let body = format!("\u{feff}{}{}", frame(None, 1, "naïve ☃"), close(2)).replace('\n', end);
        let server = scripted(vec![sse(&body)]).await;
        assert_eq!(ask(&server.url).await.unwrap(), "naïve ☃", "{end:?}");
    }
}

#[tokio::test]
async fn comments_blank_lines_foreign_events_and_unknown_fields_are_skipped() {
    let noise = ": hello\n\n\nevent: ping\ndata: x\n\nunknown: field\nid\nretry: soon\n\n:\n";
    let server = scripted(vec![sse(&format!("{noise}{}{noise}{}", frame(None, 1, "a"), close(2)))]).await;
    assert_eq!(ask(&server.url).await.unwrap(), "a");
}

#[tokio::test]
async fn data_in_several_lines_is_one_packet() {
    let json = packet(1, Payload::Delta("a".into())).to_json();
    let (first, second) = json.split_once(",\"op\"").unwrap();
    let body = format!("data: {first}\ndata: ,\"op\"{second}\n\n{}", close(2));
    let server = scripted(vec![sse(&body)]).await;
    assert_eq!(ask(&server.url).await.unwrap(), "a");
}

#[tokio::test]
async fn a_partial_event_is_discarded_and_the_last_whole_id_is_sent() {
    let cut = frame(Some("seven"), 2, "lost").replace("\n\n", "\n");
    let first = format!("{}{cut}", frame(Some("six"), 1, "a"));
    let server =
        scripted(vec![sse(&first), sse(&format!("{}{}", frame(Some("seven"), 2, "b"), close(3)))]).await;
    let mut requests = server.requests;
    assert_eq!(ask(&server.url).await.unwrap(), "ab");
    assert_eq!(requests.recv().await.unwrap().header("last-event-id"), None);
    assert_eq!(requests.recv().await.unwrap().header("last-event-id"), Some("six"));
}

#[tokio::test]
async fn a_retry_is_the_very_same_request() {
    let server = scripted(vec![sse(""), sse(&close(1))]).await;
    let mut requests = server.requests;
    ask(&server.url).await.unwrap();
    let (first, second) = (requests.recv().await.unwrap(), requests.recv().await.unwrap());
    assert_eq!((&first.line, &first.body), (&second.line, &second.body));
    assert_eq!(first.line, "POST /assist HTTP/1.1");
    let key = serde_json::from_str::<serde_json::Value>(&first.body).unwrap()["request_id"].clone();
    for request in [&first, &second] {
        assert_eq!(request.header("x-request-id"), key.as_str());
        assert_eq!(request.header("authorization"), Some("Bearer sk_test"));
        assert_eq!(request.header("accept"), Some("text/event-stream"));
        assert_eq!(request.header("x-cap-accept"), Some("stream_reset"));
    }
}

#[tokio::test]
async fn an_id_that_is_emptied_is_forgotten() {
    let first = format!("{}id:\n\n", frame(Some("six"), 1, "a"));
    let server = scripted(vec![sse(&first), sse(&close(2))]).await;
    let mut requests = server.requests;
    ask(&server.url).await.unwrap();
    requests.recv().await.unwrap();
    assert_eq!(
        requests.recv().await.unwrap().header("last-event-id"),
        Some(STREAM.to_string().as_str()),
        "the stream's own id is left"
    );
}

#[tokio::test]
async fn an_id_with_a_nul_is_ignored() {
    let first = format!("{}id: a\0b\n{}", frame(Some("six"), 1, "a"), frame(None, 2, "b"));
    let server = scripted(vec![sse(&first), sse(&close(3))]).await;
    let mut requests = server.requests;
    ask(&server.url).await.unwrap();
    requests.recv().await.unwrap();
    assert_eq!(requests.recv().await.unwrap().header("last-event-id"), Some("six"));
}

#[tokio::test]
async fn redirects_that_keep_the_method_are_followed() {
    for status in ["307 Temporary Redirect", "308 Permanent Redirect"] {
        let target = scripted(vec![sse(&format!("{}{}", frame(None, 1, "a"), close(2)))]).await;
        let location = format!("location: {}/elsewhere\r\ncontent-length: 0\r\n", target.url);
        let server = scripted(vec![respond(status, &location, "")]).await;
        let mut requests = target.requests;
        assert_eq!(ask(&server.url).await.unwrap(), "a");
        let request = requests.recv().await.unwrap();
        assert_eq!(request.line, "POST /elsewhere HTTP/1.1");
        assert!(request.body.contains("request_id"), "{status}");
        assert_eq!(request.header("authorization"), None, "a key does not go to another server");
    }
}

#[tokio::test]
async fn no_content_ends_a_viewer_and_is_no_answer_to_a_question() {
    let nothing = || respond("204 No Content", "", "");
    let server = scripted(vec![nothing(), nothing()]).await;
    assert_eq!(text_of(client(&server.url).attach(Cursor::start(STREAM))).await.unwrap(), "");
    assert!(matches!(ask(&server.url).await, Err(CapError::Protocol(_))));
}

#[tokio::test]
async fn a_body_cut_inside_a_chunk_is_a_lost_connection() {
    let chunked = "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n";
    let whole = frame(None, 1, "a");
    let cut = respond("200 OK", chunked, &format!("{:x}\r\n{whole}\r\nffff\r\ndata: {{", whole.len()));
    let server = scripted(vec![cut, sse(&format!("{whole}{}", close(2)))]).await;
    assert_eq!(ask(&server.url).await.unwrap(), "a");
}

#[tokio::test]
async fn other_content_types_and_refusals_fail_at_once() {
    let html = respond("200 OK", "content-type: text/html\r\n", "<p>hello");
    let server =
        scripted(vec![html, respond("401 Unauthorized", "content-type: text/plain\r\n", "no")]).await;
    assert!(matches!(ask(&server.url).await, Err(CapError::Protocol(_))));
    let refused = ask(&server.url).await.unwrap_err();
    assert_eq!(refused.as_runtime().unwrap().status, Some(401));
    assert!(refused.to_string().contains("status 401"), "{refused}");
}

#[tokio::test]
async fn a_silent_server_is_left_after_the_read_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        read_request(&mut first).await;
        first.write_all(&sse(&frame(None, 1, "a"))).await.unwrap();
        // Kept open, and silent.
        let (mut second, _) = listener.accept().await.unwrap();
        read_request(&mut second).await;
        second.write_all(&sse(&close(2))).await.unwrap();
    });
    let options = Options::new()
        .read_timeout(Duration::from_millis(300))
        .backoff(Duration::from_millis(100), Duration::from_millis(100));
    let client = CapClient::with_options(&url, "", options).unwrap();
    assert_eq!(text_of(client.assist(&client.question(Uuid::now_v7(), "Hi"))).await.unwrap(), "a");
}

#[tokio::test]
async fn a_plain_server_that_replays_from_the_start_is_healed() {
    let (a, b) = (frame(None, 1, "a"), frame(None, 2, "b"));
    let server = scripted(vec![sse(&a), sse(&format!("{a}{b}")), sse(&format!("{a}{b}{}", close(3)))]).await;
    let mut requests = server.requests;
    assert_eq!(ask(&server.url).await.unwrap(), "ab");
    requests.recv().await.unwrap();
    assert_eq!(requests.recv().await.unwrap().header("last-event-id"), Some(STREAM.to_string().as_str()));
}

#[tokio::test]
async fn a_slash_at_the_end_of_the_base_url_does_no_harm() {
    for (base, path) in [("/", "/assist"), ("/api/", "/api/assist"), ("/v1", "/v1/assist")] {
        let server = scripted(vec![sse(&close(1))]).await;
        let mut requests = server.requests;
        ask(&format!("{}{base}", server.url)).await.unwrap();
        assert_eq!(requests.recv().await.unwrap().line, format!("POST {path} HTTP/1.1"));
    }
}
