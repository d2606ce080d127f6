//! What a request brings reaches what stands behind the agent: tools, context, results, answers,
//! parameters.

use crate::common::*;
use capstan_demo::Demo;
use serde_json::{Value, json};
use uuid::Uuid;

const KINDS: [&str; 3] = ["openai", "anthropic", "ag-ui"];

/// The first call of each kind calls the tool, the second one answers.
fn script(kind: &'static str) -> impl Fn(usize) -> Vec<Do> + Send + Sync + 'static {
    move |nth| {
        let said = if nth == 0 { called(kind) } else { told(kind) };
        std::iter::once(stream_head()).chain(said.iter().map(chunk)).collect()
    }
}

fn called(kind: &str) -> Vec<Value> {
    let call = json!({ "index": 0, "id": "c1", "function": { "name": "weather",
    "arguments": "{\"city\":\"Rome\"}" } });
    match kind {
        "openai" => vec![
            json!({ "model": "m", "choices": [{ "index": 0, "delta": { "tool_calls": [call] } }] }),
            json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }],
            "usage": {} }),
        ],
        "anthropic" => vec![
            json!({ "type": "message_start", "message": { "model": "m" } }),
            json!({ "type": "content_block_start", "index": 0,
            "content_block": { "type": "tool_use", "id": "c1", "name": "weather" } }),
            json!({ "type": "content_block_delta", "index": 0,
            "delta": { "type": "input_json_delta", "partial_json": "{\"city\":\"Rome\"}" } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } }),
        ],
        _ => vec![
            json!({ "type": "RUN_STARTED", "threadId": "t", "runId": "r" }),
            json!({ "type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "weather" }),
            json!({ "type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "{\"city\":\"Rome\"}" }),
            json!({ "type": "TOOL_CALL_END", "toolCallId": "c1" }),
            json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" }),
        ],
    }
}

fn told(kind: &str) -> Vec<Value> {
    match kind {
        "openai" => vec![json!({ "choices": [{ "index": 0, "delta": { "content": "Sunny." },
            "finish_reason": "stop" }], "usage": {} })],
        "anthropic" => vec![
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta",
            "text": "Sunny." } }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
        ],
        _ => vec![
            json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Sunny." }),
            json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" }),
        ],
    }
}

/// A request of an AG-UI front end with a tool, a context, state and properties.
fn input(thread: &str, messages: &Value) -> Value {
    json!({ "threadId": thread, "runId": Uuid::now_v7().to_string(), "messages": messages,
        "tools": [{ "name": "weather", "description": "How it is",
        "parameters": { "type": "object" } }],
        "context": [{ "description": "the user's city", "value": "Rome" }], "state": { "n": 1 },
        "forwardedProps": { "temperature": 0.5, "topP": 0.9, "seed": 7, "parallelToolCalls": false,
        "maxTokens": 100, "stop": ["END"], "toolChoice": { "tool": "weather" },
            "responseFormat": { "json_schema": { "schema": { "type": "object" } } },
            "effort": "high", "own": true } })
}

async fn post_agui(gateway: &str, input: &Value) -> String {
    client()
        .post(format!("{gateway}/v1/ag-ui"))
        .json(input)
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap()
}

async fn provider_of(kind: &'static str) -> (Provider, String) {
    let provider = Provider::start(script(kind)).await;
    let mut config = json!({ "url": provider.url });
    if kind != "ag-ui" {
        config["model"] = json!("m");
        config["parameters"] = json!({ "max_tokens": 50, "tools": [{ "name": "own" }] });
    }
    let gateway = gateway(agent(kind, config)).await;
    (provider, gateway)
}

fn question() -> Value {
    json!({ "id": "1", "role": "user", "content": "How is the weather?" })
}

#[tokio::test]
async fn every_part_of_a_request_reaches_each_kind() {
    for kind in KINDS {
        let (provider, gateway) = provider_of(kind).await;
        let sent = input("t", &json!([question()]));
        post_agui(&gateway, &sent).await;
        let body = provider.seen()[0].body.clone();
        let schema = json!({ "type": "object" });
        match kind {
            "openai" => {
                let system = json!({ "role": "system",
                "content": "Context of this conversation:\n- the user's city: Rome" });
                assert_eq!(body["messages"][0], system);
                let tool =
                    json!({ "name": "weather", "description": "How it is", "parameters": schema });
                assert_eq!(
                    body["tools"],
                    json!([{ "name": "own" }, { "type": "function", "function": tool }])
                );
                assert_eq!((&body["temperature"], &body["stop"]), (&json!(0.5), &json!(["END"])));
                assert_eq!((&body["top_p"], &body["seed"]), (&json!(0.9), &json!(7)));
                assert_eq!(body["parallel_tool_calls"], false);
                assert_eq!(
                    (&body["max_tokens"], &body["max_completion_tokens"]),
                    (&json!(50), &Value::Null)
                );
                assert_eq!(
                    body["tool_choice"],
                    json!({ "type": "function", "function": { "name": "weather" } })
                );
                assert_eq!(body["response_format"]["json_schema"]["schema"], schema);
                assert_eq!(body["reasoning_effort"], "high");
            }
            "anthropic" => {
                assert_eq!(
                    body["system"],
                    "Context of this conversation:\n- the user's city: Rome"
                );
                let tool = json!({ "name": "weather", "description": "How it is",
                "input_schema": schema });
                assert_eq!(body["tools"], json!([{ "name": "own" }, tool]));
                assert_eq!(
                    (&body["temperature"], &body["stop_sequences"]),
                    (&json!(0.5), &json!(["END"]))
                );
                let choice = &body["tool_choice"];
                assert_eq!(
                    (&body["top_p"], &choice["disable_parallel_tool_use"]),
                    (&json!(0.9), &json!(true))
                );
                assert_eq!(
                    (&body["max_tokens"], &body["tool_choice"]["name"]),
                    (&json!(50), &json!("weather"))
                );
                let output = json!({ "effort": "high", "format": { "type": "json_schema",
                "schema": schema } });
                assert_eq!(body["output_config"], output);
            }
            _ => {
                for name in ["tools", "context", "state", "forwardedProps"] {
                    assert_eq!(body[name], sent[name], "{name}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_tool_round_trip_reaches_each_kind() {
    for kind in KINDS {
        let (provider, gateway) = provider_of(kind).await;
        let thread = Uuid::now_v7().to_string();
        let first = post_agui(&gateway, &input(&thread, &json!([question()]))).await;
        assert!(first.contains(r#""toolCallId":"c1","toolCallName":"weather""#), "{kind}: {first}");
        // As the published clients tell it: a thought and each call are messages of their own.
        let call = |id: &str| {
            json!({ "id": id, "type": "function",
        "function": { "name": "weather", "arguments": "{}" } })
        };
        let messages = json!([question(), { "id": "2", "role": "reasoning", "content": "Hm." },
            { "id": "3", "role": "assistant", "toolCalls": [call("c1")] }, { "id": "4",
            "role": "assistant", "toolCalls": [call("c2")] },
            { "id": "5", "role": "tool", "toolCallId": "c1", "content": "21 °C" }, { "id": "6",
            "role": "tool", "toolCallId": "c2", "content": "22 °C" }]);
        let second = post_agui(&gateway, &input(&thread, &messages)).await;
        assert!(second.contains(r#""delta":"Sunny.""#), "{kind}: {second}");
        let sent = provider.seen()[1].body["messages"].clone();
        let roles: Vec<&str> =
            sent.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
        match kind {
            "openai" => {
                assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
                let ids: Vec<&Value> =
                    sent[2]["tool_calls"].as_array().unwrap().iter().map(|c| &c["id"]).collect();
                assert_eq!(ids, ["c1", "c2"]);
                assert_eq!(
                    sent[3],
                    json!({ "role": "tool", "tool_call_id": "c1", "content": "21 °C" })
                );
            }
            "anthropic" => {
                assert_eq!(roles, ["user", "assistant", "user"]);
                assert_eq!(sent[1]["content"][1]["id"], "c2");
                let result = |id: &str, text: &str| {
                    json!({ "type": "tool_result",
                "tool_use_id": id, "content": text })
                };
                assert_eq!(
                    sent[2]["content"],
                    json!([result("c1", "21 °C"), result("c2", "22 °C")])
                );
            }
            _ => {
                assert_eq!(roles, ["user", "reasoning", "assistant", "assistant", "tool", "tool"]);
                assert_eq!(
                    (&sent[4]["toolCallId"], &sent[4]["content"]),
                    (&json!("c1"), &json!("21 °C"))
                );
            }
        }
    }
}

#[tokio::test]
async fn an_interrupt_goes_through_a_foreign_agent_and_its_answer_comes_back() {
    let asks = |nth: usize| {
        let outcome = json!({ "type": "interrupt", "interrupts": [{ "id": "i1",
        "reason": "approval", "message": "Send?" }] });
        let mut end = json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r" });
        if nth == 0 {
            end["outcome"] = outcome;
        }
        vec![stream_head(), chunk(&end)]
    };
    let provider = Provider::start(asks).await;
    let gateway = gateway(agent("ag-ui", json!({ "url": provider.url }))).await;
    let mut input = input("t", &json!([question()]));
    let asked = post_agui(&gateway, &input).await;
    let id = asked
        .split(r#""interrupts":[{"id":""#)
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap();
    assert!(id.ends_with(":i1"), "{asked}");
    input["runId"] = json!("another");
    input["resume"] =
        json!([{ "interruptId": id, "status": "resolved", "payload": { "ok": true } }]);
    post_agui(&gateway, &input).await;
    let resume = json!([{ "interruptId": "i1", "status": "resolved", "payload": { "ok": true } }]);
    assert_eq!(provider.seen()[1].body["resume"], resume);
}

#[tokio::test]
async fn an_interrupt_goes_through_another_gateway_and_its_answer_comes_back() {
    for face in ["cap", "ag-ui"] {
        let far = gateway(Demo::with_delay(std::time::Duration::ZERO)).await;
        let url = if face == "cap" { far } else { format!("{far}/v1/ag-ui") };
        let near = gateway(agent(face, json!({ "url": url }))).await;
        let thread = Uuid::now_v7().to_string();
        let mut input = input(&thread, &json!([{ "id": "1", "role": "user", "content": "/ask" }]));
        let asked = post_agui(&near, &input).await;
        let id =
            asked.split(r#""interrupts":[{"id":""#).nth(1).and_then(|rest| rest.split('"').next());
        let id = id.unwrap_or_else(|| panic!("{face}: {asked}"));
        input["runId"] = json!("another");
        input["resume"] = json!([{ "interruptId": id, "status": "resolved", "payload": 7 }]);
        let answered = post_agui(&near, &input).await;
        assert!(answered.contains("7, "), "{face}: {answered}");
    }
}
