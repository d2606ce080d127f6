//! A fault strikes in a named place of the stream, of those answers that have it.

use capstan_fake_provider::{Answer, FakeProvider, PLACES, Script, ToolCall};
use serde_json::{Value, json};

use crate::common::{PATHS, question, read, send, start};

fn thoughtful() -> Script {
    let call = ToolCall {
        name: "Write".into(),
        arguments: json!({ "path": "a.txt", "text": "Heave ho" }).as_object().unwrap().clone(),
        input: None,
    };
    Script::default().answer(Answer {
        reasoning: Some("Let me think.".into()),
        signed: true,
        redacted: true,
        text: "I write it down.".into(),
        tool_calls: vec![call],
        refusal: None,
    })
}

async fn broken(provider: &FakeProvider, path: &str, place: &str) -> String {
    let mut body = question(&format!("close-mid-stream:{place}"));
    body["include"] = json!(["reasoning.encrypted_content"]);
    let (body, is_whole) = read(send(provider, path, &body).await.unwrap()).await;
    assert!(!is_whole, "{path} {place}: {body}");
    body
}

/// The last event of the stream, in each shape, for every place.
#[tokio::test]
async fn a_stream_breaks_in_the_place_that_is_named() {
    let provider = start(thoughtful()).await;
    let arguments = ["\\\"path\\\"", "path"];
    let last: [(&str, [&str; 3]); 9] = [
        ("before-events", ["", "", ""]),
        ("after-start", ["role", "response.created", "message_start"]),
        ("mid-thinking", ["Let ", "Let ", "Let "]),
        ("after-thinking", ["think.", "response.output_item.done", "content_block_stop"]),
        ("mid-text", ["write ", "write ", "write "]),
        ("after-text", ["down.", "response.output_item.done", "content_block_stop"]),
        ("mid-arguments", [arguments[0], arguments[0], arguments[0]]),
        ("before-finish", ["}", "response.output_item.done", "content_block_stop"]),
        ("before-end", ["usage", "response.output_item.done", "message_delta"]),
    ];
    assert_eq!(last.map(|(place, _)| place), PLACES.map(|(_, place)| place));
    for (place, words) in last {
        for (path, word) in PATHS.iter().zip(words) {
            let body = broken(&provider, path, place).await;
            let event = body.trim_end().rsplit("\n\n").next().unwrap();
            assert!(event.contains(word) && body.is_empty() == word.is_empty(), "{place}: {body}");
        }
    }
}

#[tokio::test]
async fn a_stream_ends_exactly_at_its_place() {
    let provider = start(thoughtful()).await;
    let body = broken(&provider, PATHS[2], "after-thinking").await;
    assert!(body.contains("signature_delta") && body.contains("redacted_thinking"), "{body}");
    assert!(!body.contains("\"type\":\"text\""), "{body}");
    assert_eq!(body.matches("content_block_start\"").count(), 2, "{body}");
    assert_eq!(body.matches("content_block_stop\"").count(), 2, "{body}");
    let body = broken(&provider, PATHS[1], "after-thinking").await;
    assert!(body.contains("encrypted_content") && !body.contains("output_text"), "{body}");
    let body = broken(&provider, PATHS[2], "before-end").await;
    assert!(body.contains("\"stop_reason\":\"tool_use\""), "{body}");
}

/// A call whose answer lacks the place is neither struck nor counted.
#[tokio::test]
async fn a_place_strikes_the_first_calls_that_have_it() {
    let script = thoughtful().fault("close-mid-stream:mid-arguments@1".parse().unwrap());
    let plain = Answer { text: "Plain.".into(), ..Answer::default() };
    let only = capstan_fake_provider::Condition { tool_results: Some(1), ..Default::default() };
    let provider = start(script.reply(only, plain)).await;
    let ends = |body: Value| {
        let provider = &provider;
        async move { read(send(provider, PATHS[2], &body).await.unwrap()).await.1 }
    };
    let mut after = question("m");
    after["messages"].as_array_mut().unwrap().push(json!({ "role": "user",
    "content": [{ "type": "tool_result", "tool_use_id": "call_0" }] }));
    let whole = [
        ends(after.clone()).await,
        ends(question("m")).await,
        ends(question("m")).await,
        ends(after).await,
    ];
    assert_eq!(whole, [true, false, true, true]);
    let faults: Vec<bool> = provider.calls().iter().map(|call| call.fault.is_some()).collect();
    assert_eq!(faults, [false, true, false, false]);
}

#[tokio::test]
async fn an_overload_in_the_middle_is_an_event_in_anthropics_words() {
    let provider = start(thoughtful()).await;
    for (model, kind, words) in [
        ("overloaded-in-stream:mid-text", "overloaded_error", "Overloaded"),
        ("error-in-stream:mid-text", "api_error", "Internal server error"),
        ("rate-limit-in-stream:1", "rate_limit_error", "your account's rate limit"),
    ] {
        let (body, is_whole) =
            read(send(&provider, PATHS[2], &question(model)).await.unwrap()).await;
        let last = body.trim_end().rsplit("\n\n").next().unwrap();
        assert!(is_whole && last.starts_with("event: error\n"), "{model}: {body}");
        assert!(last.contains(kind) && last.contains(words), "{model}: {last}");
    }
    for (model, status, kind) in
        [("status-529", 529, "overloaded_error"), ("status-429", 429, "rate_limit_error")]
    {
        let refused = send(&provider, PATHS[2], &question(model)).await.unwrap();
        assert_eq!(refused.status(), status);
        let body: Value = refused.json().await.unwrap();
        assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(kind)));
    }
}
