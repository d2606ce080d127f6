//! The native lane on the wire: what a client asks for reaches an agent of the same protocol as it
//! came, another agent's run says what was left out, and reasoning comes back to whoever made it.

use capstan_agent::Clock;
use capstan_fake_provider::{Answer, Condition, FakeProvider, Script, ToolCall};
use capstan_protocol::Dialect;
use capstan_upstream::fates::{Fate, rows};
use serde_json::{Map, Value, json};

use crate::common::*;
use crate::routes;

/// A value for each documented member of Chat Completions.
fn chat() -> Value {
    json!({
        "audio": { "voice": "alloy", "format": "wav" }, "frequency_penalty": 0.5,
        "function_call": "auto", "functions": [{ "name": "old", "parameters": {} }],
        "logit_bias": { "50256": -100 }, "logprobs": true, "max_completion_tokens": 77,
        "max_tokens": null,
        "messages": [
            { "role": "developer", "content": "Be brief." },
            { "role": "user", "content": [{ "type": "text", "text": "Hi",
                "cache_control": { "type": "ephemeral" } }], "name": "ann" },
        ],
        "metadata": { "team": "a" }, "modalities": ["text", "audio"], "model": "a",
        "moderation": { "mode": "auto" }, "n": 1,
        "parallel_tool_calls": false, "prediction": { "type": "content", "content": "Hi" },
        "presence_penalty": -0.5, "prompt_cache_key": "k",
        "prompt_cache_options": { "mode": "auto" },
        "prompt_cache_retention": "24h",
        "reasoning_effort": "low", "response_format": { "type": "json_object" },
        "safety_identifier": "s", "seed": 7, "service_tier": "flex", "stop": ["END"],
        "store": false, "stream": true, "stream_options": { "include_obfuscation": false },
        "temperature": 0.25, "tool_choice": "auto",
        "tools": [
            { "type": "function", "function": { "name": "f", "strict": true,
                "parameters": { "type": "object", "properties": { "z": {}, "a": {} } } } },
        ],
        "top_logprobs": 3, "top_p": 0.9, "user": "u", "verbosity": "low",
        "web_search_options": { "search_context_size": "low" },
    })
}

/// The same of Responses.
fn responses() -> Value {
    json!({
        "access_programs": ["p"], "background": false,
        "context_management": [{ "type": "compaction" }],
        "conversation": null, "image": { "size": "auto" },
        "include": ["reasoning.encrypted_content"],
        "input": [
            { "type": "message", "role": "user", "content": "Hi" },
            { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" },
            { "type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "patch",
                "input": "*** Begin" },
            { "type": "custom_tool_call_output", "call_id": "c", "output": "Done." },
        ],
        "instructions": "Be brief.", "max_output_tokens": 77, "max_tool_calls": 3,
        "metadata": { "team": "a" }, "model": "a", "moderation": { "mode": "auto" },
        "multi_agent": { "enabled": true }, "n": null,
        "parallel_tool_calls": false,
        "previous_response_id": null, "prompt": null, "prompt_cache_key": "k",
        "prompt_cache_options": { "mode": "auto" },
        "prompt_cache_retention": "24h", "reasoning": { "effort": "low", "summary": "auto" },
        "safety_identifier": "s", "service_tier": "flex", "store": false, "stream": true,
        "stream_options": { "include_obfuscation": false }, "temperature": 0.25,
        "text": { "format": { "type": "text" }, "verbosity": "low" }, "tool_choice": "auto",
        "tools": [
            { "type": "function", "name": "f", "strict": true,
                "parameters": { "type": "object", "properties": { "z": {}, "a": {} } } },
            { "type": "custom", "name": "patch",
                "format": { "type": "grammar", "syntax": "lark", "definition": "start: /.+/" } },
            { "type": "namespace", "name": "clock", "description": "", "tools": [
                { "type": "function", "name": "now", "parameters": { "type": "object" } }] },
            { "type": "web_search", "external_web_access": true },
        ],
        "top_logprobs": null, "top_p": 0.9, "truncation": "auto", "user": "u",
    })
}

/// The same of Messages.
fn messages() -> Value {
    json!({
        "billing_policy": "p", "cache_control": { "type": "ephemeral" },
        "compaction": { "type": "auto" }, "container": "c",
        "context_management": { "edits": [] }, "diagnostics": { "x": 1 },
        "fallback_credit_token": "t", "fallbacks": ["n"], "inference_geo": "eu", "max_tokens": 77,
        "mcp_servers": [{ "type": "url", "url": "https://a.example", "name": "a" }],
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "Hi",
                "cache_control": { "type": "ephemeral" } }] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "Hm.", "signature": "s" },
                { "type": "tool_use", "id": "t", "name": "f", "input": { "z": 1, "a": 2.50 } }] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "t", "content": "42" }] },
        ],
        "metadata": { "user_id": "u" }, "model": "a",
        "output_config": { "effort": "low" }, "output_format": { "type": "json_schema",
            "schema": { "type": "object" } },
        "service_tier": "auto", "speed": "fast", "stop_sequences": ["END"], "stream": true,
        "system": [{ "type": "text", "text": "Be brief.",
            "cache_control": { "type": "ephemeral" } }],
        "temperature": 0.25, "thinking": { "type": "adaptive" },
        "thread": { "id": "t" }, "tool_choice": { "type": "auto" },
        "tools": [
            { "name": "f", "input_schema": { "type": "object", "properties": { "z": {} } },
                "strict": true, "defer_loading": true },
            { "type": "web_search_20250305", "name": "web_search", "max_uses": 2 },
        ],
        "top_k": 5, "top_p": 0.9, "user_profile_id": "u", "workspace_id": "w",
    })
}

fn chat_answer() -> Vec<Value> {
    vec![json!({ "choices": [{ "index": 0, "delta": { "content": "Hello." },
        "finish_reason": "stop" }], "usage": {} })]
}

fn responses_answer() -> Vec<Value> {
    vec![
        json!({ "type": "response.output_text.delta", "output_index": 0, "delta": "Hello." }),
        json!({ "type": "response.completed", "response": { "status": "completed" } }),
    ]
}

fn messages_answer() -> Vec<Value> {
    vec![
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta",
        "text": "Hello." } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
    ]
}

async fn provider(answer: fn() -> Vec<Value>) -> Provider {
    let script =
        move |_| std::iter::once(stream_head()).chain(answer().iter().map(chunk)).collect();
    Provider::start(script).await
}

/// Sends a request to a gateway with one agent, and returns what came of it.
async fn ask(kind: &'static str, config: Value, path: &str, body: &Value) -> String {
    let gateway = gateway(agent(kind, config)).await;
    let mut body = body.clone();
    body.as_object_mut().unwrap().remove("model");
    let request = client().post(format!("{gateway}{path}")).json(&body);
    let answer = request.header("x-capstan-events", "all").send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    text
}

/// The members that the gateway adds or changes, beside those that the table says are its own.
fn kept(dialect: Dialect, sent: &Value) -> Map<String, Value> {
    let is_kept = |name: &str| {
        let row = rows(dialect).iter().find(|(known, _)| *known == name);
        matches!(row, Some((_, Fate::Translated(_) | Fate::OwnOnly)))
    };
    let members = sent.as_object().unwrap().iter();
    members
        .filter(|(name, value)| is_kept(name) && !value.is_null())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

#[tokio::test]
async fn requests_tool_replaces_a_configured_one_of_its_name() {
    let tool = |path: &str, says: &str| match path {
        "/v1/messages" => json!({ "name": "f", "description": says, "input_schema": {} }),
        "/v1/responses" => {
            json!({ "type": "function", "name": "f", "description": says, "parameters": {} })
        }
        _ => {
            let function = json!({ "name": "f", "description": says, "parameters": {} });
            json!({ "type": "function", "function": function })
        }
    };
    for (kind, path, answer, api) in [
        ("anthropic", "/v1/messages", messages_answer as fn() -> Vec<Value>, None),
        ("openai", "/v1/chat/completions", chat_answer, None),
        ("openai", "/v1/responses", responses_answer, Some("responses")),
    ] {
        let provider = provider(answer).await;
        let mut config = json!({ "model": "m", "url": provider.url, "key_env": "CARGO_PKG_NAME",
            "parameters": { "tools": [tool(path, "configured")] } });
        if let Some(api) = api {
            config["api"] = api.into();
        }
        let said = json!([{ "role": "user", "content": "Hi" }]);
        let body = json!({ "max_tokens": 9, "tools": [tool(path, "asked")], "messages": said,
            "input": said });
        ask(kind, config, path, &body).await;
        let sent = provider.seen().remove(0).body;
        assert_eq!(sent["tools"], json!([tool(path, "asked")]), "{path}");
    }
}

#[tokio::test]
async fn every_documented_member_reaches_an_agent_of_the_same_protocol() {
    for (dialect, kind, path, sent, answer, config) in [
        (
            Dialect::AnthropicMessages,
            "anthropic",
            "/v1/messages",
            messages(),
            messages_answer as fn() -> Vec<Value>,
            json!({ "model": "m" }),
        ),
        (
            Dialect::OpenaiChat,
            "openai",
            "/v1/chat/completions",
            chat(),
            chat_answer,
            json!({ "model": "m" }),
        ),
        (
            Dialect::OpenaiResponses,
            "openai",
            "/v1/responses",
            responses(),
            responses_answer,
            json!({ "model": "m", "api": "responses" }),
        ),
    ] {
        // These are headers of the request, not members.
        let is_header = |name: &&str| name.starts_with("anthropic_") || *name == "openai_beta";
        let names = rows(dialect).iter().map(|(name, _)| *name);
        let documented: Vec<&str> = names.filter(|name| !is_header(name)).collect();
        let named: Vec<&String> = sent.as_object().unwrap().keys().collect();
        assert_eq!(named, documented, "every member of the table is tried");
        let provider = provider(answer).await;
        let mut config = config;
        config["url"] = json!(provider.url);
        let told = ask(kind, config, path, &sent).await;
        assert!(told.contains("Hello.") && !told.contains("not_translated"), "{told}");
        let body = provider.seen()[0].body.clone();
        for (name, value) in kept(dialect, &sent) {
            assert_eq!(body[&name], value, "{name}");
        }
        assert_eq!((&body["model"], &body["stream"]), (&json!("m"), &json!(true)));
    }
}

#[tokio::test]
async fn an_agent_of_another_protocol_warns_of_omissions() {
    let provider = provider(messages_answer).await;
    let config = json!({ "model": "m", "url": provider.url });
    let told = ask("anthropic", config, "/v1/responses", &responses()).await;
    let warning = told.lines().find(|line| line.contains("not_translated")).unwrap();
    for name in ["include", "max_tool_calls", "metadata", "user", "tools[3] (web_search)"] {
        assert!(warning.contains(name), "{name}: {warning}");
    }
    assert_eq!(told.matches("event: capstan.warning").count(), 1, "{told}");
    let body = provider.seen()[0].body.clone();
    let names: Vec<&Value> =
        body["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["f", "patch", "clock__now"]);
    assert_eq!(body["tools"][1]["input_schema"]["required"], json!(["input"]));
    assert_eq!((&body["max_tokens"], &body["metadata"]), (&json!(77), &Value::Null));
    let said = &body["messages"];
    assert_eq!(said[1]["content"][0]["input"], json!({ "input": "*** Begin" }), "{said}");
}

/// A model that thinks, calls a tool, and answers once it has the result. It refuses a
/// conversation in which what it thought is not as it was.
async fn thinker(reasoning: Option<&str>) -> FakeProvider {
    let call = ToolCall { name: "weather".into(), ..ToolCall::default() };
    let thinks = Answer {
        reasoning: reasoning.map(str::to_owned),
        signed: true,
        redacted: true,
        text: "Let me look.".into(),
        tool_calls: vec![call],
        ..Answer::default()
    };
    let answers = Answer { text: "Sunny.".into(), ..Answer::default() };
    let after = |results| Condition { tool_results: Some(results), ..Condition::default() };
    let script = Script::default().reply(after(0), thinks).reply(after(1), answers);
    FakeProvider::start("127.0.0.1:0", script).await.unwrap()
}

async fn post_json(url: &str, body: &Value) -> Value {
    let answer = client().post(url).json(body).send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test]
async fn a_models_reasoning_comes_back_in_the_next_turn() {
    let long = "First I think of the city.\n\nThen of the sky \u{2014} blue, or not.";
    for (kind, api) in [("anthropic", None), ("openai", Some("responses"))] {
        for reasoning in [Some(long), None] {
            let provider = thinker(reasoning).await;
            let mut config = json!({ "model": "claude-m", "url": provider.url() });
            config.as_object_mut().unwrap().extend(api.map(|api| ("api".into(), api.into())));
            let url = gateway(agent(kind, config)).await + "/v1/responses";
            let tools = json!([{ "type": "function", "name": "weather",
                "parameters": { "type": "object" } }]);
            let first = json!({ "input": "How is the weather?", "tools": tools });
            let first = post_json(&url, &first).await;
            let items = first["output"].as_array().unwrap();
            let call = items.iter().find(|item| item["type"] == "function_call").unwrap();
            let output = json!({ "type": "function_call_output", "call_id": call["call_id"],
                "output": "Not a cloud." });
            let second = json!({ "previous_response_id": first["id"], "input": [output],
                "tools": tools });
            let second = post_json(&url, &second).await;
            let calls = provider.calls();
            let complaints: Vec<_> =
                calls.iter().filter_map(|call| call.complaint.as_ref()).collect();
            assert_eq!((calls.len(), complaints), (2, vec![]), "{kind}: {}", calls[1].body);
            assert!(second.to_string().contains("Sunny."), "{second}");
        }
    }
}

#[tokio::test]
async fn a_client_that_sends_the_whole_conversation_needs_no_thoughts() {
    let provider = thinker(Some("Hm.\n\nYes.")).await;
    let config = json!({ "model": "claude-m", "url": provider.url() });
    let url = gateway(agent("anthropic", config)).await + "/v1/ag-ui";
    let post = async |messages: Value| {
        let run = uuid::Uuid::now_v7();
        let tools = json!([{ "name": "weather", "description": "",
            "parameters": { "type": "object" } }]);
        let input = json!({ "threadId": "t", "runId": run, "messages": messages, "tools": tools,
            "context": [], "state": {}, "forwardedProps": {} });
        client().post(&url).json(&input).send().await.unwrap().text().await.unwrap()
    };
    let asks = json!({ "id": "1", "role": "user", "content": "How is the weather?" });
    let told = post(json!([asks])).await;
    let events = told.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = events.filter_map(|data| serde_json::from_str(data).ok()).collect();
    let begun = events.iter().find(|event| event["type"] == "TOOL_CALL_START").unwrap();
    let id = &begun["toolCallId"];
    let function = json!({ "name": "weather", "arguments": "{}" });
    let answer = json!({ "id": "2", "role": "assistant", "content": "Let me look.",
        "toolCalls": [{ "id": id, "type": "function", "function": function }] });
    let result = json!({ "id": "3", "role": "tool", "toolCallId": id, "content": "Blue." });
    let told = post(json!([asks, answer, result])).await;
    assert!(told.contains("Sunny."), "{told}");
    let calls = provider.calls();
    let complaints: Vec<_> = calls.iter().filter_map(|call| call.complaint.as_ref()).collect();
    assert_eq!((calls.len(), complaints), (2, vec![]), "{}", calls[1].body);
    assert_eq!(calls[1].body["messages"][1]["content"][0]["thinking"], "Hm.\n\nYes.");
}

#[tokio::test]
async fn no_other_model_gets_a_models_reasoning() {
    let (maker, other) = (thinker(Some("Hm.")).await, thinker(None).await);
    let at = |provider: &FakeProvider| json!({ "model": "claude-m", "url": provider.url() });
    let agents = [("maker", "anthropic", at(&maker)), ("other", "anthropic", at(&other))];
    let url = routes::gateway(&Clock::default(), &agents).await + "/v1/responses";
    let first = post_json(&url, &json!({ "model": "maker", "input": "Hi", "tools": [] })).await;
    let items = first["output"].as_array().unwrap();
    let call = items.iter().find(|item| item["type"] == "function_call").unwrap();
    let output =
        json!({ "type": "function_call_output", "call_id": call["call_id"], "output": "Blue." });
    let second =
        json!({ "model": "other", "previous_response_id": first["id"], "input": [output] });
    let second = post_json(&url, &second).await;
    assert!(second.to_string().contains("Sunny."), "{second}");
    let said = other.calls()[0].body["messages"].to_string();
    assert!(said.contains("Let me look.") && !said.contains("thinking"), "{said}");
}

/// The items that a provider streams, as it tells them at their ends.
fn provider_items() -> Vec<Value> {
    vec![
        json!({ "type": "reasoning", "id": "rs_9", "encrypted_content": "xyz",
            "summary": [{ "type": "summary_text", "text": "I look it up." }] }),
        json!({ "type": "web_search_call", "id": "ws_9", "status": "completed",
            "action": { "type": "search", "query": "capstan" } }),
        json!({ "type": "message", "id": "msg_9", "role": "assistant", "status": "completed",
            "phase": "commentary", "content": [{ "type": "output_text", "text": "I patch it.",
                "annotations": [], "logprobs": [] }] }),
        json!({ "type": "custom_tool_call", "id": "ctc_9", "call_id": "c9", "name": "patch",
            "status": "completed", "input": "*** Begin Patch\n+\"x\"\n" }),
        json!({ "type": "function_call", "id": "fc_9", "call_id": "c10", "name": "now",
            "namespace": "clock", "status": "completed", "arguments": "{}" }),
    ]
}

fn responses_of_items() -> Vec<Value> {
    let mut events = vec![json!({ "type": "response.created", "response": { "id": "resp_9" } })];
    for (index, item) in provider_items().into_iter().enumerate() {
        let mut begun = item.clone();
        for name in ["summary", "content", "input", "arguments", "action", "encrypted_content"] {
            begun.as_object_mut().unwrap().remove(name);
        }
        events.push(json!({ "type": "response.output_item.added", "output_index": index,
            "item": begun }));
        let delta = |kind: &str, delta: &Value| {
            let id = &item["id"];
            json!({ "type": kind, "output_index": index, "item_id": id, "delta": delta })
        };
        events.push(match item["type"].as_str().unwrap() {
            "reasoning" => {
                delta("response.reasoning_summary_text.delta", &item["summary"][0]["text"])
            }
            "message" => delta("response.output_text.delta", &item["content"][0]["text"]),
            "custom_tool_call" => delta("response.custom_tool_call_input.delta", &item["input"]),
            "function_call" => delta("response.function_call_arguments.delta", &item["arguments"]),
            _ => delta("response.web_search_call.searching", &Value::Null),
        });
        events.push(json!({ "type": "response.output_item.done", "output_index": index,
            "item": item }));
    }
    let end = json!({ "status": "completed", "service_tier": "flex",
        "usage": { "input_tokens": 3, "output_tokens": 4 } });
    events.push(json!({ "type": "response.completed", "response": end }));
    events
}

#[tokio::test]
async fn a_providers_events_reach_clients_of_its_protocol_unchanged() {
    let provider = provider(responses_of_items).await;
    let config = json!({ "model": "m", "api": "responses", "url": provider.url });
    let told = ask("openai", config, "/v1/responses", &responses()).await;
    let events: Vec<Value> = told
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    let done: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    let expected = provider_items();
    assert_eq!(done, expected.iter().collect::<Vec<_>>(), "{told}");
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"], json!(expected));
    assert_eq!((&last["service_tier"], &last["model"]), (&json!("flex"), &json!("a")));
    for kind in [
        "response.reasoning_summary_text.delta",
        "response.web_search_call.searching",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.function_call_arguments.delta",
    ] {
        let of_kind = events.iter().find(|event| event["type"] == kind);
        let index = of_kind.unwrap_or_else(|| panic!("{kind}: {told}"))["output_index"].as_u64();
        let added = events.iter().find(|event| {
            event["type"] == "response.output_item.added" && event["output_index"].as_u64() == index
        });
        assert!(added.is_some(), "{kind}");
    }
}

fn messages_calls() -> Vec<Value> {
    let call = |index: u64, name: &str, piece: &str| {
        vec![
            json!({ "type": "content_block_start", "index": index,
                "content_block": { "type": "tool_use", "id": format!("t{index}"), "name": name } }),
            json!({ "type": "content_block_delta", "index": index,
                "delta": { "type": "input_json_delta", "partial_json": piece } }),
            json!({ "type": "content_block_stop", "index": index }),
        ]
    };
    let end = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
    let calls = [call(0, "patch", r#"{"input":"*** Begin\n"}"#), call(1, "clock__now", "{}")];
    calls.concat().into_iter().chain([end]).collect()
}

#[tokio::test]
async fn another_protocols_calls_come_back_as_the_tools_that_were_offered() {
    let provider = provider(messages_calls).await;
    let config = json!({ "model": "m", "url": provider.url });
    let told = ask("anthropic", config, "/v1/responses", &responses()).await;
    let last = told.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    let output = &last["response"]["output"];
    assert_eq!(
        (&output[0]["type"], &output[0]["name"], &output[0]["input"]),
        (&json!("custom_tool_call"), &json!("patch"), &json!("*** Begin\n")),
        "{told}"
    );
    assert_eq!((&output[1]["name"], &output[1]["namespace"]), (&json!("now"), &json!("clock")));
    assert_eq!(told.matches("event: response.custom_tool_call_input.delta").count(), 1);
}

fn chat_with_signatures() -> Vec<Value> {
    let call = json!([{ "index": 0, "id": "c1", "type": "function",
        "function": { "name": "f", "arguments": "{}" },
        "extra_content": { "google": { "thought_signature": "sig" } } }]);
    let delta = |delta: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": null });
        json!({ "choices": [choice] })
    };
    vec![
        delta(json!({ "reasoning_content": "Hm." })),
        delta(json!({ "reasoning_details": [{ "type": "reasoning.encrypted", "data": "x" }] })),
        delta(json!({ "tool_calls": call })),
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }],
            "usage": {} }),
    ]
}

#[tokio::test]
async fn a_chat_gets_the_signatures_that_it_has_to_bring_back() {
    let provider = provider(chat_with_signatures).await;
    let config = json!({ "model": "m", "url": provider.url });
    let mut sent = chat();
    let told = ask("openai", config.clone(), "/v1/chat/completions", &sent).await;
    for piece in [r#""reasoning_content":"Hm.""#, r#""data":"x""#, r#""thought_signature":"sig""#] {
        assert_eq!(told.matches(piece).count(), 1, "{piece}: {told}");
    }
    sent["stream"] = json!(false);
    sent["stream_options"] = Value::Null;
    let told = ask("openai", config, "/v1/chat/completions", &sent).await;
    let whole: Value = serde_json::from_str(&told).unwrap();
    let message = &whole["choices"][0]["message"];
    let signature = &message["tool_calls"][0]["extra_content"]["google"]["thought_signature"];
    assert_eq!((signature, &message["reasoning_content"]), (&json!("sig"), &json!("Hm.")));
    assert_eq!(message["reasoning_details"][0]["data"], "x", "{told}");
}

#[tokio::test]
async fn a_chat_servers_signatures_come_back_in_the_session() {
    let script = |nth| {
        let said = if nth == 0 { chat_with_signatures() } else { chat_answer() };
        std::iter::once(stream_head()).chain(said.iter().map(chunk)).collect()
    };
    let provider = Provider::start(script).await;
    let config = json!({ "model": "m", "url": provider.url });
    let url = gateway(agent("openai", config)).await + "/v1/responses";
    let first = post_json(&url, &json!({ "input": "Hi" })).await;
    let output = json!({ "type": "function_call_output", "call_id": "c1", "output": "42" });
    let second = json!({ "previous_response_id": first["id"], "input": [output] });
    post_json(&url, &second).await;
    let body = provider.seen()[1].body.clone();
    let said = body["messages"].as_array().unwrap().iter().find(|m| m["role"] == "assistant");
    let said = said.unwrap();
    let signature = &said["tool_calls"][0]["extra_content"]["google"]["thought_signature"];
    assert_eq!((signature, &said["reasoning_content"]), (&json!("sig"), &json!("Hm.")), "{body}");
    assert_eq!(said["reasoning_details"][0]["data"], "x");
}

#[tokio::test]
async fn a_tool_loop_of_cap_keeps_reasoning() {
    let provider = thinker(Some("Hm.")).await;
    let config = json!({ "model": "claude-m", "url": provider.url() });
    let url = gateway(agent("anthropic", config)).await;
    let mut asks = question("How is the weather?");
    let post = async |request: &Value| {
        let post = client().post(format!("{url}/v1/assist")).json(request);
        let answer = post.header("accept", "text/event-stream").send().await.unwrap();
        read(&answer.bytes().await.unwrap())
    };
    let mut first = serde_json::to_value(&asks).unwrap();
    first["payload"]["payload"]["tools"] = json!([{ "name": "weather", "description": "",
        "parameters": { "type": "object" } }]);
    let told = post(&first).await;
    let begun = told.events.iter().find(|(kind, _)| kind == "TOOL_CALL_START").unwrap();
    asks.request_id = uuid::Uuid::now_v7();
    let mut second = serde_json::to_value(&asks).unwrap();
    let answer = json!({ "type": "tool_call_response", "id": begun.1["toolCallId"],
        "response": "Blue." });
    second["payload"]["payload"] = json!({ "messages": [{ "role": "tool", "parts": [answer] }],
        "tools": first["payload"]["payload"]["tools"] });
    let told = post(&second).await;
    let calls = provider.calls();
    let complaints: Vec<_> = calls.iter().filter_map(|call| call.complaint.as_ref()).collect();
    assert_eq!((calls.len(), complaints), (2, vec![]), "{}", told.raw);
    assert_eq!(told.text, "Sunny.");
}

/// A reasoning item of several parts, then one of a single part, then a text.
fn parted_reasoning() -> Vec<Value> {
    let summary = |text: &str| json!({ "type": "summary_text", "text": text });
    vec![
        json!({ "type": "reasoning", "id": "rs_1", "encrypted_content": "e1",
            "summary": [summary("One."), summary("Two.")] }),
        json!({ "type": "reasoning", "id": "rs_2", "encrypted_content": "e2",
            "summary": [summary("Three.")] }),
    ]
}

fn thinks_in_parts() -> Vec<Value> {
    let text = json!({ "type": "message", "id": "msg_1", "role": "assistant", "content":
        [{ "type": "output_text", "text": "Done.", "annotations": [] }] });
    let items = parted_reasoning().into_iter().chain([text]);
    let mut events: Vec<Value> = (0..)
        .zip(items)
        .map(|(index, item)| {
            json!({ "type": "response.output_item.done", "output_index": index, "item": item })
        })
        .collect();
    events.push(json!({ "type": "response.completed", "response": { "status": "completed" } }));
    events
}

#[tokio::test]
async fn each_reasoning_item_has_its_own_thoughts_in_the_next_turn() {
    let provider = provider(thinks_in_parts).await;
    let config = json!({ "model": "m", "api": "responses", "url": provider.url });
    let url = gateway(agent("openai", config)).await;
    let reasoning = |body: &Value| -> Vec<Value> {
        let items = body["input"].as_array().unwrap().iter();
        items.filter(|item| item["type"] == "reasoning").cloned().collect()
    };
    let first = post_json(&format!("{url}/v1/responses"), &json!({ "input": "Hi" })).await;
    let second = json!({ "previous_response_id": first["id"], "input": "And?" });
    post_json(&format!("{url}/v1/responses"), &second).await;
    assert_eq!(reasoning(&provider.seen()[1].body), parted_reasoning(), "from the session");

    // The client of another protocol carries them.
    let mut asked = json!({ "max_tokens": 99, "messages": [{ "role": "user", "content": "Hi" }] });
    let first = post_json(&format!("{url}/v1/messages"), &asked).await;
    let messages = asked["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": first["content"] }));
    messages.push(json!({ "role": "user", "content": "And?" }));
    post_json(&format!("{url}/v1/messages"), &asked).await;
    assert_eq!(reasoning(&provider.seen()[3].body), parted_reasoning(), "carried: {first}");
}

/// The same document with its name, in a request of each protocol.
fn with_document(dialect: Dialect, is_uploaded: bool) -> Value {
    let data = "data:application/pdf;base64,QQ==";
    match dialect {
        Dialect::OpenaiChat => {
            let file = if is_uploaded {
                json!({ "file_id": "file_1", "filename": "plan.pdf" })
            } else {
                json!({ "file_data": data, "filename": "plan.pdf" })
            };
            json!({ "messages": [{ "role": "user", "content": [{ "type": "file", "file": file },
                { "type": "text", "text": "Read." }] }] })
        }
        Dialect::OpenaiResponses => {
            let mut file = json!({ "type": "input_file", "filename": "plan.pdf" });
            let (name, value) =
                if is_uploaded { ("file_id", "file_1") } else { ("file_data", data) };
            file[name] = json!(value);
            json!({ "input": [{ "role": "user", "content": [file,
                { "type": "input_text", "text": "Read." }] }] })
        }
        Dialect::AnthropicMessages => {
            let source = if is_uploaded {
                json!({ "type": "file", "file_id": "file_1" })
            } else {
                json!({ "type": "base64", "media_type": "application/pdf", "data": "QQ==" })
            };
            json!({ "max_tokens": 99, "messages": [{ "role": "user", "content": [
                { "type": "document", "source": source, "title": "plan.pdf" },
                { "type": "text", "text": "Read." }] }] })
        }
    }
}

#[tokio::test]
async fn a_document_keeps_its_name_in_every_protocol() {
    use Dialect::{AnthropicMessages, OpenaiChat, OpenaiResponses};
    let paths = [
        (OpenaiChat, "/v1/chat/completions"),
        (OpenaiResponses, "/v1/responses"),
        (AnthropicMessages, "/v1/messages"),
    ];
    for (made, answer, at) in [
        (OpenaiChat, chat_answer as fn() -> Vec<Value>, "/messages/0/content/0/file/filename"),
        (OpenaiResponses, responses_answer, "/input/0/content/0/filename"),
        (AnthropicMessages, messages_answer, "/messages/0/content/0/title"),
    ] {
        let provider = provider(answer).await;
        let (kind, mut config) = match made {
            AnthropicMessages => ("anthropic", json!({ "model": "m" })),
            OpenaiChat => ("openai", json!({ "model": "m" })),
            OpenaiResponses => ("openai", json!({ "model": "m", "api": "responses" })),
        };
        config["url"] = json!(provider.url);
        let url = gateway(agent(kind, config)).await;
        for (speaks, path) in paths {
            for is_uploaded in [false, true] {
                let case = format!("{speaks:?} client, {made:?} provider, uploaded: {is_uploaded}");
                let mut asked = with_document(speaks, is_uploaded);
                asked["stream"] = json!(true);
                let post = client().post(format!("{url}{path}")).json(&asked);
                let answer = post.header("x-capstan-events", "all").send().await.unwrap();
                let text = answer.text().await.unwrap();
                assert!(
                    text.contains("Hello.") && !text.contains("not_translated"),
                    "{case}: {text}"
                );
                let body = provider.seen().last().unwrap().body.clone();
                // OpenAI's protocols name an uploaded file by its id alone.
                let has_place = !is_uploaded || made == AnthropicMessages || made == speaks;
                let name = body.pointer(at).and_then(Value::as_str);
                assert_eq!(name, has_place.then_some("plan.pdf"), "{case}: {body}");
            }
        }
    }
}
