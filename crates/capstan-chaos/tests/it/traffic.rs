//! Traffic that passes untouched, unusual traffic, and failures of the upstream itself.

use std::io::ErrorKind;

use crate::common::{Proxy, Upstream, body, stream};
use capstan_chaos::{After, At, Cut, Faults, With};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const HEALTH: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

fn cut_at_once() -> Faults {
    let cut = Cut { rate: 1.0, after: After::Bytes(1..=1), at: At::Exact, with: With::Fin };
    Faults { cut, ..Faults::none() }
}

#[tokio::test]
async fn what_is_no_stream_passes_untouched_unless_asked() {
    let upstream = Upstream::start(HEALTH.to_vec()).await;
    let proxy = Proxy::start(upstream.address, cut_at_once()).await;
    let answer = proxy.send("GET /health HTTP/1.1\r\n\r\n").await;
    assert!(
        answer.bytes.ends_with(b"content-length: 2\r\nconnection: close\r\n\r\n{}"),
        "{answer:?}"
    );
    assert_eq!(proxy.handle.tally().streams, 0);

    let proxy = Proxy::start(upstream.address, Faults { all: true, ..cut_at_once() }).await;
    assert_eq!(proxy.send("GET /health HTTP/1.1\r\n\r\n").await.dechunk(), (b"{".to_vec(), false));
}

#[tokio::test]
async fn a_stream_is_one_even_if_the_request_did_not_look_like_it() {
    let upstream = Upstream::start(stream(&body())).await;
    let proxy = Proxy::start(upstream.address, cut_at_once()).await;
    assert!(!proxy.send("GET /stream HTTP/1.1\r\n\r\n").await.dechunk().1);
}

#[tokio::test]
async fn requests_arrive_with_their_bodies_and_fields() {
    let upstream = Upstream::start(stream(&body())).await;
    let proxy = Proxy::start(upstream.address, Faults::none()).await;
    let body = "y".repeat(200_000);
    let post = format!(
        "POST /v1/assist?a=b HTTP/1.1\r\nHost: me\r\nConnection: keep-alive\r\naccept-encoding: \
         gzip\r\n\
         X-Request-ID: 1\r\ncontent-length: 200000\r\n\r\n{body}"
    );
    proxy.send(&post).await;
    let expected = format!(
        "POST /v1/assist?a=b HTTP/1.1\r\nHost: me\r\nX-Request-ID: 1\r\ncontent-length: 200000\r\n\
         connection: close\r\n\r\n{body}"
    );
    assert!(upstream.requests() == [expected]);
}

#[tokio::test]
async fn bodies_of_every_framing_become_chunks() {
    let body = body();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    for response in [
        format!("{head}content-length: {}\r\n\r\n{body}", body.len()),
        format!("{head}\r\n{body}"),
        format!("HTTP/1.1 100 Continue\r\n\r\n{head}\r\n{body}"),
    ] {
        let upstream = Upstream::start(response.clone().into_bytes()).await;
        let proxy = Proxy::start(upstream.address, Faults::none()).await;
        let mut answer = proxy.get().await;
        if response.contains("100") {
            assert!(answer.bytes.starts_with(b"HTTP/1.1 100 Continue\r\n\r\n"));
            answer.bytes.drain(.."HTTP/1.1 100 Continue\r\n\r\n".len());
        }
        assert_eq!(answer.text(), body, "{response}");
    }
}

#[tokio::test]
async fn an_old_client_gets_no_chunks() {
    let upstream = Upstream::start(stream(&body())).await;
    let proxy = Proxy::start(upstream.address, Faults::none()).await;
    let answer = proxy.send("GET / HTTP/1.0\r\naccept: text/event-stream\r\n\r\n").await;
    assert!(answer.bytes.ends_with(format!("connection: close\r\n\r\n{}", body()).as_bytes()));
}

#[tokio::test]
async fn answers_without_a_body_have_none() {
    let upstream = Upstream::start(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()).await;
    let proxy = Proxy::start(upstream.address, cut_at_once()).await;
    let answer = proxy.get().await;
    assert_eq!(answer.bytes, b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
}

#[tokio::test]
async fn a_truncated_or_malformed_upstream_body_stays_broken() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    for rest in ["5\r\nabc", "5\r\nabcde\r\n", "3\r\nabcXX", "zz\r\n"] {
        let upstream = Upstream::start(format!("{head}{rest}").into_bytes()).await;
        let proxy = Proxy::start(upstream.address, Faults::none()).await;
        assert!(!proxy.get().await.dechunk().1, "{rest:?}");
    }
}

#[tokio::test]
async fn an_upstream_that_cannot_be_reached_is_a_502() {
    // Bound but not listening, so that no other process gets the port meanwhile.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let proxy = Proxy::start(closed.local_addr().unwrap(), Faults::none()).await;
    let answer = proxy.get().await;
    assert!(answer.head().starts_with("HTTP/1.1 502 Bad Gateway"), "{}", answer.head());
    assert_eq!(proxy.handle.tally().faults(), 0, "that was not us");
}

#[tokio::test]
async fn strange_traffic_is_answered_or_dropped_and_the_proxy_lives_on() {
    let upstream = Upstream::start(stream(&body())).await;
    let proxy = Proxy::start(upstream.address, Faults::none()).await;
    let endless = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(100_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(1000));
    for (request, status) in [
        ("\u{16}\u{3}\u{1}", "HTTP/1.1 400 "),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 400 "),
        (endless.as_str(), "HTTP/1.1 431 "),
        (many.as_str(), "HTTP/1.1 400 "),
    ] {
        let answer = proxy.send(request).await;
        assert!(answer.bytes.starts_with(status.as_bytes()), "{:?}", answer.head());
    }
    drop(TcpStream::connect(proxy.address).await.unwrap());
    assert_eq!(proxy.get().await.text(), body());
}

#[tokio::test]
async fn a_strange_upstream_is_a_502_or_an_early_end() {
    for (response, status) in
        [("nonsense", "HTTP/1.1 502 "), ("", ""), ("HTTP/1.1 200 OK\r\nx", "")]
    {
        let upstream = Upstream::start(response.as_bytes().to_vec()).await;
        let answer = Proxy::start(upstream.address, Faults::none()).await.get().await;
        assert_eq!(answer.head().get(..status.len()), Some(status), "{response:?}");
        assert_eq!(
            (answer.end, answer.bytes.is_empty()),
            (Ok(()), status.is_empty()),
            "{response:?}"
        );
    }
}

/// A connection through the proxy, open at both ends.
async fn open_stream() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap(), Faults::none()).await;
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\naccept: text/event-stream\r\n\r\n").await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n:\n")
        .await
        .unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b":\n\r\n") {
        assert!(client.read_buf(&mut seen).await.unwrap() > 0);
    }
    (client, server)
}

#[tokio::test]
async fn a_heartbeat_passes_at_once_and_a_clients_leaving_is_passed_on() {
    let (client, mut server) = open_stream().await;
    drop(client);
    let mut request = Vec::new();
    assert!(server.read_to_end(&mut request).await.is_ok(), "the server sees the client's FIN");
}

#[tokio::test]
async fn a_reset_by_the_upstream_resets_the_client() {
    let (mut client, server) = open_stream().await;
    server.set_zero_linger().unwrap();
    drop(server);
    let error = client.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}
