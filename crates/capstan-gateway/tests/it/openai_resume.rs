//! A client of Responses that was cut behind complete items sends these with its request again, and
//! reads on behind them.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Server, client, journal, serve_gateway};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, Settings};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

/// Only a server that never answers needs the guard.
const GUARD: Duration = Duration::from_secs(30);

/// Thinks and begins to speak; it says the rest and calls a tool when it is let.
struct Slow(Arc<Semaphore>);

#[async_trait]
impl Agent for Slow {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        out.thought("Weather, then.").await?;
        out.delta("I ").await?;
        self.0.acquire().await.unwrap().forget();
        out.delta("look.").await?;
        let start = json!({ "toolCallId": "c1", "toolCallName": "weather" });
        out.event("TOOL_CALL_START", &start).await?;
        out.event("TOOL_CALL_ARGS", &json!({ "toolCallId": "c1", "delta": "{}" })).await?;
        out.event("TOOL_CALL_END", &json!({ "toolCallId": "c1" })).await?;
        Ok(())
    }
}

async fn serve() -> (Server, Arc<Semaphore>) {
    let goes_on = Arc::new(Semaphore::new(0));
    let gateway = Gateway::new(journal()).agent("slow", Slow(goes_on.clone()));
    (serve_gateway(gateway.settings(Settings::default())).await, goes_on)
}

fn question() -> Value {
    let input = json!([{ "type": "message", "role": "user",
        "content": [{ "type": "input_text", "text": "Bern?" }] }]);
    json!({ "model": "slow", "stream": true, "store": false, "input": input,
        "tools": [{ "type": "function", "name": "weather", "parameters": {} }] })
}

/// The question, with what its answer has told so far.
fn behind(seen: &[&Value]) -> Value {
    let mut body = question();
    body["input"].as_array_mut().unwrap().extend(seen.iter().map(|item| (*item).clone()));
    body
}

async fn post(server: &Server, session: &str, body: &Value) -> reqwest::Response {
    let url = format!("{}/v1/responses", server.url);
    client().post(url).header("session-id", session).json(body).send().await.unwrap()
}

fn events(told: &str) -> Vec<Value> {
    let data = told.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The events of an answer up to one of this type; then the connection is cut.
async fn cut_behind(mut response: reqwest::Response, kind: &str) -> Vec<Value> {
    let mut told = String::new();
    while !told.contains(&format!("event: {kind}\n")) {
        let chunk = tokio::time::timeout(GUARD, response.chunk()).await.expect("it goes on");
        told += std::str::from_utf8(&chunk.unwrap().unwrap()).unwrap();
    }
    events(&told)
}

async fn nobody_reads(server: &Server) {
    let metrics = || async { server.get("/metrics").await.text().await.unwrap() };
    let left = async { while !metrics().await.contains("capstan_active_readers 0\n") {} };
    tokio::time::timeout(GUARD, left).await.expect("the reader has left");
}

/// The items that were told as complete.
fn done(events: &[Value]) -> Vec<&Value> {
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    done.map(|event| &event["item"]).collect()
}

fn id(events: &[Value]) -> &Value {
    &events[0]["response"]["id"]
}

#[tokio::test]
async fn items_that_a_client_has_are_neither_resent_nor_billed() {
    let (server, goes_on) = serve().await;
    let first = post(&server, "s", &question()).await;
    let first = cut_behind(first, "response.output_text.delta").await;
    let [thought] = done(&first)[..] else { panic!("{first:?}") };
    nobody_reads(&server).await;

    // It is cut once more, before anything new was complete.
    let second = post(&server, "s", &behind(&[thought])).await;
    let second = cut_behind(second, "response.output_text.delta").await;
    assert_eq!((id(&second), done(&second).len()), (id(&first), 0));
    nobody_reads(&server).await;

    goes_on.add_permits(1);
    let third = post(&server, "s", &behind(&[thought])).await.text().await.unwrap();
    let third = events(&third);
    assert_eq!(id(&third), id(&first));
    let items = done(&third);
    let kinds: Vec<_> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    let mut sorted = kinds.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, ["function_call", "message"], "the thought is not told again");
    let added = third.iter().filter(|event| event["type"] == "response.output_item.added");
    let places: Vec<_> = added.map(|event| event["output_index"].as_u64().unwrap()).collect();
    assert_eq!(places, [0, 1], "an answer's places begin with 0");
    let output = third.last().unwrap()["response"]["output"].as_array().unwrap();
    assert_eq!(output.len(), 2);

    // What is complete may be lost as well: then only the end is left to tell.
    let all: Vec<&Value> = std::iter::once(thought).chain(items).collect();
    let fourth = events(&post(&server, "s", &behind(&all)).await.text().await.unwrap());
    assert_eq!(
        (id(&fourth), &fourth.last().unwrap()["type"]),
        (id(&first), &"response.completed".into())
    );
    assert_eq!(fourth.last().unwrap()["response"]["output"], json!([]));
    assert_eq!(runs(&server).await, 1);
}

#[tokio::test]
async fn another_question_is_another_run() {
    let (server, goes_on) = serve().await;
    let first = post(&server, "s", &question()).await;
    let first = cut_behind(first, "response.output_text.delta").await;
    let thought = done(&first)[0];
    nobody_reads(&server).await;
    goes_on.add_permits(9);

    let with = |name: &str, value: Value| {
        let mut other = thought.clone();
        other[name] = value;
        other
    };
    let mut elsewhere = behind(&[thought]);
    elsewhere["input"][0]["content"][0]["text"] = "Basel?".into();
    let summary = json!([{ "type": "summary_text", "text": "Something else." }]);
    let user = json!({ "type": "message", "role": "user", "content": "And Basel?" });
    for (session, other) in [
        ("z", behind(&[thought])),
        ("s", behind(&[&with("id", "rs_other".into())])),
        ("s", behind(&[&with("summary", summary)])),
        ("s", behind(&[thought, &user])),
        ("s", elsewhere),
    ] {
        let told = events(&post(&server, session, &other).await.text().await.unwrap());
        assert_ne!(id(&told), id(&first), "{other}");
        assert!(done(&told).iter().any(|item| item["type"] == "reasoning"), "{other}");
    }
    // The run is still there for its own client.
    let told = events(&post(&server, "s", &behind(&[thought])).await.text().await.unwrap());
    assert_eq!(id(&told), id(&first));
    assert_eq!(runs(&server).await, 6);
}

#[tokio::test]
async fn a_run_with_a_reader_is_not_shared() {
    let (server, _goes_on) = serve().await;
    let mut first = post(&server, "s", &question()).await;
    let mut told = String::new();
    while !told.contains("response.output_text.delta") {
        told += std::str::from_utf8(&first.chunk().await.unwrap().unwrap()).unwrap();
    }
    let told = events(&told);
    let second = post(&server, "s", &behind(&[done(&told)[0]])).await;
    let second = cut_behind(second, "response.output_text.delta").await;
    assert_ne!(id(&second), id(&told));
}

async fn runs(server: &Server) -> usize {
    let told: Value = server.get("/v1/streams?limit=100").await.json().await.unwrap();
    told["streams"].as_array().unwrap().len()
}
