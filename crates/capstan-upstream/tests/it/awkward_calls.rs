//! Providers that write their calls in another way than most do.

use serde_json::{Value, json};

use crate::common::*;

/// An answer of Messages with one call: its input in the event that starts it, then in pieces.
fn call(input: &Value, pieces: &[&str]) -> Vec<Value> {
    let block = json!({ "type": "tool_use", "id": "t", "name": "f", "input": input });
    let start = json!({ "type": "content_block_start", "index": 0, "content_block": block });
    let piece = |piece: &&str| {
        json!({ "type": "content_block_delta", "index": 0,
            "delta": { "type": "input_json_delta", "partial_json": piece } })
    };
    let stop = json!({ "type": "content_block_stop", "index": 0 });
    let end = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
    std::iter::once(start).chain(pieces.iter().map(piece)).chain([stop, end]).collect()
}

fn arguments(told: &RunSeen) -> String {
    let pieces = told.events.iter().filter(|(kind, _)| kind == "TOOL_CALL_ARGS");
    pieces.map(|(_, data)| data["delta"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tool_input_in_the_start_event_is_sent() {
    for (input, pieces, expected) in [
        (json!({ "city": "Bonn" }), &[][..], r#"{"city":"Bonn"}"#),
        (json!({ "city": "Bonn" }), &[r#"{"city":"#, r#""Rome"}"#][..], r#"{"city":"Rome"}"#),
        (json!({}), &[r#"{"city":"Rome"}"#][..], r#"{"city":"Rome"}"#),
        (json!({}), &[][..], "{}"),
    ] {
        let events = call(&input, pieces);
        let script =
            move |_| std::iter::once(stream_head()).chain(events.iter().map(chunk)).collect();
        let provider = Provider::start(script).await;
        let config = json!({ "model": "m", "url": provider.url });
        let told = ask(&provider.gateway("anthropic", config).await, "Weather?").await;
        assert_eq!(arguments(&told), expected, "{input}: {}", told.raw);
        let ends = told.events.iter().filter(|(kind, _)| kind == "TOOL_CALL_END").count();
        assert_eq!(ends, 1, "{}", told.raw);
    }
}

/// An answer with nothing but a status.
async fn refusing(code: u16, body: &'static str) -> Provider {
    Provider::start(move |_| status(code, &[], body)).await
}

#[tokio::test]
async fn an_unknown_address_says_to_check_the_url() {
    let page = r#"{"detail":"Not Found"}"#;
    let file = r#"{"error":{"type":"not_found_error","message":"File not found"}}"#;
    for (body, is_named) in [(page, true), ("<h1>404</h1>", true), (file, false)] {
        let provider = refusing(404, body).await;
        let config = json!({ "model": "m", "url": provider.url });
        let (status, told) = ask_json(&provider.gateway("openai", config).await, "Hi").await;
        assert_eq!(told.to_string().contains("Check the agent's url"), is_named, "{told}");
        assert!(status >= 500, "{status}");
    }
}

#[tokio::test]
async fn an_unknown_server_gets_the_limit_that_all_servers_read() {
    for preset in [None, Some("openai")] {
        let provider = Provider::start(|_| answer()).await;
        let mut config = json!({ "model": "m", "url": format!("{}/v1", provider.url) });
        config.as_object_mut().unwrap().extend(preset.map(|name| ("preset".into(), name.into())));
        let url = provider.gateway("openai", config).await + "/v1/messages";
        let asks = json!({ "max_tokens": 5, "messages": [{ "role": "user", "content": "Hi" }] });
        let told = client().post(url).json(&asks).send().await.unwrap();
        assert_eq!(told.status(), 200);
        let body = provider.seen()[0].body.clone();
        let expected = if preset.is_some() { "max_completion_tokens" } else { "max_tokens" };
        let sent: Vec<&str> = ["max_tokens", "max_completion_tokens"]
            .into_iter()
            .filter(|name| body[*name] == 5)
            .collect();
        assert_eq!(sent, [expected], "{body}");
    }
}

#[tokio::test]
async fn agents_that_are_no_models_get_their_headers() {
    for kind in ["ag-ui", "a2a", "cap"] {
        let provider = refusing(500, "{}").await;
        let mut config = json!({ "url": provider.url, "headers": { "x-team": "blue" } });
        if kind == "a2a" {
            config["protocol"] = json!("1.0");
        }
        ask_json(&provider.gateway(kind, config).await, "Hi").await;
        let head = provider.seen()[0].head.clone();
        assert!(head.contains("x-team: blue"), "{kind}: {head}");
    }
}
