//! What happens, as it happens.

use reqwest::Response;
use serde_json::Value;

use crate::common::start;
use crate::console::{run_as, send, settings};

/// The next event of a feed: its name and data.
async fn next_event(body: &mut Response) -> (String, Value) {
    loop {
        let chunk = body.chunk().await.unwrap().unwrap();
        let text = String::from_utf8(chunk.to_vec()).unwrap();
        let line =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        if let (Some(event), Some(data)) = (line("event: "), line("data: ")) {
            return (event, serde_json::from_str(&data).unwrap());
        }
    }
}

#[tokio::test]
async fn events_are_sent_live_to_visitors_who_may_see_them() {
    let server = start(settings()).await;
    let listen = async |key: &str| send(&server, "GET", "/v1/console/events", Some(key)).await;
    let (mut of_all, mut of_b) = (listen("looker").await, listen("key-b").await);
    assert_eq!(next_event(&mut of_all).await.0, "state");
    assert_eq!(next_event(&mut of_b).await.0, "state");
    let of_a = run_as(&server, "key-a", "/tokens 1").await;
    let stream_b = run_as(&server, "key-b", "/flaky 1").await;
    let mut told = Vec::new();
    for _ in 0..5 {
        let (event, data) = next_event(&mut of_all).await;
        assert_eq!(event, "run");
        told.push((
            data["what"].as_str().unwrap().to_owned(),
            data["run"]["stream_id"].as_str().unwrap().to_owned(),
        ));
    }
    let expected = [
        ("began", &of_a),
        ("closed", &of_a),
        ("began", &stream_b),
        ("attempt", &stream_b),
        ("closed", &stream_b),
    ];
    let expected: Vec<_> =
        expected.iter().map(|(what, id)| ((*what).to_owned(), (*id).clone())).collect();
    assert_eq!(told, expected);
    // The tenant hears of its own alone.
    for what in ["began", "attempt", "closed"] {
        let (_, data) = next_event(&mut of_b).await;
        assert_eq!(
            (&data["what"], &data["run"]["stream_id"]),
            (&what.into(), &stream_b.as_str().into())
        );
    }
    // Twenty at once, and no more.
    let mut open = Vec::new();
    for _ in 0..18 {
        open.push(listen("looker").await);
    }
    assert_eq!(send(&server, "GET", "/v1/console/events", Some("looker")).await.status(), 503);
}
