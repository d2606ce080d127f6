//! SIGTERM and SIGINT: nothing new begins, what is open is served until the limit, then
//! interrupted; exit code 0.

use std::fs;
use std::path::Path;

use capstan_protocol::Problem;
use serde_json::Value;

use crate::serve::client::{ask, errors, http, packets, stream_of};
use crate::serve::process::Server;

fn start(folder: &Path, drain: &str) -> Server {
    fs::write(folder.join("capstan.toml"), format!("[timeouts]\ndrain = {drain}\n")).unwrap();
    Server::start(folder)
}

/// Waits until the server has handled the signal. Only a request shows that.
async fn until_draining(server: &Server) {
    while server.get("/readyz").await.status() == 200 {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_drains_refuses_new_runs_and_serves_the_open_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (http, request) = (http(), ask("/hang"));
    // Far longer than the test: the drain must end because nothing is left to wait for.
    let server = start(folder.path(), "600");
    let response = server.post(&http, &request).await;
    let stream = stream_of(&response);
    server.signal("TERM");
    until_draining(&server).await;

    assert_eq!(server.get("/readyz").await.status(), 503);
    let refused = server.post(&http, &ask("/tokens 1")).await;
    assert_eq!(
        (refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()),
        (503, "1")
    );
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    assert_eq!(refused.json::<Problem>().await.unwrap().code, "service_unavailable");
    let attached = server.post(&http, &request).await;
    assert_eq!(stream_of(&attached), stream, "a known run can be attached to");
    let path = format!("/v1/streams/{stream}");
    let watching = server.get(&path).await;
    assert_eq!(watching.status(), 200);
    let stopped = http.delete(format!("{}{path}", server.url)).send().await.unwrap();
    assert_eq!(stopped.json::<Value>().await.unwrap()["reason"], "cancelled");

    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{log}");
    for open in [response, attached, watching] {
        assert!(open.text().await.unwrap().contains("cancelled"), "open responses saw the end");
    }
}

async fn interrupts(signal: &str) {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "0.05");
    let response = server.post(&http(), &ask("/hang")).await;
    server.signal(signal);
    let body = response.bytes().await.unwrap();
    assert_eq!(errors(&packets(&body)).pop().unwrap().code, "run_interrupted", "{signal}");
    assert_eq!(
        packets(&body).len(),
        1,
        "{signal}: no CLOSE, the run goes on when its client comes back"
    );
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(0), "{signal}: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_drain_limit_open_runs_are_interrupted_and_the_exit_code_is_zero() {
    interrupts("TERM").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_does_what_sigterm_does() {
    interrupts("INT").await;
}
