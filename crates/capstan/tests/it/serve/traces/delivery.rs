//! An unreachable or silent collector affects no run. Variables with wrong values are reported at
//! the start.

use std::path::Path;
use std::process::Command;

use tokio::net::TcpSocket;

use super::end;
use crate::serve::client::{ask, assert_whole, http, packets, tokens};
use crate::serve::peer::Peer;
use crate::serve::process::Server;

/// Runs that are not disturbed, and the log of the server that served them.
async fn undisturbed(endpoint: &str, env: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut all = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=collector-key"),
        // Every span is a separate delivery.
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"),
    ];
    all.extend_from_slice(env);
    let server = Server::start_with(folder.path(), &all);
    for _ in 0..5 {
        let body = server.post(&http(), &ask("/tokens 20")).await.bytes().await.unwrap();
        assert_whole(&packets(&body), &tokens(20));
    }
    end(server)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_collector_is_logged_once() {
    // Bound but not listening, so that no other process gets the port meanwhile.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let log = undisturbed(&format!("http://{}", closed.local_addr().unwrap()), &[]).await;
    assert_eq!(log.matches("traces cannot be exported").count(), 1, "{log}");
    assert!(!log.contains("collector-key"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collectors_refusal_is_logged_with_its_status() {
    let peer = Peer::start(|_| async {
        hyper::Response::builder().status(401).body("collector-key".into()).unwrap()
    })
    .await;
    let log = undisturbed(&peer.url, &[]).await;
    assert_eq!(log.matches("traces cannot be exported").count(), 1, "{log}");
    assert!(log.contains("401") && !log.contains("collector-key"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_busy_gets_the_same_spans_again() {
    let peer = Peer::start(|nth: usize| {
        let answer =
            hyper::Response::builder().status(if nth.is_multiple_of(2) { 503 } else { 200 });
        async { answer.header("retry-after", "0").body("".into()).unwrap() }
    })
    .await;
    let log = undisturbed(&peer.url, &[]).await;
    assert!(!log.contains("traces cannot be exported"), "{log}");
    let seen = peer.seen();
    assert_eq!(seen.len(), 20, "two spans a run, each sent twice");
    assert!(seen.chunks(2).all(|pair| pair[0].body == pair[1].body));
    assert!(seen.iter().all(|seen| seen.path == "/v1/traces"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_never_answers_does_not_keep_the_server_from_ending() {
    let peer = Peer::start(|_| std::future::pending()).await;
    // Far longer than the test: only the server's own limit can end it.
    undisturbed(&peer.url, &[("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")]).await;
    assert!(!peer.seen().is_empty());
}

/// The error of a server that is started with these variables.
fn refusal(folder: &Path, env: &[(&str, &str)]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--journal", "memory:"])
        .current_dir(folder)
        .env_clear();
    let output = command.envs(env.iter().copied()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{env:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_variable_that_makes_no_sense_is_named_without_its_value() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    for (variable, value, words) in [
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "collector-key@nowhere",
            "expected http://host:port",
        ),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf only"),
        ("OTEL_TRACES_SAMPLER", "sometimes", "expected one of always_on, "),
    ] {
        let told = refusal(folder.path(), &[endpoint, (variable, value)]);
        assert!(told.contains(&format!("{variable}: ")) && told.contains(words), "{told}");
        assert!(!told.contains("collector-key"), "{told}");
    }
    let told = refusal(folder.path(), &[endpoint, ("OTEL_TRACES_SAMPLER", "traceidratio")]);
    assert!(
        told.contains("OTEL_TRACES_SAMPLER_ARG: traceidratio needs a number between 0 and 1"),
        "{told}"
    );
}
