//! What a chat asks for and the gateway does not know reaches an agent of the same protocol as it
//! came, also behind a route. Every other agent refuses it by name.

use capstan_agent::Clock;
use serde_json::{Value, json};

use crate::common::*;
use crate::routes;

/// Each with the path that a refusal names.
fn unknown() -> Vec<(&'static str, Value, &'static str)> {
    let message = |message: Value| json!([message]);
    let video = json!([{ "type": "text", "text": "What is it?" },
        { "type": "video_url", "video_url": { "url": "https://a.example/v.mp4" } }]);
    vec![
        ("logprobs", json!(true), "logprobs"),
        ("top_logprobs", json!(3), "top_logprobs"),
        ("modalities", json!(["text", "audio"]), "modalities"),
        ("audio", json!({ "voice": "alloy", "format": "wav" }), "audio"),
        ("functions", json!([{ "name": "f", "parameters": {} }]), "functions"),
        ("function_call", json!({ "name": "f" }), "function_call"),
        ("tools", json!([{ "type": "custom", "custom": { "name": "patch" } }]), "tools[0].type"),
        ("tool_choice", json!("sometimes"), "tool_choice"),
        ("reasoning_effort", json!("gigantic"), "reasoning_effort"),
        ("verbosity", json!("huge"), "verbosity"),
        ("response_format", json!({ "type": "grammar", "grammar": "x" }), "response_format.type"),
        ("temperature", json!(3.5), "temperature"),
        ("seed", json!(u64::MAX), "seed"),
        (
            "messages",
            message(json!({ "role": "user", "content": video })),
            "messages[0].content[1].type",
        ),
        (
            "messages",
            json!([{ "role": "user", "content": "Hi" },
            { "role": "function", "name": "f", "content": "42" }]),
            "messages[1].role",
        ),
        (
            "messages",
            json!([{ "role": "user", "content": "Hi" },
            { "role": "assistant", "content": null,
                "function_call": { "name": "f", "arguments": "{}" } },
            { "role": "user", "content": "So?" }]),
            "messages[1].function_call",
        ),
    ]
}

fn body(agent: &str, name: &str, value: &Value) -> Value {
    let mut body = json!({ "model": agent, "messages": [{ "role": "user", "content": "Hi" }] });
    body[name] = value.clone();
    body
}

async fn post(gateway: &str, body: &Value) -> (u16, Value) {
    let url = format!("{gateway}/v1/chat/completions");
    let response = client().post(url).json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn provider() -> Provider {
    Provider::start(|_| answer()).await
}

#[tokio::test]
async fn unknown_members_reach_an_agent_of_the_same_protocol() {
    let provider = provider().await;
    let config = json!({ "model": "m", "url": provider.url });
    let agents = [("own", "openai", config), ("route", "route", json!({ "use": ["own"] }))];
    let gateway = routes::gateway(&Clock::default(), &agents).await;
    for agent in ["own", "route"] {
        for (name, value, _) in unknown() {
            let (status, told) = post(&gateway, &body(agent, name, &value)).await;
            assert_eq!(status, 200, "{agent} {name} {value}: {told}");
            let sent = provider.seen().last().unwrap().body.clone();
            assert_eq!(sent[name], value, "{agent} {name}");
        }
    }
}

#[tokio::test]
async fn unknown_members_are_refused_by_name_by_other_protocols() {
    let provider = provider().await;
    let (own, url) = (json!({ "model": "m", "url": provider.url }), &provider.url);
    let agents = [
        ("anthropic", "anthropic", json!({ "model": "m", "url": url })),
        ("responses", "openai", json!({ "model": "m", "url": url, "api": "responses" })),
        ("own", "openai", own),
        ("route", "route", json!({ "use": ["anthropic", "own"] })),
        ("ag-ui", "ag-ui", json!({ "url": url })),
    ];
    let gateway = routes::gateway(&Clock::default(), &agents).await;
    for agent in ["anthropic", "responses", "route", "ag-ui"] {
        for (name, value, place) in unknown() {
            let (status, told) = post(&gateway, &body(agent, name, &value)).await;
            assert_eq!((status, &told["error"]["param"]), (400, &json!(place)), "{agent}: {told}");
        }
    }
    assert_eq!(provider.calls(), 0);
    let (status, told) = post(&gateway, &body("own", "n", &json!(2))).await;
    assert_eq!((status, &told["error"]["param"]), (400, &json!("n")));
}
