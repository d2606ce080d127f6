//! The client over real sockets, against a scripted server: cases that SSE clients often get wrong,
//! and a plain CAP server without our extensions.

use std::time::Duration;

use crate::common::scripted::{STREAM, close, frame, packet, read_request, respond, scripted, sse};
use capstan_client::protocol::{Cursor, Payload};
use capstan_client::{CapClient, CapError, Options, PacketStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};
use uuid::Uuid;

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
    let server =
        scripted(vec![sse(&format!("{noise}{}{noise}{}", frame(None, 1, "a"), close(2)))]).await;
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
        scripted(vec![sse(&first), sse(&format!("{}{}", frame(Some("seven"), 2, "b"), close(3)))])
            .await;
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
async fn redirects_within_the_origin_are_followed_with_method_and_key() {
    for status in ["307 Temporary Redirect", "308 Permanent Redirect"] {
        let moved = respond(status, "location: /elsewhere\r\ncontent-length: 0\r\n", "");
        let server =
            scripted(vec![moved, sse(&format!("{}{}", frame(None, 1, "a"), close(2)))]).await;
        let mut requests = server.requests;
        assert_eq!(ask(&server.url).await.unwrap(), "a");
        let (first, second) = (requests.recv().await.unwrap(), requests.recv().await.unwrap());
        assert_eq!(second.line, "POST /elsewhere HTTP/1.1");
        assert_eq!(first.body, second.body);
        assert_eq!(second.header("authorization"), Some("Bearer sk_test"), "{status}");
    }
}

#[tokio::test]
async fn nothing_goes_to_another_origin() {
    for status in
        ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
    {
        let mut target = scripted(vec![sse(&close(1))]).await;
        let location =
            format!("location: {}/elsewhere?token=secret\r\ncontent-length: 0\r\n", target.url);
        let server = scripted(vec![respond(status, &location, ""); 3]).await;
        let whole =
            client(&server.url).ask(&client(&server.url).question(Uuid::now_v7(), "Hi")).await;
        let errors = [
            ask(&server.url).await.unwrap_err(),
            whole.unwrap_err(),
            client(&server.url).health().await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, CapError::Protocol(_)), "{error:?}");
            let told = error.to_string();
            assert!(
                told.contains(&format!("redirected to {}, which is not followed", target.url)),
                "{told}"
            );
            assert!(!told.contains("secret"), "{told}");
        }
        assert!(target.requests.try_recv().is_err(), "the other server was asked");
    }
}

#[tokio::test]
async fn a_whole_answer_that_breaks_off_is_asked_for_again() {
    let id = Uuid::now_v7();
    let answer = serde_json::json!({
        "request_id": id, "created_at": "2026-02-03T10:15:37Z", "output": { "text": "a" },
        "metrics": null,
    });
    let answer = answer.to_string();
    let half = &answer[..answer.len() / 2];
    let told = format!("content-type: application/json\r\ncontent-length: {}\r\n", answer.len());
    let json = "content-type: application/json\r\n";
    let server = scripted(vec![
        respond("200 OK", &told, half),
        respond("200 OK", json, half),
        respond("200 OK", json, &answer),
    ])
    .await;
    let mut requests = server.requests;
    let client = client(&server.url);
    let whole = client.ask(&client.question(Uuid::now_v7(), "Hi")).await.unwrap();
    assert_eq!(whole.output["text"], "a");
    let bodies = [requests.recv().await, requests.recv().await, requests.recv().await]
        .map(|r| r.unwrap().body);
    assert!(bodies.iter().all(|body| *body == bodies[0]), "the very same request");
}

#[tokio::test]
async fn a_connection_that_cannot_be_made_names_the_address() {
    // Bound but not listening, so that no other process gets the port meanwhile.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    let options = Options::new().max_retries(1).backoff(Duration::ZERO, Duration::ZERO);
    let client = CapClient::with_options(&url, "", options).unwrap();
    let question = client.question(Uuid::now_v7(), "Hi");
    for (error, retries) in [
        (client.chat("Hi").collect().await.unwrap_err(), 1),
        (client.ask(&question).await.unwrap_err(), 1),
        (client.health().await.unwrap_err(), 0),
        (client.stop(STREAM).await.unwrap_err(), 0),
        (client.streams(None, 1).await.unwrap_err(), 0),
    ] {
        let CapError::Connection(e) = &error else { panic!("{error:?}") };
        assert_eq!((e.address.as_deref(), e.retries), (Some(url.as_str()), retries));
        let told = error.to_string();
        assert!(
            told.starts_with(&format!(
                "no connection to {url}: cannot connect: Connection refused"
            )),
            "{told}"
        );
        assert!(
            told.ends_with("; check the address and the network, or try again later"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn https_to_a_server_without_tls_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        // The first bytes of a handshake are no request.
        let (mut socket, _) = listener.accept().await.unwrap();
        assert!(socket.read(&mut [0; 65536]).await.unwrap() > 0);
        socket.write_all(&respond("400 Bad Request", "", "")).await.unwrap();
    });
    let client = CapClient::with_options(&url, "", Options::new().max_retries(0)).unwrap();
    let told = client.health().await.unwrap_err().to_string();
    assert!(told.contains("does not speak TLS on this port: try http:// instead"), "{told}");
}

#[tokio::test]
async fn silence_is_told_apart_from_a_lost_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = Options::new().max_retries(0).read_timeout(Duration::from_millis(50));
    let client = CapClient::with_options(&url, "", options).unwrap();
    let is_timeout = |error| matches!(error, CapError::Connection(e) if e.is_timeout);
    assert!(is_timeout(client.chat("Hi").collect().await.unwrap_err()));
    assert!(is_timeout(client.health().await.unwrap_err()));
    drop(listener);
    assert!(!is_timeout(client.chat("Hi").collect().await.unwrap_err()));
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
    let cut =
        respond("200 OK", chunked, &format!("{:x}\r\n{whole}\r\nffff\r\ndata: {{", whole.len()));
    let server = scripted(vec![cut, sse(&format!("{whole}{}", close(2)))]).await;
    assert_eq!(ask(&server.url).await.unwrap(), "a");
}

#[tokio::test]
async fn other_content_types_and_refusals_fail_at_once() {
    let html = respond("200 OK", "content-type: text/html\r\n", "<p>hello");
    let server =
        scripted(vec![html, respond("401 Unauthorized", "content-type: text/plain\r\n", "no")])
            .await;
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
        // Open, and silent.
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
    let server =
        scripted(vec![sse(&a), sse(&format!("{a}{b}")), sse(&format!("{a}{b}{}", close(3)))]).await;
    let mut requests = server.requests;
    assert_eq!(ask(&server.url).await.unwrap(), "ab");
    requests.recv().await.unwrap();
    assert_eq!(
        requests.recv().await.unwrap().header("last-event-id"),
        Some(STREAM.to_string().as_str())
    );
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
