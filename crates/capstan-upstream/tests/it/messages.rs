//! Anthropic's Messages through the gateway to a server of Anthropic's: the request as it came, the
//! answer in its provider's own events, and cuts that nobody notices.

use capstan_agent::{Clock, Timer};
use capstan_fake_provider::{Answer, Condition, FakeProvider, Script, ToolCall};
use capstan_protocol::Exposure;
use serde_json::{Map, Value, json};

use crate::common::{Do, Provider, agent_by, chunk, client, gateway_by, stream_head};

/// Thinks, speaks and calls; with the call's result it is done.
fn thoughtful() -> Script {
    let arguments = Map::from_iter([("content".to_owned(), json!("hello from the model"))]);
    let call = ToolCall { name: "Write".into(), arguments, ..ToolCall::default() };
    let thinks = Answer {
        reasoning: Some("I should write it.\n\nThen I am done \u{2014} almost.".into()),
        signed: true,
        redacted: true,
        text: "I will write the file.".into(),
        tool_calls: vec![call],
        ..Answer::default()
    };
    let ends = Answer { text: "It is written.".into(), ..Answer::default() };
    let after = |results| Condition { tool_results: Some(results), ..Condition::default() };
    Script::default().reply(after(0), thinks).reply(after(1), ends)
}

async fn provider(script: Script) -> FakeProvider {
    FakeProvider::start("127.0.0.1:0", script).await.unwrap()
}

async fn gateway(provider: &FakeProvider) -> String {
    let clock = Clock::by_hand();
    let config = json!({ "model": "claude-m", "url": provider.url() });
    let agent = agent_by(clock.clone(), "anthropic", config);
    gateway_by(clock, agent, Exposure::Production).await
}

/// As Claude Code asks.
fn asked() -> Value {
    let mark = json!({ "type": "ephemeral" });
    let marked = |text: &str| json!({ "type": "text", "text": text, "cache_control": mark });
    json!({
        "model": "claude-m",
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "Write hello to note.txt" }] },
            { "role": "system", "content": [marked("# Environment")],
                "output_config": { "effort": "medium" } },
        ],
        "system": [{ "type": "text", "text": "x-anthropic-billing-header: cc_version=1;" },
            marked("You are an agent.")],
        "tools": [
            { "name": "Write", "description": "…", "input_schema": { "type": "object" } },
            { "name": "Later", "description": "…", "input_schema": { "type": "object",
                "properties": {} }, "defer_loading": true },
        ],
        "metadata": { "user_id": "{\"session_id\":\"s\"}" },
        "max_tokens": 32000,
        "thinking": { "type": "adaptive", "display": "omitted" },
        "context_management": { "edits": [{ "type": "clear_thinking_20251015", "keep": "all" }] },
        "output_config": { "effort": "medium" },
        "a_member_of_tomorrow": [1, "two"],
        "stream": true,
    })
}

const HEAD: [(&str, &str); 3] = [
    ("anthropic-version", "2026-10-21"),
    ("anthropic-beta", "claude-code-20250219,a-beta-of-tomorrow"),
    ("x-claude-code-session-id", "s"),
];

async fn post(url: &str, path: &str, body: &Value) -> reqwest::Response {
    let mut request = client().post(format!("{url}{path}")).json(body);
    for (name, value) in HEAD {
        request = request.header(name, value);
    }
    request.send().await.unwrap()
}

async fn events(url: &str, body: &Value) -> Vec<Value> {
    told(post(url, "/v1/messages?beta=true", body).await).await
}

async fn told(response: reqwest::Response) -> Vec<Value> {
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let all = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    all.filter(|event| event["type"] != "ping").collect()
}

/// What a client makes of events: whole blocks, in order, each started and stopped once.
fn message(events: &[Value]) -> Value {
    let mut message = Value::Null;
    let mut blocks: Vec<Value> = Vec::new();
    let mut pieces = String::new();
    let mut is_open = false;
    for event in events {
        match event["type"].as_str().unwrap() {
            "message_start" => {
                assert!(message.is_null(), "one message_start");
                message = event["message"].clone();
            }
            "content_block_start" => {
                assert!(!is_open && event["index"] == blocks.len(), "{event}");
                is_open = true;
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                assert!(is_open && event["index"] == blocks.len() - 1, "{event}");
                let block = blocks.last_mut().unwrap();
                for name in ["text", "thinking", "signature"] {
                    if let Some(piece) = event["delta"][name].as_str() {
                        let known = block[name].as_str().unwrap_or_default().to_owned();
                        block[name] = (known + piece).into();
                    }
                }
                pieces += event["delta"]["partial_json"].as_str().unwrap_or_default();
            }
            "content_block_stop" => {
                is_open = false;
                if !pieces.is_empty() {
                    blocks.last_mut().unwrap()["input"] =
                        serde_json::from_str(&std::mem::take(&mut pieces)).unwrap();
                }
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["last_usage"] = event["usage"].clone();
            }
            "message_stop" => assert!(!is_open, "a block that never stopped"),
            other => panic!("{other}"),
        }
    }
    message["content"] = blocks.into();
    message
}

/// Without what is another's in every call.
fn comparable(mut message: Value) -> Value {
    message["id"] = Value::Null;
    // Null unless the model refuses. What is made of events does not have it.
    message.as_object_mut().unwrap().remove("stop_details");
    for block in message["content"].as_array_mut().unwrap() {
        if block["type"] == "tool_use" {
            block["id"] = Value::Null;
        }
    }
    message
}

#[tokio::test]
async fn a_request_reaches_its_provider_as_it_came_with_its_head() {
    let provider = provider(thoughtful()).await;
    let url = gateway(&provider).await;
    events(&url, &asked()).await;
    let calls = provider.calls();
    assert_eq!(calls[0].body, asked());
    let head = |name: &str| {
        let found = calls[0].headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!((head(HEAD[0].0), head(HEAD[1].0)), (Some(HEAD[0].1), Some(HEAD[1].1)));
}

#[tokio::test]
async fn an_answer_is_its_providers_own_and_comes_back_to_it_as_it_was() {
    let provider = provider(thoughtful()).await;
    let url = gateway(&provider).await;
    let direct = message(&events(&provider.url(), &asked()).await);
    let told = message(&events(&url, &asked()).await);
    assert_eq!(comparable(told.clone()), comparable(direct.clone()));
    let kinds: Vec<_> =
        told["content"].as_array().unwrap().iter().map(|block| block["type"].clone()).collect();
    assert_eq!(kinds, ["thinking", "redacted_thinking", "text", "tool_use"]);
    let mut whole = asked();
    whole["stream"] = false.into();
    let mut whole: Value = post(&url, "/v1/messages", &whole).await.json().await.unwrap();
    assert_eq!(whole["usage"]["output_tokens"], told["last_usage"]["output_tokens"]);
    whole["last_usage"] = told["last_usage"].clone();
    whole["usage"] = told["usage"].clone();
    assert_eq!(comparable(whole), comparable(direct));

    let mut next = asked();
    let messages = next["messages"].as_array_mut().unwrap();
    let call = told["content"][3]["id"].clone();
    messages.push(json!({ "role": "assistant", "content": told["content"] }));
    messages.push(json!({ "role": "user", "content": [{ "type": "tool_result",
        "tool_use_id": call, "content": "done" }] }));
    let ended = message(&events(&url, &next).await);
    assert_eq!(ended["content"][0]["text"], "It is written.");
    let complaints: Vec<_> =
        provider.calls().into_iter().filter_map(|call| call.complaint).collect();
    assert_eq!(complaints, Vec::<String>::new());
}

#[tokio::test]
async fn a_cut_below_the_gateway_is_invisible_to_clients() {
    for place in [
        "before-events",
        "after-start",
        "mid-thinking",
        "after-thinking",
        "mid-text",
        "after-text",
        "mid-arguments",
        "before-finish",
        "before-end",
    ] {
        for fault in ["close-mid-stream", "reset-mid-stream", "overloaded-in-stream"] {
            let rule = format!("{fault}:{place}@1");
            let provider = provider(thoughtful().fault(rule.parse().unwrap())).await;
            let url = gateway(&provider).await;
            let request = client().post(format!("{url}/v1/messages")).json(&asked());
            let told = message(&told(request.send().await.unwrap()).await);
            let healthy = message(&events(&provider.url(), &asked()).await);
            assert_eq!(comparable(told)["content"], comparable(healthy)["content"], "{rule}");
            assert!(provider.calls().len() <= 3, "{rule}");
        }
    }
}

/// A second answer of a model is another one. Behind a complete block its beginning does not fit,
/// and Claude Code asks for the rest by itself.
#[tokio::test]
async fn a_cut_after_a_complete_block_is_left_to_the_client() {
    for (place, calls) in [("mid-text", 2), ("mid-arguments", 1), ("before-finish", 1)] {
        let rule = format!("close-mid-stream:{place}@1");
        let provider = provider(thoughtful().fault(rule.parse().unwrap())).await;
        let url = gateway(&provider).await;
        let told = events(&url, &asked()).await;
        let end = told.last().unwrap();
        let expected = if calls == 1 { "error" } else { "message_stop" };
        assert_eq!((&end["type"], provider.calls().len()), (&expected.into(), calls), "{place}");
    }
}

/// An answer whose first block is a thought of which nothing is shown.
fn hidden_thought() -> Vec<Do> {
    let start = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [], "usage": { "input_tokens": 3, "output_tokens": 1 } });
    let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
    let events = [
        json!({ "type": "message_start", "message": start }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
        json!({ "type": "ping" }),
        json!({ "type": "content_block_delta", "index": 0,
            "delta": { "type": "thinking_delta", "thinking": "", "estimated_tokens": 50 } }),
    ];
    std::iter::once(stream_head()).chain(events.iter().map(chunk)).collect()
}

#[tokio::test]
async fn a_client_sees_at_once_that_a_hidden_thought_has_begun() {
    let provider = Provider::start(|_| [hidden_thought(), vec![Do::Hang]].concat()).await;
    let config = json!({ "model": "claude-m", "url": provider.url });
    let url = provider.gateway("anthropic", config).await;
    let mut answer = post(&url, "/v1/messages", &asked()).await;
    let mut told = String::new();
    while !told.contains("estimated_tokens") {
        told += std::str::from_utf8(&answer.chunk().await.unwrap().unwrap()).unwrap();
    }
    assert!(told.contains("content_block_start") && told.contains("msg_1"), "{told}");
    assert_eq!(provider.clock.asked(Timer::Idle), []);
    assert!(
        !provider.clock.asked(Timer::Thinking).is_empty(),
        "its silence has a limit of its own"
    );
}

#[tokio::test]
async fn a_hidden_thought_is_one_call_and_keeps_its_signature() {
    let rest = [
        json!({ "type": "content_block_delta", "index": 0,
            "delta": { "type": "signature_delta", "signature": "c2ln" } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "content_block_start", "index": 1,
            "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 1,
            "delta": { "type": "text_delta", "text": "Yes." } }),
        json!({ "type": "content_block_stop", "index": 1 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" },
            "usage": { "output_tokens": 60 } }),
    ];
    let script = move |nth| {
        let cut = if nth == 0 { vec![] } else { rest.iter().map(chunk).collect() };
        [hidden_thought(), cut].concat()
    };
    let provider = Provider::start(script).await;
    let config = json!({ "model": "claude-m", "url": provider.url });
    let url = provider.gateway("anthropic", config).await;
    // The first call breaks off within the thought.
    let told = events(&url, &asked()).await;
    let thought = json!({ "type": "thinking", "thinking": "", "signature": "c2ln" });
    let content = json!([thought, { "type": "text", "text": "Yes." }]);
    assert_eq!((message(&told)["content"].clone(), provider.calls()), (content.clone(), 2));
    let mut whole = asked();
    whole["stream"] = false.into();
    let whole: Value = post(&url, "/v1/messages", &whole).await.json().await.unwrap();
    assert_eq!(whole["content"], content);
}

#[tokio::test]
async fn a_providers_own_error_is_sent_unchanged() {
    for (rule, status, kind) in [
        ("status-529", 529, "overloaded_error"),
        ("status-500", 500, "api_error"),
        ("status-401", 500, "api_error"),
    ] {
        let provider = provider(thoughtful().fault(rule.parse().unwrap())).await;
        let url = gateway(&provider).await;
        let response = post(&url, "/v1/messages", &asked()).await;
        assert_eq!(response.status(), status, "{rule}");
        let told: Value = response.json().await.unwrap();
        assert_eq!(told["error"]["type"], kind, "{told}");
    }
}

/// Claude Code looks for words in errors, and reads their headers.
#[tokio::test]
async fn a_providers_error_is_handed_on_with_status_type_message_and_headers() {
    let low = "Your credit balance is too low to access the Anthropic API.";
    let cases = [
        (400, "invalid_request_error", low, 400, "invalid_request_error"),
        (400, "weird_new_error", "a new sort of error", 400, "weird_new_error"),
        (401, "authentication_error", "invalid x-api-key", 500, "api_error"),
        (402, "billing_error", "Your account has no funds", 402, "billing_error"),
        (403, "permission_error", "Your account may not.", 403, "permission_error"),
        (404, "not_found_error", "model: claude-foo-9", 404, "not_found_error"),
        (409, "invalid_request_error", "conflict", 409, "invalid_request_error"),
        (413, "request_too_large", "Prompt is too long", 413, "request_too_large"),
        (418, "teapot_error", "short and stout", 418, "teapot_error"),
        (422, "invalid_request_error", "unprocessable", 422, "invalid_request_error"),
        (429, "rate_limit_error", "Extra usage is required.", 429, "rate_limit_error"),
        (500, "api_error", "Internal server error", 500, "api_error"),
        (503, "overloaded_error", "Service unavailable", 503, "overloaded_error"),
        (504, "timeout_error", "Request timed out", 504, "timeout_error"),
        (529, "overloaded_error", "Overloaded", 529, "overloaded_error"),
    ];
    for (status, kind, message, seen, told) in cases {
        let error = json!({ "type": kind, "message": message });
        let body = json!({ "type": "error", "error": error, "request_id": "req_1" }).to_string();
        let limit = [("anthropic-ratelimit-unified-status", "rejected")];
        let script = move |_| crate::common::status(status, &limit, &body);
        let provider = Provider::start(script).await;
        let config = json!({ "model": "claude-m", "url": provider.url });
        let url = provider.gateway("anthropic", config).await;
        for is_stream in [true, false] {
            let mut body = asked();
            body["stream"] = is_stream.into();
            let response = post(&url, "/v1/messages", &body).await;
            assert_eq!(response.status(), seen, "{message}");
            assert_eq!(response.headers()[limit[0].0], limit[0].1, "{message}");
            let is_operators = status == 401;
            assert_eq!(response.headers().contains_key("x-should-retry"), is_operators);
            let error = response.json::<Value>().await.unwrap()["error"].take();
            assert_eq!((&error["type"], &error["message"]), (&told.into(), &message.into()));
            assert_eq!(error["details"]["upstream_headers"], Value::Null);
        }
    }
}

#[tokio::test]
async fn an_error_within_an_answer_keeps_its_providers_words() {
    let error = json!({ "type": "error",
        "error": { "type": "rate_limit_error", "message": "Slow down, please." } });
    let script = move |_| [hidden_thought(), vec![chunk(&error)]].concat();
    let provider = Provider::start(script).await;
    let config = json!({ "model": "claude-m", "url": provider.url });
    let url = provider.gateway("anthropic", config).await;
    let told = events(&url, &asked()).await;
    let error = &told.last().unwrap()["error"];
    assert_eq!(error["type"], "rate_limit_error");
    assert_eq!(error["message"], "Slow down, please.");
}

/// The client's own retries would multiply with the gateway's.
#[tokio::test]
async fn a_refusal_is_repeated_once_for_a_client_that_repeats_it_itself() {
    for status in [409, 429, 500, 529] {
        let provider = Provider::start(move |_| crate::common::status(status, &[], "{}")).await;
        let config = json!({ "model": "claude-m", "url": provider.url });
        let url = provider.gateway("anthropic", config).await;
        let response = post(&url, "/v1/messages", &asked()).await;
        assert_eq!((response.status().is_success(), provider.calls() <= 2), (false, true));
    }
}

#[tokio::test]
async fn a_wrong_request_gets_the_providers_own_error() {
    let provider = provider(thoughtful()).await;
    let url = gateway(&provider).await;
    let mut body = asked();
    let forged = json!({ "type": "thinking", "thinking": "Hm.", "signature": "forged" });
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": [forged,
        { "type": "text", "text": "a" }] }));
    messages.push(json!({ "role": "user", "content": "Go on." }));
    let response = post(&url, "/v1/messages", &body).await;
    assert_eq!(response.status(), 400);
    let told: Value = response.json().await.unwrap();
    let complaint = provider.calls()[0].complaint.clone().unwrap();
    assert_eq!(told["error"]["type"], "invalid_request_error");
    assert_eq!(told["error"]["message"], complaint);
}

#[tokio::test]
async fn the_provider_counts_tokens() {
    let provider = provider(thoughtful()).await;
    let url = gateway(&provider).await;
    let mut body = asked();
    for name in ["max_tokens", "stream", "metadata"] {
        body.as_object_mut().unwrap().remove(name);
    }
    let count = async |url: &str| {
        let response = post(url, "/v1/messages/count_tokens?beta=true", &body).await;
        response.json::<Value>().await.unwrap()
    };
    assert_eq!(count(&url).await, count(&provider.url()).await);
    let calls = provider.calls();
    assert_eq!((calls[0].api, &calls[0].body), ("count-tokens", &body));
}

/// A thought with its signature, then a text.
fn thinks_and_says(thought: &str, signature: &str, text: &[&str], has_end: bool) -> Vec<Do> {
    let start = json!({ "id": format!("msg_{signature}"), "type": "message", "role": "assistant",
        "model": "m", "content": [], "usage": { "input_tokens": 3, "output_tokens": 1 } });
    let block = |index: u64, block: Value| {
        let kind = "content_block_start";
        json!({ "type": kind, "index": index, "content_block": block })
    };
    let delta = |index: u64, delta: Value| {
        let kind = "content_block_delta";
        json!({ "type": kind, "index": index, "delta": delta })
    };
    let mut events = vec![
        json!({ "type": "message_start", "message": start }),
        block(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        delta(0, json!({ "type": "thinking_delta", "thinking": thought })),
        delta(0, json!({ "type": "signature_delta", "signature": signature })),
        json!({ "type": "content_block_stop", "index": 0 }),
        block(1, json!({ "type": "text", "text": "" })),
    ];
    let said = text.iter().map(|text| delta(1, json!({ "type": "text_delta", "text": text })));
    events.extend(said);
    if has_end {
        events.push(json!({ "type": "content_block_stop", "index": 1 }));
        events.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" },
            "usage": { "output_tokens": 9 } }));
        events.push(json!({ "type": "message_stop" }));
    }
    std::iter::once(stream_head()).chain(events.iter().map(chunk)).collect()
}

#[tokio::test]
async fn other_thoughts_before_the_same_text_are_not_shown_and_the_text_goes_on() {
    for (second, is_same) in [("Hello there.", true), ("Help yourself.", false), ("He", false)] {
        let script = move |nth| match nth {
            0 => thinks_and_says("First.", "c2lnMQ==", &["Hel", "lo"], false),
            1 => thinks_and_says("Second, at length.", "c2lnMg==", &["He"], false),
            _ => thinks_and_says("Third.", "c2lnMw==", &[second], true),
        };
        let provider = Provider::start(script).await;
        let config = json!({ "model": "claude-m", "url": provider.url, "attempts": 3 });
        let url = provider.gateway("anthropic", config).await;
        let request = client().post(format!("{url}/v1/messages")).json(&asked());
        let told = told(request.send().await.unwrap()).await;
        assert_eq!(provider.calls(), 3, "{told:?}");
        if !is_same {
            assert_eq!(told.last().unwrap()["type"], "error", "{second}: {told:?}");
            continue;
        }
        let message = message(&told);
        let thought = json!({ "type": "thinking", "thinking": "First.", "signature": "c2lnMQ==" });
        let text = json!({ "type": "text", "text": "Hello there." });
        assert_eq!(message["content"], json!([thought, text]), "{told:?}");
        assert_eq!(message["stop_reason"], "end_turn");
    }
}
