//! Cursors that do not fit: a wrong one is refused, one at the end is told so, an unknown one is
//! gone.

use crate::common::{
    all, ask, close_reason, demo, journal, problem, seqs, serve_gateway, start, stream_of,
};
use capstan_gateway::{Gateway, Settings};
use serde_json::{Value, json};
use uuid::Uuid;

#[tokio::test]
async fn a_cursor_of_another_stream_is_refused() {
    let server = start(Settings::default()).await;
    let request = ask("/tokens 2");
    let response = server.post(&request).await;
    let path = format!("{}/v1/streams/{}", server.url, stream_of(&response));
    all(response).await;
    let foreign = format!("{}:1", Uuid::now_v7());
    let watched =
        crate::common::client().get(path).header("last-event-id", &foreign).send().await.unwrap();
    for refused in [watched, server.post_with(&request, &[("last-event-id", &foreign)]).await] {
        assert_eq!(refused.status(), 400);
        let problem = problem(refused).await;
        assert_eq!(problem.code, "invalid_request");
        assert!(problem.detail.unwrap().starts_with("Last-Event-ID: names stream"));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_post_with_a_cursor_at_the_close_gets_the_close_again() {
    let server = start(Settings::default()).await;
    let request = ask("/tokens 2");
    let response = server.post(&request).await;
    let stream = stream_of(&response);
    all(response).await;
    let cursor = format!("{stream}:3");
    let again = server.post_with(&request, &[("last-event-id", &cursor)]).await;
    let body = again.text().await.unwrap();
    assert!(
        body.starts_with(&format!("retry: 500\nid: {cursor}\n\n")),
        "never a lower cursor: {body}"
    );
    let packets = crate::common::packets(body.as_bytes());
    assert_eq!((seqs(&packets), close_reason(&packets).as_deref()), (vec![3], Some("completed")));
    let beyond = server.post_with(&request, &[("last-event-id", &format!("{stream}:4"))]).await;
    assert_eq!(beyond.status(), 410);
    assert_eq!(problem(beyond).await.code, "stream_lost");
    server.stop().await;
}

#[tokio::test]
async fn the_header_beats_the_query() {
    let server = start(Settings::default()).await;
    let request = ask("/tokens 4");
    let stream = stream_of(&server.post(&request).await);
    let url = format!("{}/v1/streams/{stream}?after=1", server.url);
    let resumed =
        crate::common::client().get(url).header("last-event-id", format!("{stream}:3")).send();
    assert_eq!(seqs(&all(resumed.await.unwrap()).await), [4, 5]);
    server.stop().await;
}

#[tokio::test]
async fn a_resume_of_an_unknown_stream_is_gone_and_starts_nothing() {
    let server = start(Settings::default()).await;
    let cursor = format!("{}:7", Uuid::now_v7());
    let response = server.post_with(&ask("/tokens 1"), &[("last-event-id", &cursor)]).await;
    assert_eq!(response.status(), 410);
    assert_eq!(problem(response).await.code, "stream_expired");
    let list: serde_json::Value = server.get("/v1/streams").await.json().await.unwrap();
    assert_eq!(list["streams"].as_array().unwrap().len(), 0);
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_stream_is_not_found() {
    let server = start(Settings::default()).await;
    let path = format!("/v1/streams/{}", Uuid::now_v7());
    for response in [
        server.get(&path).await,
        server.delete(&path).await,
        server.get(&(path.clone() + "/packets")).await,
    ] {
        assert_eq!(response.status(), 404);
        assert_eq!(problem(response).await.code, "stream_not_found");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_path_chooses_the_agent_and_is_part_of_the_request() {
    let server =
        serve_gateway(Gateway::new(journal()).agent("demo", demo()).agent("second", demo())).await;
    let request = ask("/tokens 1");
    let post = |agent: &str| {
        let url = format!("{}/v1/agents/{agent}/assist", server.url);
        crate::common::client().post(url).json(&request).send()
    };
    let unknown = post("nobody").await.unwrap();
    assert_eq!(unknown.status(), 404);
    assert_eq!(problem(unknown).await.code, "agent_not_found");
    all(post("second").await.unwrap()).await;
    let list: serde_json::Value = server.get("/v1/streams").await.json().await.unwrap();
    assert_eq!(
        (list["streams"].as_array().unwrap().len(), &list["streams"][0]["agent"]),
        (1, &"second".into())
    );
    assert_eq!(problem(post("demo").await.unwrap()).await.code, "request_conflict");
    server.stop().await;
}

#[tokio::test]
async fn an_empty_cursor_is_none() {
    let server = start(Settings::default()).await;
    let request = ask("/tokens 2");
    let begun = server.post_with(&request, &[("last-event-id", "")]).await;
    assert_eq!(seqs(&all(begun).await), [1, 2, 3]);
    server.stop().await;
}

#[tokio::test]
async fn a_viewer_of_a_run_that_waits_stays_and_arms_nothing() {
    let server = start(Settings::default()).await;
    let request = ask("/fault upstream_truncated");
    let response = server.post(&request).await;
    let path = format!("/v1/streams/{}", stream_of(&response));
    let first = all(response).await;
    let viewer = server.get(&path).await;
    let summary = || async {
        let list: Value = server.get("/v1/streams").await.json().await.unwrap();
        (list["streams"][0]["state"].clone(), list["streams"][0]["attempt"].clone())
    };
    assert_eq!(summary().await, (json!("waiting"), json!(1)));
    // What it waits for is its client.
    let second = all(server.post(&request).await).await;
    assert!(second.len() > first.len());
    server.delete(&path).await;
    assert!(all(viewer).await.starts_with(&second), "its body stayed open meanwhile");
    server.stop().await;
}
