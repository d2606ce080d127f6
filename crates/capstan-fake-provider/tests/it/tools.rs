//! A turn with tools: the thinking before a call comes back, or the next request is refused.

use capstan_fake_provider::{Answer, Condition, FakeProvider, Script, ToolCall};
use serde_json::{Map, Value, json};

use crate::common::{PATHS, client, read, send, start};

fn write(input: Option<&str>) -> ToolCall {
    let mut arguments = Map::new();
    arguments.insert("path".into(), "a.txt".into());
    ToolCall { name: "Write".into(), arguments, input: input.map(str::to_owned) }
}

/// Thinks, writes a file if it has the tool, and confirms it.
fn writer(answer: Answer) -> Script {
    let only = Condition {
        offers: Some("Write".into()),
        user: Some("a file".into()),
        tool_results: Some(0),
        ..Condition::default()
    };
    let said = Answer { text: "It is written.".into(), ..Answer::default() };
    Script::default().answer(said).reply(only, answer)
}

fn thoughtful(input: Option<&str>) -> Answer {
    Answer {
        reasoning: Some("Hm.".into()),
        signed: true,
        redacted: true,
        text: String::new(),
        tool_calls: vec![write(input)],
        refusal: None,
    }
}

async fn document(provider: &FakeProvider, path: &str, body: &Value) -> (u16, Value) {
    let response = send(provider, path, body).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

fn first_turn() -> Value {
    json!({ "model": "m", "tools": [{ "name": "Write" }],
    "messages": [{ "role": "user", "content": "Write a file." }] })
}

/// The request that returns the model's message, with the tool's result.
fn second_turn(content: &Value) -> Value {
    let mut body = first_turn();
    let result = json!({ "type": "tool_result", "tool_use_id": "call_1", "content": "done" });
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": content }));
    messages.push(json!({ "role": "user", "content": [result] }));
    body
}

#[tokio::test]
async fn a_turn_with_tools_is_scripted_and_calls_beside_it_are_answered_plainly() {
    let provider = start(writer(thoughtful(None))).await;
    let (_, called) = document(&provider, PATHS[2], &first_turn()).await;
    assert_eq!(called["stop_reason"], "tool_use", "{called}");
    let kinds: Vec<&str> = called["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["thinking", "redacted_thinking", "tool_use"]);
    let (_, ended) = document(&provider, PATHS[2], &second_turn(&called["content"])).await;
    assert_eq!(ended["content"][0]["text"], "It is written.", "{ended}");
    let beside = json!({ "model": "small", "messages": first_turn()["messages"] });
    let (_, plain) = document(&provider, PATHS[2], &beside).await;
    assert_eq!(plain["content"][0]["text"], "It is written.", "it offers no tools");
}

#[tokio::test]
async fn signed_thinking_has_to_come_back_byte_for_byte_and_in_its_place() {
    let provider = start(writer(thoughtful(None))).await;
    let (_, called) = document(&provider, PATHS[2], &first_turn()).await;
    let own = called["content"].clone();
    let changed = |change: fn(&mut Vec<Value>)| {
        let mut blocks = own.as_array().unwrap().clone();
        change(&mut blocks);
        Value::Array(blocks)
    };
    let cases: [(Value, &str); 5] = [
        (changed(|blocks| blocks[0]["signature"] = "x".into()), "Invalid `signature`"),
        (changed(|blocks| blocks[0]["thinking"] = "Hm".into()), "Invalid `signature`"),
        (changed(|blocks| blocks[1]["data"] = "x".into()), "Invalid `data`"),
        (changed(|blocks| drop(blocks.remove(1))), "cannot be modified"),
        (changed(|blocks| drop(blocks.drain(..2))), "Expected `thinking` or `redacted_thinking`"),
    ];
    for (content, words) in cases {
        let (status, refused) = document(&provider, PATHS[2], &second_turn(&content)).await;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(status == 400 && message.contains(words), "{words}: {refused}");
        let last = provider.calls().pop().unwrap();
        assert_eq!(last.complaint.as_deref(), Some(message));
    }
    assert_eq!(document(&provider, PATHS[2], &second_turn(&own)).await.0, 200);
    let other = start(writer(thoughtful(None))).await;
    let (status, refused) = document(&other, PATHS[2], &second_turn(&own)).await;
    assert_eq!(status, 400, "thinking of another provider is foreign: {refused}");
}

#[tokio::test]
async fn a_stream_has_the_content_of_a_document() {
    let answer = Answer { reasoning: None, redacted: false, ..thoughtful(None) };
    let provider = start(writer(answer)).await;
    let (_, called) = document(&provider, PATHS[2], &first_turn()).await;
    let mut streamed = first_turn();
    streamed["stream"] = true.into();
    let (body, _) = read(send(&provider, PATHS[2], &streamed).await.unwrap()).await;
    let signature = called["content"][0]["signature"].as_str().unwrap();
    assert!(
        body.contains(&format!("\"signature_delta\",\"signature\":{:?}", signature))
            || body.contains(signature),
        "{body}"
    );
    assert!(!body.contains("thinking_delta"), "only its signature is shown: {body}");
    assert_eq!(body.matches("input_json_delta").count(), 3, "{body}");
    let events: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(events[..3], ["message_start", "content_block_start", "ping"]);
    let start: Value =
        serde_json::from_str(body.lines().nth(1).unwrap().trim_start_matches("data: ")).unwrap();
    let usage = &start["message"]["usage"];
    for member in
        ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"]
    {
        assert!(usage[member].is_u64(), "{member}: {usage}");
    }
}

#[tokio::test]
async fn encrypted_reasoning_and_custom_tools_go_round_in_responses() {
    let provider = start(writer(thoughtful(Some("*** Begin Patch")))).await;
    let mut first = json!({ "model": "m", "include": ["reasoning.encrypted_content"],
    "tools": [{ "type": "custom", "name": "Write" }],
    "input": [{ "role": "user", "content": "Write a file." }] });
    let (_, called) = document(&provider, PATHS[1], &first).await;
    let output = called["output"].as_array().unwrap().clone();
    assert_eq!(output[0]["type"], "reasoning");
    assert_eq!(output[0]["summary"][0]["text"], "Hm.");
    assert_eq!(
        (&output[1]["type"], &output[1]["input"]),
        (&json!("custom_tool_call"), &json!("*** Begin Patch"))
    );
    let with = |items: &[Value]| {
        let mut body = first.clone();
        let input = body["input"].as_array_mut().unwrap();
        input.extend_from_slice(items);
        input.push(json!({ "type": "custom_tool_call_output", "call_id": output[1]["call_id"],
        "output": "done" }));
        body
    };
    assert_eq!(document(&provider, PATHS[1], &with(&output)).await.0, 200);
    let (status, refused) = document(&provider, PATHS[1], &with(&output[1..])).await;
    assert_eq!(status, 400, "{refused}");
    let mut wrong = output.clone();
    wrong[0]["encrypted_content"] = "x".into();
    let (_, refused) = document(&provider, PATHS[1], &with(&wrong)).await;
    assert_eq!(refused["error"]["code"], "invalid_encrypted_content");
    first["stream"] = true.into();
    let (body, _) = read(send(&provider, PATHS[1], &first).await.unwrap()).await;
    for kind in [
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
        "response.completed",
    ] {
        assert!(body.contains(&format!("event: {kind}\n")), "{kind}: {body}");
    }
    first.as_object_mut().unwrap().remove("include");
    let (body, _) = read(send(&provider, PATHS[1], &first).await.unwrap()).await;
    assert!(!body.contains("encrypted_content"), "nobody asked for it: {body}");
}

#[tokio::test]
async fn chat_shows_what_a_model_thinks_and_custom_calls() {
    let provider = start(writer(thoughtful(Some("a text")))).await;
    let body = json!({ "model": "m", "tools": [{ "type": "custom", "custom": { "name": "Write" } }],
    "messages": first_turn()["messages"] });
    let (_, called) = document(&provider, PATHS[0], &body).await;
    let message = &called["choices"][0]["message"];
    assert_eq!(message["reasoning_content"], "Hm.");
    assert_eq!(message["tool_calls"][0]["custom"], json!({ "name": "Write", "input": "a text" }));
}

#[tokio::test]
async fn ids_of_a_repeated_call_repeat_by_default() {
    for is_unique in [false, true] {
        let script = Script { unique_ids: is_unique, ..writer(thoughtful(None)) };
        let provider = start(script).await;
        let (_, one) = document(&provider, PATHS[2], &first_turn()).await;
        let (_, two) = document(&provider, PATHS[2], &first_turn()).await;
        assert_eq!(one["id"] != two["id"], is_unique);
        assert_eq!(one["content"][2]["id"] != two["content"][2]["id"], is_unique);
        assert_eq!(document(&provider, PATHS[2], &second_turn(&two["content"])).await.0, 200);
    }
}

#[tokio::test]
async fn a_message_without_messages_is_refused() {
    let provider = start(Script::default()).await;
    for (body, words) in
        [(json!({ "model": 5 }), "model: "), (json!({ "model": "m" }), "messages: ")]
    {
        let (status, refused) = document(&provider, PATHS[2], &body).await;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(status == 400 && message.starts_with(words), "{refused}");
    }
}

#[tokio::test]
async fn a_refusal_ends_with_its_category() {
    let refusal = Some("cyber".to_owned());
    let provider = start(writer(Answer { refusal, tool_calls: vec![], ..thoughtful(None) })).await;
    let (_, refused) = document(&provider, PATHS[2], &first_turn()).await;
    assert_eq!(refused["stop_reason"], "refusal");
    assert_eq!(refused["stop_details"]["category"], "cyber");
    let mut streamed = first_turn();
    streamed["stream"] = true.into();
    let (body, _) = read(send(&provider, PATHS[2], &streamed).await.unwrap()).await;
    assert!(body.contains("\"stop_reason\":\"refusal\"") && body.contains("\"cyber\""), "{body}");
}

#[tokio::test]
async fn other_requests_than_model_calls_are_answered_and_recorded() {
    let provider = start(Script { models: vec!["claude-big-5".into()], ..Script::default() }).await;
    let url = |path: &str| format!("{}{path}", provider.url());
    let tokens: Value = client()
        .post(url("/v1/messages/count_tokens?beta=true"))
        .json(&first_turn())
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(tokens["input_tokens"], 3);
    assert_eq!(client().head(url("/")).send().await.unwrap().status(), 200);
    let listed = client().get(url("/v1/models")).header("anthropic-version", "2023-06-01");
    let listed: Value = listed.send().await.unwrap().json().await.unwrap();
    assert_eq!(
        (&listed["data"][0]["id"], &listed["data"][0]["type"]),
        (&json!("claude-big-5"), &json!("model"))
    );
    assert_eq!(client().get(url("/nowhere")).send().await.unwrap().status(), 404);
    assert_eq!(client().get(url("/v1/responses")).send().await.unwrap().status(), 426);
    let calls = provider.calls();
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call.api, call.method.as_str(), call.path.as_str(), call.query.as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            ("count-tokens", "POST", "/v1/messages/count_tokens", "beta=true"),
            ("probe", "HEAD", "/", ""),
            ("models", "GET", "/v1/models", ""),
            ("unknown", "GET", "/nowhere", ""),
            ("unknown", "GET", "/v1/responses", ""),
        ]
    );
    assert!(calls.iter().all(|call| call.nth == 0), "none of them is a call of a model");
}
