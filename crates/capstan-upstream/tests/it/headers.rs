//! The headers and the query of an agent's own: they are sent, and nobody reads their values.

use crate::common::*;
use capstan_agent::Turn;
use capstan_protocol::Exposure;
use serde_json::{Value, json};

/// A variable that is set wherever these tests run, as one that holds a secret.
const NAME: &str = "CARGO_PKG_NAME";
const SECRET: &str = env!("CARGO_PKG_NAME");

fn config(kind: &str, url: &str) -> Value {
    let mut config = json!({ "model": "m", "url": url, "key_env": "", "attempts": 1,
        "max_calls": 1,
        "headers": { "X-Org": "org-1", "X-Gate-Key": { "env": NAME } },
        "query": { "trial": "1", "sig": { "env": NAME } } });
    if kind == "responses" {
        config["api"] = "responses".into();
    }
    config
}

fn row(kind: &str) -> &str {
    if kind == "responses" { "openai" } else { kind }
}

const KINDS: [&str; 3] = ["openai", "responses", "anthropic"];

#[tokio::test]
async fn a_beta_of_responses_reaches_an_agent_of_the_same_protocol() {
    let events = [
        json!({ "type": "response.output_text.delta", "output_index": 0, "delta": "Hello." }),
        json!({ "type": "response.completed", "response": { "status": "completed" } }),
    ];
    let script =
        move |_| std::iter::once(stream_head()).chain(events.iter().map(chunk)).collect::<Vec<_>>();
    let provider = Provider::start(script).await;
    let config = json!({ "model": "m", "api": "responses", "url": provider.url });
    let url = provider.gateway("openai", config).await + "/v1/responses";
    for key in ["one", "one", "two"] {
        let post = client().post(&url).json(&json!({ "input": "Hi" }));
        let post = post.header("openai-beta", "agents=v1, new=v2").header("idempotency-key", key);
        assert_eq!(post.send().await.unwrap().status(), 200);
    }
    assert_eq!(provider.calls(), 2, "a repeat is the same run");
    for seen in provider.seen() {
        assert!(seen.head.contains("openai-beta: agents=v1,new=v2"), "{}", seen.head);
        assert_eq!(seen.body["openai_beta"], Value::Null, "{}", seen.body);
    }
}

#[tokio::test]
async fn own_headers_and_the_query_are_sent_and_no_key() {
    for kind in KINDS {
        let provider = Provider::start(|_| status(400, &[], "{}")).await;
        let _ = run(agent(row(kind), config(kind, &provider.url)), Turn::new("Hi")).await;
        let head = provider.seen()[0].head.clone();
        for line in ["x-org: org-1", &format!("x-gate-key: {SECRET}")] {
            assert!(head.lines().any(|known| known == line), "{kind}: {head}");
        }
        assert!(head.contains(&format!("?sig={SECRET}&trial=1 http")), "{kind}: {head}");
        assert!(!head.contains("authorization") && !head.contains("x-api-key"), "{kind}: {head}");
    }
}

#[tokio::test]
async fn a_header_that_a_server_repeats_does_not_reach_a_fault() {
    for kind in KINDS {
        let body = json!({ "error": { "message": format!("bad header {SECRET}") } }).to_string();
        let provider = Provider::start(move |_| status(400, &[], &body)).await;
        let agent = agent(row(kind), config(kind, &provider.url));
        assert!(agent.endpoint().unwrap().has_key, "{kind}");
        let fault = run(agent, Turn::new("Hi")).await.1.unwrap_err();
        let shown = format!("{fault:?} {:?}", fault.to_stream_error(Exposure::Debug));
        assert!(shown.contains("bad header [key]") && !shown.contains(SECRET), "{kind}: {shown}");
    }
}

#[tokio::test]
async fn a_connection_that_fails_does_not_tell_the_query() {
    let closed = closed_port();
    let url = format!("http://{}", closed.local_addr().unwrap());
    let fault = run(agent("openai", config("openai", &url)), Turn::new("Hi")).await.1.unwrap_err();
    assert!(!format!("{fault:?}").contains(SECRET), "{fault:?}");
}

#[tokio::test]
async fn anthropics_version_and_betas_can_be_chosen() {
    let provider = Provider::start(|_| status(400, &[], "{}")).await;
    let config = json!({ "model": "m", "url": provider.url, "max_calls": 1, "attempts": 1,
        "key_env": NAME, "key_header": "authorization",
        "headers": { "anthropic-version": "2099-01-01", "anthropic-beta": "new-1" } });
    let _ = run(agent("anthropic", config), Turn::new("Hi")).await;
    let head = provider.seen()[0].head.clone();
    for line in [
        "anthropic-version: 2099-01-01",
        "anthropic-beta: new-1",
        &format!("authorization: bearer {SECRET}"),
    ] {
        assert_eq!(head.lines().filter(|known| *known == line).count(), 1, "{head}");
    }
    assert!(!head.contains("2023-06-01") && !head.contains("x-api-key"), "{head}");
}
