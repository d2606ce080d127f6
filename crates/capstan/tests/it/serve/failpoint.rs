//! Crashes at the worst moments: the claim is stored but no client knows it, a packet is stored but
//! no viewer saw it.

use futures_util::future::join_all;

use crate::serve::client::{ask, assert_whole, http, packets, stream_of, tokens, whole_frames};
use crate::serve::process::Server;

/// What one of many clients received before the process died: nothing, or the start of a body.
async fn try_post(http: &reqwest::Client, url: &str, body: &str) -> Vec<u8> {
    let post = http.post(format!("{url}/v1/assist")).header("content-type", "application/json");
    let Ok(mut response) = post.body(body.to_owned()).send().await else { return Vec::new() };
    crate::serve::client::read_until(&mut response, |_| false).await
}

async fn die_and_come_back(failpoint: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (http, request) = (http(), ask("/tokens 10 --delay 2ms"));
    let body = serde_json::to_string(&request).unwrap();
    let server = Server::start_with(folder.path(), &[("CAPSTAN_FAILPOINT", failpoint)]);
    let seen = join_all((0..50).map(|_| try_post(&http, &server.url, &body))).await;
    let (status, _) = server.wait();
    assert!(!status.success(), "{failpoint}: it did not die");

    let server = Server::start(folder.path());
    let again = join_all((0..50).map(|_| server.post(&http, &request))).await;
    let streams: Vec<_> = again.iter().map(stream_of).collect();
    assert!(streams.iter().all(|stream| *stream == streams[0]), "{failpoint}: {streams:?}");
    let bodies: Vec<_> = join_all(again.into_iter().map(reqwest::Response::bytes)).await;
    let whole = bodies[0].as_ref().unwrap();
    assert_whole(&packets(whole), &tokens(10));
    assert!(bodies.iter().all(|body| body.as_ref().unwrap() == whole), "{failpoint}");
    for seen in &seen {
        assert!(whole.starts_with(whole_frames(seen)), "{failpoint}: something seen was lost");
    }
    let list = server.streams().await;
    assert_eq!(list.len(), 1, "{failpoint}: {list:?}");
    assert_eq!(list[0]["attempt"], 2, "{failpoint}: the dead one and the one that was asked for");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_in_the_claim_window_leaves_one_run_to_come_back_to() {
    die_and_come_back("after_claim").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_after_a_commit_leaves_one_run_to_come_back_to() {
    die_and_come_back("after_append:3").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_before_its_readers_wake_leaves_one_run_to_come_back_to() {
    die_and_come_back("before_wake:3").await;
}
