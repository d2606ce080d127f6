//! Real errors of a real HTTP client and runtime, made by servers on loopback that misbehave.
#![cfg(all(feature = "reqwest", feature = "tokio"))]

use std::time::Duration;

use capstan_protocol::{AguiErrorCode, ErrorSeverity, Exposure, Fault, FaultKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};

/// Answers one connection with these bytes, then closes it.
async fn answering(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 4096]).await;
        let _ = socket.write_all(bytes).await;
    });
    url
}

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap()
}

async fn fault_of(url: &str) -> Fault {
    let outcome = async { client().get(url).send().await?.error_for_status()?.bytes().await }.await;
    Fault::from_error(outcome.unwrap_err())
}

#[tokio::test]
async fn an_http_status_error_is_an_upstream_error() {
    let fault = fault_of(&answering(b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n").await).await;
    assert_eq!(
        (fault.kind(), fault.severity()),
        (FaultKind::UpstreamError, ErrorSeverity::Transient)
    );
    assert_eq!(fault.to_run_error(Exposure::Production).http_status, 502);
    let fault = fault_of(&answering(b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n").await).await;
    assert_eq!((fault.kind(), fault.severity()), (FaultKind::UpstreamError, ErrorSeverity::Fatal));
}

#[tokio::test]
async fn a_refused_connection_is_unreachable() {
    // Taken but not listened on, so that nobody else gets it meanwhile.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/", closed.local_addr().unwrap());
    let fault = fault_of(&url).await;
    assert_eq!(
        (fault.kind(), fault.severity()),
        (FaultKind::UpstreamUnreachable, ErrorSeverity::Transient)
    );
}

#[tokio::test]
async fn a_body_that_breaks_off_is_truncated() {
    let fault =
        fault_of(&answering(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhalf").await).await;
    assert_eq!(fault.kind().entry().agui, AguiErrorCode::UpstreamError);
    assert_eq!(fault.severity(), ErrorSeverity::Transient);
}

#[tokio::test]
async fn an_http_client_time_out_is_an_upstream_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // Accepted by the kernel, answered by nobody.
    let error = client().get(&url).timeout(Duration::from_millis(20)).send().await.unwrap_err();
    let fault = Fault::from_error(error);
    assert_eq!((fault.kind(), fault.status()), (FaultKind::UpstreamTimeout, 504));
    let debug = fault.to_stream_error(Exposure::Debug).to_string();
    assert!(!debug.contains("127.0.0.1"), "the message says nothing about the inside");
}

#[tokio::test(start_paused = true)]
async fn an_elapsed_deadline_is_a_timeout() {
    let elapsed = tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>())
        .await
        .unwrap_err();
    assert_eq!(Fault::from_error(elapsed).kind(), FaultKind::Timeout);
}
