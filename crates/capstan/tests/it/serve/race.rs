//! Many clients with one request.

use std::process::Command;

use futures_util::future::join_all;

use crate::serve::client::{ask, assert_whole, http, packets, stream_of, tokens};
use crate::serve::process::Server;

/// Connections need as many descriptors here, and again in the child, which inherits the limit.
fn allow_many_files(connections: usize) {
    let (pid, limit) = (std::process::id().to_string(), format!("--nofile={}:", 3 * connections));
    let soft = Command::new("sh").args(["-c", "ulimit -Sn"]).output().unwrap().stdout;
    let soft = String::from_utf8(soft).unwrap();
    if soft.trim().parse::<usize>().is_ok_and(|soft| soft < 3 * connections) {
        assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_duplicates_are_one_run_and_see_the_same_bytes() {
    race(150).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: long"]
async fn soak_a_thousand_racing_duplicates_are_one_run_and_see_the_same_bytes() {
    race(1_000).await;
}

async fn race(duplicates: usize) {
    allow_many_files(duplicates);
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let (http, request) = (http(), ask("/tokens 20"));
    let responses = join_all((0..duplicates).map(|_| server.post(&http, &request))).await;
    let stream = stream_of(&responses[0]);
    assert!(responses.iter().all(|response| stream_of(response) == stream));
    let bodies = join_all(responses.into_iter().map(reqwest::Response::bytes)).await;
    let whole = bodies[0].as_ref().unwrap();
    assert_whole(&packets(whole), &tokens(20));
    assert!(bodies.iter().all(|body| body.as_ref().unwrap() == whole));
    assert_eq!(server.streams().await.len(), 1);
    let metrics = server.get("/metrics").await.text().await.unwrap();
    let attached = format!("capstan_attached_duplicates_total {}", duplicates - 1);
    for line in ["capstan_attempts_total{name=\"demo\"} 1", &attached] {
        assert!(metrics.lines().any(|known| known == line), "{line} in\n{metrics}");
    }
}
