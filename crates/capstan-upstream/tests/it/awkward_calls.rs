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
        (json!({}), &[][..], ""),
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
