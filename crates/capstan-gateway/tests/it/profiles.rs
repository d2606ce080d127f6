//! Both profiles over HTTP: a request is answered in its own, unless the query says otherwise.

use crate::common::{
    Server, all, ask, client, journal, problem, serve_gateway, start, stream_of, text,
};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, Settings};
use capstan_protocol::{Event, EventView, Payload, sse, v2};
use serde_json::{Value, json};
use uuid::Uuid;

/// A request of the later data contract.
fn ask_v2(text: &str) -> Value {
    json!({
        "request_id": Uuid::now_v7(),
        "context": { "session_id": "sess_abc", "user": { "id": "u", "name": "n" } },
        "payload": { "query": text },
    })
}

async fn post(server: &Server, query: &str, body: &Value) -> reqwest::Response {
    client().post(format!("{}/v1/assist{query}", server.url)).json(body).send().await.unwrap()
}

/// The data of each frame.
async fn data(response: reqwest::Response) -> Vec<String> {
    assert_eq!(response.status(), 200);
    let mut decoder = sse::Decoder::new();
    decoder.push(&response.bytes().await.unwrap());
    let mut found = Vec::new();
    while let Some(frame) = decoder.next_frame() {
        found.push(frame.unwrap().data.to_string());
    }
    found
}

async fn all_v2(response: reqwest::Response) -> Vec<v2::StreamPacket> {
    data(response).await.iter().map(|text| v2::StreamPacket::decode(text).unwrap()).collect()
}

#[tokio::test]
async fn a_v2_request_is_answered_in_v2_with_positions() {
    let server = start(Settings::default()).await;
    let response = post(&server, "", &ask_v2("/tokens 3")).await;
    let stream = stream_of(&response);
    let packets = all_v2(response).await;
    let said: Vec<_> = packets.iter().map(|p| &p.payload).collect();
    assert!(matches!(said[..], [Payload::Delta(a), Payload::Delta(_), Payload::Delta(_),
        Payload::Close(_)] if a == "tok1 "));
    for (packet, seq) in packets.iter().zip(1..) {
        assert_eq!(
            (packet.stream_id.unwrap().to_string(), packet.seq),
            (stream.clone(), Some(seq))
        );
        assert!(packet.t.is_some());
    }
    server.stop().await;
}

#[tokio::test]
async fn the_query_overrides_the_profile_but_not_the_run() {
    let server = start(Settings::default()).await;
    let (old, new) = (serde_json::to_value(ask("/tokens 3")).unwrap(), ask_v2("/tokens 3"));
    let (first, second) = (post(&server, "", &old).await, post(&server, "?profile=v2", &old).await);
    assert_eq!(stream_of(&first), stream_of(&second), "the journal holds one stream for both");
    assert_eq!((all(first).await.len(), all_v2(second).await.len()), (4, 4));
    assert_eq!(text(&all(post(&server, "?profile=v1", &new).await).await), "tok1 tok2 tok3 ");
    let wrong = problem(post(&server, "?profile=v3", &old).await).await;
    assert_eq!(wrong.code, "invalid_request");
    assert!(wrong.detail.unwrap().starts_with("profile: "));
    server.stop().await;
}

#[tokio::test]
async fn a_viewer_chooses_its_profile() {
    let server = start(Settings::default()).await;
    let stream = stream_of(&post(&server, "", &ask_v2("/tokens 3")).await);
    let path = format!("/v1/streams/{stream}");
    assert_eq!(all(server.get(&path).await).await.len(), 4);
    assert_eq!(all_v2(server.get(&format!("{path}?profile=v2&after=2")).await).await.len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn a_warning_is_a_user_error_event_in_v2() {
    let server = start(Settings::default()).await;
    let frames = data(post(&server, "", &ask_v2("/warn")).await).await;
    assert!(frames.iter().all(|frame| !frame.contains(r#""op":"error""#)), "v2 has no warnings");
    let view =
        frames.iter().find_map(|frame| match v2::StreamPacket::decode(frame).unwrap().payload {
            Payload::Event(raw) => Some(Event::of(&raw).view()),
            Payload::Delta(_) | Payload::Error(_) | Payload::Close(_) => None,
        });
    let Some(EventView::UserError(error)) = view else { panic!("{frames:?}") };
    assert_eq!((error.domain.as_str(), error.retryable), ("system", false));
    assert!(error.message.starts_with("One of two sources"));
    server.stop().await;
}

#[tokio::test]
async fn errors_of_v2_are_spelt_in_lower_case() {
    let server = start(Settings::default()).await;
    let frames = data(post(&server, "", &ask_v2("/fault upstream_auth")).await).await;
    let error: Value = serde_json::from_str(&frames[frames.len() - 2]).unwrap();
    assert_eq!((&error["op"], &error["p"]["severity"]), (&"error".into(), &"fatal".into()));
    assert_eq!(error["p"]["code"], "upstream_auth");
    server.stop().await;
}

#[tokio::test]
async fn a_replay_in_v2_is_byte_equal_too() {
    let server = start(Settings::default()).await;
    for text in ["/warn", "/events", "/fault upstream_auth"] {
        let body = ask_v2(text);
        let first = post(&server, "", &body).await.bytes().await.unwrap();
        assert_eq!(post(&server, "", &body).await.bytes().await.unwrap(), first, "{text}");
    }
    server.stop().await;
}

/// Tells what this build does not know, and what a reader of v2 could take for something else.
struct Stranger;

/// Members by which readers of v2 know other blocks.
fn guessable() -> Value {
    json!({ "message": "m", "content": "c", "items": [], "label": "l", "status": "running" })
}

#[async_trait]
impl Agent for Stranger {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        out.event("FROM_THE_FUTURE", &json!({ "n": 12_345_678_901_234_567_890_u64 })).await?;
        out.event("THOUGHT_TRACE", &guessable()).await?;
        out.event("user_error", &guessable()).await?;
        Ok(())
    }
}

/// The payloads of the events, by type.
async fn events_of(server: &Server, query: &str) -> Vec<(String, Value)> {
    let frames = data(post(server, query, &serde_json::to_value(ask("Hi")).unwrap()).await).await;
    let packets = frames.iter().map(|frame| serde_json::from_str::<Value>(frame).unwrap());
    let events =
        packets.filter(|packet| packet["op"].as_str().unwrap().eq_ignore_ascii_case("event"));
    events
        .map(|packet| (packet["p"]["type"].as_str().unwrap().to_owned(), packet["p"].clone()))
        .collect()
}

#[tokio::test]
async fn an_unknown_event_is_unchanged_in_both_profiles() {
    let server = serve_gateway(Gateway::new(journal()).agent("stranger", Stranger)).await;
    for query in ["?profile=v1", "?profile=v2"] {
        let (kind, event) = events_of(&server, query).await.swap_remove(0);
        assert_eq!(kind, "FROM_THE_FUTURE", "{query}");
        assert_eq!(event["data"], json!({ "n": 12_345_678_901_234_567_890_u64 }), "{query}");
    }
    server.stop().await;
}

#[tokio::test]
async fn v2_blocks_cannot_be_mistaken_for_others() {
    let server = serve_gateway(Gateway::new(journal()).agent("stranger", Stranger)).await;
    let events = events_of(&server, "?profile=v2").await;
    for kind in ["thought_trace", "user_error"] {
        let (_, event) = events.iter().find(|(found, _)| found == kind).unwrap();
        let data = event["data"].as_object().unwrap();
        let looks_like_a_block = data.contains_key("content")
            || data.contains_key("items")
            || data.contains_key("label") && data.contains_key("status");
        assert!(!looks_like_a_block, "{kind}: {data:?}");
        assert_eq!(data["message"], "m", "{kind}: the rest is as it was");
    }
    server.stop().await;
}
