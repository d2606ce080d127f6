//! The Durable Streams face over HTTP, against a real server: batches, long polls, live streams,
//! what is refused.

use crate::common::{Server, all, ask, client, start, stream_of};
use capstan_gateway::{KeyHash, Settings, Tenant};
use serde_json::{Value, json};

/// A stream of a run that said this.
async fn said(server: &Server, text: &str) -> (String, Vec<Value>) {
    let response = server.post(&ask(text)).await;
    let stream = stream_of(&response);
    let packets = all(response).await;
    (stream, packets.iter().map(|packet| serde_json::to_value(packet).unwrap()).collect())
}

async fn read(server: &Server, stream: &str, query: &str) -> reqwest::Response {
    server.get(&format!("/v1/durable/{stream}{query}")).await
}

fn header(response: &reqwest::Response, name: &str) -> Option<String> {
    response.headers().get(name).map(|value| value.to_str().unwrap().to_owned())
}

fn offset(seq: usize) -> String {
    format!("{seq:020}")
}

#[tokio::test]
async fn a_stream_is_read_in_one_go_or_from_any_offset() {
    let server = start(Settings::default()).await;
    let (stream, packets) = said(&server, "/tokens 5").await;
    let end = offset(packets.len());
    for from in ["", "?offset=-1"] {
        let whole = read(&server, &stream, from).await;
        assert_eq!(header(&whole, "stream-next-offset").as_ref(), Some(&end));
        assert_eq!(header(&whole, "stream-up-to-date").as_deref(), Some("true"));
        assert_eq!(header(&whole, "stream-closed").as_deref(), Some("true"));
        assert_eq!(header(&whole, "cache-control").as_deref(), Some("private, no-store"));
        assert_eq!(whole.json::<Vec<Value>>().await.unwrap(), packets);
    }
    for seq in 0..=packets.len() {
        let rest = read(&server, &stream, &format!("?offset={}", offset(seq))).await;
        assert_eq!(rest.json::<Vec<Value>>().await.unwrap(), packets[seq..]);
        let live = read(&server, &stream, &format!("?offset={}&live=sse", offset(seq))).await;
        assert_eq!(live.headers()["content-type"], "text/event-stream");
        let (items, last) = events(&live.text().await.unwrap());
        assert_eq!(items, packets[seq..], "after {seq}");
        assert_eq!(
            last,
            json!({ "streamNextOffset": end, "streamClosed": true, "upToDate": true })
        );
    }
    let over = read(&server, &stream, &format!("?offset={end}&live=long-poll")).await;
    assert_eq!(
        (over.status().as_u16(), header(&over, "stream-closed").as_deref()),
        (204, Some("true"))
    );
    server.stop().await;
}

/// The items of a live body, and its last control event.
fn events(body: &str) -> (Vec<Value>, Value) {
    let (mut items, mut last) = (Vec::new(), Value::Null);
    for frame in body.split("\n\n").filter(|frame| frame.contains("data: ")) {
        let line = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let told: Value = serde_json::from_str(line("data: ")).unwrap();
        match line("event: ") {
            "data" => items.extend(told.as_array().unwrap().iter().cloned()),
            "control" => last = told,
            other => panic!("{other}"),
        }
    }
    (items, last)
}

#[tokio::test]
async fn a_long_poll_waits_for_news_and_learns_of_the_end() {
    let server = start(Settings::default()).await;
    let response = server.post(&ask("/hang")).await;
    let stream = stream_of(&response);
    let head = client().head(format!("{}/v1/durable/{stream}", server.url)).send().await.unwrap();
    let (tail, is_closed) =
        (header(&head, "stream-next-offset").unwrap(), header(&head, "stream-closed"));
    assert_eq!(
        (is_closed, header(&head, "content-type").as_deref()),
        (None, Some("application/json"))
    );
    let query = format!("?offset={tail}&live=long-poll&cursor=1");
    let (polled, stopped) = tokio::join!(read(&server, &stream, &query), async {
        server.delete(&format!("/v1/streams/{stream}")).await
    });
    assert_eq!(stopped.status(), 200);
    assert_eq!(
        (polled.status().as_u16(), header(&polled, "stream-closed").as_deref()),
        (200, Some("true"))
    );
    assert!(header(&polled, "stream-cursor").is_some());
    let items: Vec<Value> = polled.json().await.unwrap();
    assert_eq!(items.last().unwrap()["op"], "CLOSE");
    server.stop().await;
}

#[tokio::test]
async fn chunks_of_a_ui_message_are_items_as_well() {
    let server = start(Settings::default()).await;
    let (stream, packets) = said(&server, "/tokens 3").await;
    let whole: Vec<Value> = read(&server, &stream, "?face=ai-sdk").await.json().await.unwrap();
    assert_eq!(
        (&whole[0]["type"], &whole.last().unwrap()["type"]),
        (&json!("start"), &json!("finish"))
    );
    // From any offset it goes on as it would have.
    for seq in 0..packets.len() {
        let rest = format!("?face=ai-sdk&offset={}", offset(seq));
        let rest: Vec<Value> = read(&server, &stream, &rest).await.json().await.unwrap();
        assert!(whole.ends_with(&rest), "after {seq}: {rest:?}");
        let live =
            read(&server, &stream, &format!("?face=ai-sdk&live=sse&offset={}", offset(seq))).await;
        assert_eq!(events(&live.text().await.unwrap()).0, rest);
    }
    server.stop().await;
}

#[tokio::test]
async fn wrong_requests_and_writes_are_refused_with_the_reason() {
    let server = start(Settings::default()).await;
    let (stream, packets) = said(&server, "/echo x").await;
    let beyond = format!("?offset={}", offset(packets.len() + 1));
    for (query, status) in [
        ("?offset=", 400),
        ("?offset=7", 400),
        ("?live=soon", 400),
        ("?face=ag-ui", 400),
        (&beyond, 410),
    ] {
        assert_eq!(read(&server, &stream, query).await.status().as_u16(), status, "{query}");
    }
    let unknown = uuid::Uuid::now_v7().to_string();
    assert_eq!(read(&server, &unknown, "").await.status(), 404);
    for method in [reqwest::Method::PUT, reqwest::Method::POST, reqwest::Method::DELETE] {
        let url = format!("{}/v1/durable/{stream}", server.url);
        let refused = client().request(method, url).body("[]").send().await.unwrap();
        assert_eq!(
            (refused.status().as_u16(), header(&refused, "allow").as_deref()),
            (405, Some("GET,HEAD"))
        );
        assert!(
            crate::common::problem(refused).await.detail.unwrap().contains("writes its own stream")
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn a_ticket_opens_the_stream_that_it_is_for() {
    let tenants = vec![Tenant::new("acme", vec![KeyHash::of("key-a")])].into();
    let server = start(Settings { tenants, ..Settings::default() }).await;
    let key = [("authorization", "Bearer key-a")];
    let response = server.post_with(&ask("/echo x"), &key).await;
    let (stream, ticket) = (stream_of(&response), header(&response, "x-stream-ticket").unwrap());
    drop(response);
    assert_eq!(read(&server, &stream, "").await.status(), 401);
    assert_eq!(read(&server, &stream, &format!("?ticket={ticket}")).await.status(), 200);
    let other = server.post_with(&ask("/echo y"), &key).await;
    assert_eq!(read(&server, &stream_of(&other), &format!("?ticket={ticket}")).await.status(), 403);
    server.stop().await;
}
