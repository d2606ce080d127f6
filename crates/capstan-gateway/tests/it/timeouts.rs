//! How long: agents that say nothing, runs that never end, requests that never arrive.

use std::time::Duration;

use crate::common::odd_store::OddStore;
use crate::common::{Server, all, ask, close_reason, errors, problem, start};
use capstan_agent::{About, Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, Limits, Settings, Timeouts};
use capstan_protocol::ErrorSeverity;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_millis(30);

async fn timed(timeouts: Timeouts) -> Server {
    start(Settings { timeouts, ..Settings::default() }).await
}

#[tokio::test]
async fn a_silent_agent_times_out_in_every_attempt_then_fails() {
    let server = timed(Timeouts { idle: SOON, ..Timeouts::default() }).await;
    let packets = all(server.post(&ask("/hang")).await).await;
    let told: Vec<_> = errors(&packets).iter().map(|e| (e.code.clone(), e.severity)).collect();
    let warning = ("timeout".to_owned(), ErrorSeverity::Warning);
    assert_eq!(told, [warning.clone(), warning, ("timeout".to_owned(), ErrorSeverity::Fatal)]);
    assert_eq!(server.waits().len(), 2);
    assert_eq!(close_reason(&packets).as_deref(), Some("error"));
    server.stop().await;
}

#[tokio::test]
async fn a_run_out_of_time_is_not_tried_again() {
    let server = timed(Timeouts { run: SOON, ..Timeouts::default() }).await;
    let packets = all(server.post(&ask("/hang")).await).await;
    let error = errors(&packets).pop().unwrap();
    assert_eq!((error.code.as_str(), error.severity), ("timeout", ErrorSeverity::Fatal));
    assert_eq!(packets.len(), 2, "ERROR and CLOSE");
    server.stop().await;
}

#[tokio::test]
async fn in_json_mode_a_time_out_is_a_gateway_time_out() {
    let server = timed(Timeouts { run: SOON, ..Timeouts::default() }).await;
    let response = server.post_with(&ask("/hang"), &[("accept", "application/json")]).await;
    assert_eq!(response.status(), 504);
    let problem = problem(response).await;
    assert_eq!((problem.code.as_str(), problem.severity), ("timeout", ErrorSeverity::Fatal));
    server.stop().await;
}

#[tokio::test]
async fn in_json_mode_a_drain_says_when_to_come_back() {
    let server = timed(Timeouts { drain: Duration::ZERO, ..Timeouts::default() }).await;
    let request = ask("/hang");
    let post = crate::common::client()
        .post(format!("{}/v1/assist", server.url))
        .header("accept", "application/json")
        .json(&request)
        .send();
    let waiting = tokio::spawn(post);
    // The same key attaches, so this returns once the run is there, whoever of the two began it.
    let response = server.post(&request).await;
    server.stop().await;
    drop(response);
    let problem = problem(waiting.await.unwrap().unwrap()).await;
    assert_eq!((problem.code.as_str(), problem.status), ("run_interrupted", 503));
    assert!(problem.retry_after.is_some());
}

#[tokio::test]
async fn an_idle_response_has_a_heartbeat() {
    let server = timed(Timeouts { heartbeat: SOON, drain: SOON, ..Timeouts::default() }).await;
    let mut response = server.post(&ask("/hang")).await;
    let mut body = String::new();
    while !body.ends_with("\n\n:\n:\n") {
        body += std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap();
    }
    drop(response);
    server.stop().await;
}

/// What a server says to these bytes and to silence after them, until it hangs up.
async fn answer(server: &Server, bytes: &str) -> String {
    let mut socket = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).await.unwrap();
    socket.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Only a server that never hangs up needs the guard.
    let read = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "still open after {bytes:?}: {:?}", String::from_utf8_lossy(&answer));
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_head_that_never_ends_is_hung_up_on() {
    let server = timed(Timeouts { request: SOON, ..Timeouts::default() }).await;
    for start in ["", "P", "PRI * HTTP/2.0\r\n", "POST /v1/assist HTTP/1.1\r\nhost: localhost\r\n"]
    {
        assert!(!answer(&server, start).await.contains("200 OK"));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_never_ends_is_a_time_out() {
    let server = timed(Timeouts { request: SOON, ..Timeouts::default() }).await;
    let head = "POST /v1/assist HTTP/1.1\r\nhost: localhost\r\ncontent-type: \
     application/json\r\ncontent-length: 9000\r\n\r\n{";
    let answer = answer(&server, head).await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(
        answer.contains("application/problem+json") && answer.contains("took too long to arrive"),
        "{answer}"
    );
    server.stop().await;
}

/// Writes faster than anybody can commit, and never stops.
struct Flood;

#[async_trait]
impl Agent for Flood {
    async fn run(&self, _turn: Turn, out: &mut Writer) -> Outcome {
        loop {
            out.delta("x").await?;
        }
    }
}

#[tokio::test]
async fn an_agent_that_writes_faster_than_the_journal_commits_meets_its_deadline() {
    let store = OddStore { is_slow: true, ..OddStore::new() }.shared();
    let timeouts = Timeouts { run: SOON, ..Timeouts::default() };
    let limits = Limits { packets_per_stream: 100_000, ..Limits::default() };
    let gateway = Gateway::new(store.journal()).agent("flood", Flood);
    let server = crate::common::serve_gateway(gateway.settings(Settings {
        timeouts,
        limits,
        ..Settings::default()
    }))
    .await;
    let packets = all(server.post(&ask("x")).await).await;
    assert_eq!(errors(&packets).pop().unwrap().code, "timeout", "after {} packets", packets.len());
}

/// Breaks the relay itself, where no agent's task catches it.
struct Rude;

#[async_trait]
impl Agent for Rude {
    async fn run(&self, _turn: Turn, _out: &mut Writer) -> Outcome {
        Ok(())
    }

    fn about(&self) -> About {
        panic!("nothing to say about me")
    }
}

#[tokio::test]
async fn a_run_whose_relay_panics_ends_and_can_be_stopped() {
    let server =
        crate::common::serve_gateway(Gateway::new(crate::common::journal()).agent("rude", Rude))
            .await;
    let response = server.post(&ask("x")).await;
    let path = format!("/v1/streams/{}", crate::common::stream_of(&response));
    let packets =
        tokio::time::timeout(Duration::from_secs(5), all(response)).await.expect("the run ends");
    let error = errors(&packets).pop().unwrap();
    assert_eq!(
        (error.code.as_str(), error.severity),
        ("agent_execution_error", ErrorSeverity::Fatal)
    );
    assert_eq!(close_reason(&packets).as_deref(), Some("error"));
    let stopped = tokio::time::timeout(Duration::from_secs(5), server.delete(&path)).await;
    assert_eq!(stopped.expect("DELETE answers").status(), 200);
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("capstan_active_runs 0"), "{metrics}");
    server.stop().await;
}
