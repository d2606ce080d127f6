//! What the README gives to copy.

use crate::serve::client::{http, packets, text};
use crate::serve::process::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readmes_request_is_answered_as_it_stands() {
    let page = include_str!("../../../../../README.md");
    let body = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let post = || {
        http().post(format!("{}/v1/assist", server.url)).header("content-type", "application/json")
    };
    let first = post().body(body).send().await.unwrap();
    assert_eq!(first.status(), 200);
    let first = packets(&first.bytes().await.unwrap());
    assert!(text(&first).contains("capstan"), "{}", text(&first));
    let again = packets(&post().body(body).send().await.unwrap().bytes().await.unwrap());
    assert_eq!(first, again, "the same run");
}
