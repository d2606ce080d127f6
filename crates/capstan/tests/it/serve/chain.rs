//! Gateways behind gateways: a stop at the near end reaches the far one.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::serve::client::{ask, http, packets, stream_of};
use crate::serve::process::Server;

/// A gateway in its own folder, whose agent is another gateway.
fn before(next: &Server) -> (TempDir, Server) {
    let folder = tempfile::tempdir().unwrap();
    let agent = format!(
        "[[agents]]\nname = \"next\"\nkind = \"cap\"\nattempts = 2\nurl = {:?}\n[timeouts]\ndrain \
         = 0.05\n",
        next.url
    );
    fs::write(folder.path().join("capstan.toml"), agent).unwrap();
    let server = Server::start(folder.path());
    (folder, server)
}

/// The id of its one run, once there is one.
async fn only_stream(server: &Server) -> String {
    loop {
        let list: Value = server.get("/v1/streams").await.json().await.unwrap();
        if let [run] = list["streams"].as_array().unwrap().as_slice() {
            return run["stream_id"].as_str().unwrap().to_owned();
        }
    }
}

async fn stop(server: &Server, stream: &str) {
    let stopped =
        http().delete(format!("{}/v1/streams/{stream}", server.url)).send().await.unwrap();
    assert_eq!(stopped.json::<Value>().await.unwrap()["reason"], "cancelled");
}

/// A viewer of the other run sees its stop.
async fn is_stopped(far: &Server) {
    let watching = far.get(&format!("/v1/streams/{}", only_stream(far).await)).await;
    let body = watching.bytes().await.unwrap();
    let last = packets(&body).pop().unwrap();
    assert!(serde_json::to_string(&last).unwrap().contains("cancelled"), "{last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_goes_through_a_gateway_to_the_one_behind_it() {
    let home = tempfile::tempdir().unwrap();
    let far = Server::start(home.path());
    let (_middle_home, middle) = before(&far);
    let (_near_home, near) = before(&middle);
    let response = near.post(&http(), &ask("/hang")).await;
    let stream = stream_of(&response);
    only_stream(&far).await;
    stop(&near, &stream).await;
    is_stopped(&far).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_still_ends_its_remote_runs() {
    let home = tempfile::tempdir().unwrap();
    let far = Server::start(home.path());
    let (near_home, near) = before(&far);
    let mut response = near.post(&http(), &ask("/tokens 1000000 --delay 20ms")).await;
    let stream = stream_of(&response);
    // The id of the other run is in the journal before its output.
    while !String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()).contains("DELTA") {}
    near.kill();
    let near = Server::start(near_home.path());
    stop(&near, &stream).await;
    is_stopped(&far).await;
}
