//! Tool calls in every protocol: sent as they are written, once over all attempts, and the same
//! bytes after a cut at any event.

use std::sync::Arc;

use crate::common::{Server, all, ask, client, event_types, journal, stream_of};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::Gateway;
use capstan_protocol::{Fault, FaultKind};
use serde_json::{Value, json};
use tokio::sync::Notify;
use uuid::Uuid;

async fn start_call(out: &mut Writer, id: &str) -> Outcome {
    let data = json!({ "toolCallId": id, "toolCallName": "weather" });
    Ok(out.event("TOOL_CALL_START", &data).await?)
}

async fn arguments(out: &mut Writer, id: &str, pieces: &[&str]) -> Outcome {
    for piece in pieces {
        out.event("TOOL_CALL_ARGS", &json!({ "toolCallId": id, "delta": piece })).await?;
    }
    Ok(())
}

async fn end_call(out: &mut Writer, id: &str) -> Outcome {
    Ok(out.event("TOOL_CALL_END", &json!({ "toolCallId": id })).await?)
}

/// Makes two calls. The first attempt breaks off within the second one; the next one gives both
/// other ids, spells the first otherwise and writes the second in other pieces.
struct Traveller;

#[async_trait]
impl Agent for Traveller {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        out.thought("Both, ").await?;
        out.thought("then. ").await?;
        out.delta("I look. ").await?;
        if turn.attempt == 1 {
            start_call(out, "a").await?;
            arguments(out, "a", &["{\"city\":", "\"Bern\"}"]).await?;
            end_call(out, "a").await?;
            start_call(out, "b").await?;
            arguments(out, "b", &["{\"ci"]).await?;
            return Err(Fault::new(FaultKind::UpstreamError).into());
        }
        start_call(out, "x").await?;
        arguments(out, "x", &["{ \"city\": \"Bern\" }"]).await?;
        end_call(out, "x").await?;
        start_call(out, "y").await?;
        arguments(out, "y", &["{\"city\"", ":\"Basel", "\"}"]).await?;
        end_call(out, "y").await
    }

    fn max_attempts(&self) -> u32 {
        2
    }
}

/// Goes on with its call when it is told to.
struct Slow(Arc<Notify>);

#[async_trait]
impl Agent for Slow {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        start_call(out, "a").await?;
        arguments(out, "a", &["{\"city\":"]).await?;
        self.0.notified().await;
        arguments(out, "a", &["\"Bern\"}"]).await?;
        end_call(out, "a").await
    }
}

/// Is cut short by a limit within its call.
struct Short;

#[async_trait]
impl Agent for Short {
    async fn run(&self, _: Turn, out: &mut Writer) -> Outcome {
        start_call(out, "a").await?;
        arguments(out, "a", &["{\"city\":"]).await?;
        Ok(out.reason("length").await?)
    }
}

async fn serve() -> (Server, Arc<Notify>) {
    let go_on = Arc::new(Notify::new());
    let gateway = Gateway::new(journal())
        .agent("traveller", Traveller)
        .agent("slow", Slow(Arc::clone(&go_on)))
        .agent("short", Short);
    (crate::common::serve_gateway(gateway).await, go_on)
}

fn chat(agent: &str) -> Value {
    let function = json!({ "name": "weather", "parameters": { "type": "object" } });
    json!({ "model": agent, "stream": true, "messages": [{ "role": "user", "content": "Where?" }],
        "tools": [{ "type": "function", "function": function }] })
}

fn response(agent: &str) -> Value {
    let tool = json!({ "type": "function", "name": "weather", "parameters": { "type": "object" } });
    json!({ "model": agent, "stream": true, "input": "Where?", "tools": [tool] })
}

fn page(agent: &str, chat: &str) -> (String, Value) {
    let message = json!({ "id": "u", "role": "user", "parts": [{ "type": "text",
        "text": "Where?" }] });
    let body = json!({ "id": chat, "messages": [message], "trigger": "submit-message" });
    (format!("/v1/agents/{agent}/ai-sdk/chat"), body)
}

async fn post(
    server: &Server,
    path: &str,
    body: &Value,
    headers: &[(&str, &str)],
) -> reqwest::Response {
    let mut request = client().post(format!("{}{path}", server.url)).json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    response
}

/// The objects of a body, without `[DONE]`.
fn objects(body: &str) -> Vec<Value> {
    let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

fn of_type(events: &[Value], kind: &str) -> Vec<Value> {
    events.iter().filter(|event| event["type"] == kind).cloned().collect()
}

#[tokio::test]
async fn calls_of_a_broken_attempt_go_on_under_their_ids() {
    let (server, _) = serve().await;
    let packets = all(server.post(&ask("Where?")).await).await;
    let expected = [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
    ];
    let types = event_types(&packets);
    assert_eq!(types[2..], expected, "{:?}", crate::common::errors(&packets));
    server.stop().await;
}

#[tokio::test]
async fn a_chat_has_each_piece_of_each_call_once() {
    let (server, _) = serve().await;
    let key = [("idempotency-key", "k")];
    let body = post(&server, "/v1/chat/completions", &chat("traveller"), &key).await;
    let body = body.text().await.unwrap();
    let chunks = objects(&body);
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    let pieces: Vec<&Value> =
        deltas.iter().filter_map(|delta| delta["tool_calls"].as_array()).flatten().collect();
    let first = |index: u32, id: &str| {
        json!({ "index": index, "id": id, "type": "function",
        "function": { "name": "weather", "arguments": "" } })
    };
    let more =
        |index: u32, piece: &str| json!({ "index": index, "function": { "arguments": piece } });
    let expected = [
        first(0, "a"),
        more(0, "{\"city\":"),
        more(0, "\"Bern\"}"),
        first(1, "b"),
        more(1, "{\"ci"),
        more(1, "ty\""),
        more(1, ":\"Basel"),
        more(1, "\"}"),
    ];
    assert_eq!(pieces, expected.iter().collect::<Vec<_>>());
    let thoughts: String =
        deltas.iter().filter_map(|delta| delta["reasoning_content"].as_str()).collect();
    assert_eq!(thoughts, "Both, then. ");
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    let again = post(&server, "/v1/chat/completions", &chat("traveller"), &key).await;
    assert_eq!(again.text().await.unwrap(), body, "whoever comes back skips what it has");

    let mut whole = chat("traveller");
    whole["stream"] = false.into();
    let whole = post(&server, "/v1/chat/completions", &whole, &[]).await;
    let message = &whole.json::<Value>().await.unwrap()["choices"][0]["message"];
    let calls = message["tool_calls"].as_array().unwrap();
    let arguments: Vec<Value> = calls
        .iter()
        .map(|call| serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(arguments, [json!({ "city": "Bern" }), json!({ "city": "Basel" })]);
    assert_eq!(message["reasoning_content"], "Both, then. ");
    server.stop().await;
}

#[tokio::test]
async fn a_response_resumes_within_a_calls_arguments() {
    let (server, _) = serve().await;
    let told = post(&server, "/v1/responses", &response("traveller"), &[]).await;
    let id = format!("resp_{}", stream_of(&told).replace('-', ""));
    let body = told.text().await.unwrap();
    let events = objects(&body);
    let arguments = |index: u32| {
        let deltas = of_type(&events, "response.function_call_arguments.delta");
        let own = deltas.into_iter().filter(|delta| delta["output_index"] == index);
        own.map(|delta| delta["delta"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The thoughts and the message stand before them.
    assert_eq!(arguments(2), ["{\"city\":", "\"Bern\"}"]);
    assert_eq!(arguments(3), ["{\"ci", "ty\"", ":\"Basel", "\"}"]);
    let done = of_type(&events, "response.function_call_arguments.done");
    let done: Vec<&str> = done.iter().map(|done| done["arguments"].as_str().unwrap()).collect();
    assert_eq!(done, ["{\"city\":\"Bern\"}", "{\"city\":\"Basel\"}"]);
    let output = &events.last().unwrap()["response"]["output"];
    for kind in ["response.output_item.added", "response.output_item.done"] {
        for event in of_type(&events, kind) {
            let item = &output[event["output_index"].as_u64().unwrap() as usize];
            assert_eq!(event["item"]["id"], item["id"], "{kind}");
            let call_id = &event["item"]["call_id"];
            assert!(call_id.is_null() || [json!("a"), json!("b")].contains(call_id));
        }
    }
    let items = of_type(&events, "response.output_item.done");
    assert!(items.iter().all(|done| output.as_array().unwrap().contains(&done["item"])));
    let frames: Vec<&str> = body.split_inclusive("\n\n").collect();
    for (n, event) in events.iter().enumerate() {
        let number = &event["sequence_number"];
        let path = format!("/v1/responses/{id}?stream=true&starting_after={number}");
        let rest = server.get(&path).await.text().await.unwrap();
        assert_eq!(rest, frames[n + 1..].concat(), "{event}");
    }
    let looked: Value = server.get(&format!("/v1/responses/{id}")).await.json().await.unwrap();
    assert_eq!(&looked["output"], output);
    server.stop().await;
}

#[tokio::test]
async fn a_page_resumes_within_a_calls_arguments() {
    let (server, _) = serve().await;
    let (path, submit) = page("traveller", "c");
    let body = post(&server, &path, &submit, &[]).await.text().await.unwrap();
    let chunks = objects(&body);
    let deltas = of_type(&chunks, "tool-input-delta");
    let pieces: Vec<(&str, &str)> = deltas
        .iter()
        .map(|d| (d["toolCallId"].as_str().unwrap(), d["inputTextDelta"].as_str().unwrap()))
        .collect();
    let expected = [
        ("a", "{\"city\":"),
        ("a", "\"Bern\"}"),
        ("b", "{\"ci"),
        ("b", "ty\""),
        ("b", ":\"Basel"),
        ("b", "\"}"),
    ];
    assert_eq!(pieces, expected);
    let inputs = of_type(&chunks, "tool-input-available");
    let inputs: Vec<&Value> = inputs.iter().map(|chunk| &chunk["input"]).collect();
    assert_eq!(inputs, [&json!({ "city": "Bern" }), &json!({ "city": "Basel" })]);
    goes_on_at_each_id(&body, async |id| {
        let get = client().get(format!("{}{path}/c/stream", server.url));
        get.header("last-event-id", id).send().await.unwrap().text().await.unwrap()
    })
    .await;
    server.stop().await;
}

/// Whoever comes back with the id of a frame gets all frames after it, byte by byte.
async fn goes_on_at_each_id(body: &str, come_back: impl AsyncFn(&str) -> String) {
    let frames: Vec<&str> = body.split_inclusive("\n\n").collect();
    let mut ids = 0;
    for (n, frame) in frames.iter().enumerate() {
        let id = frame.lines().find_map(|line| line.strip_prefix("id: "));
        // Whoever has the last frame has all.
        let Some(id) = id.filter(|_| n + 1 < frames.len()) else { continue };
        ids += 1;
        let rest = come_back(id).await;
        assert!(rest.ends_with(&frames[n + 1..].concat()), "{frame}{rest}");
        let opening = rest.len() - frames[n + 1..].concat().len();
        assert!(!rest[..opening].contains("data: "), "{rest}");
    }
    assert!(ids > 10, "{body}");
}

#[tokio::test]
async fn an_ag_ui_client_resumes_within_a_calls_arguments() {
    let (server, _) = serve().await;
    let input = json!({ "threadId": "t", "runId": Uuid::now_v7(), "protocolVersion": "1.0",
        "messages": [{ "id": "1", "role": "user", "content": "Where?" }] });
    let body = post(&server, "/v1/ag-ui", &input, &[]).await.text().await.unwrap();
    let events = objects(&body);
    let pieces: Vec<Value> = of_type(&events, "TOOL_CALL_ARGS");
    let pieces: Vec<(&str, &str)> = pieces
        .iter()
        .map(|d| (d["toolCallId"].as_str().unwrap(), d["delta"].as_str().unwrap()))
        .collect();
    assert_eq!(pieces[2..], [("b", "{\"ci"), ("b", "ty\""), ("b", ":\"Basel"), ("b", "\"}")]);
    assert_eq!(of_type(&events, "TOOL_CALL_START").len(), 2);
    assert_eq!(of_type(&events, "TOOL_CALL_END").len(), 2);
    goes_on_at_each_id(&body, async |id| {
        post(&server, "/v1/ag-ui", &input, &[("last-event-id", id)]).await.text().await.unwrap()
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn arguments_are_seen_while_the_model_writes_them() {
    let (server, go_on) = serve().await;
    let (path, submit) = page("slow", "c");
    for (path, body) in [
        ("/v1/chat/completions", chat("slow")),
        ("/v1/responses", response("slow")),
        (path.as_str(), submit),
    ] {
        let mut response = post(&server, path, &body, &[]).await;
        let mut seen = String::new();
        while !seen.contains(r#"{\"city\":"#) {
            let bytes = response.chunk().await.unwrap().expect("a piece of the arguments");
            seen.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        assert!(!seen.contains("Bern"), "{seen}");
        go_on.notify_one();
        while let Some(bytes) = response.chunk().await.unwrap() {
            seen.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        assert!(seen.contains("Bern"), "{seen}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_call_that_a_limit_cut_short_is_not_complete_for_anybody() {
    let (server, _) = serve().await;
    let mut whole = chat("short");
    whole["stream"] = false.into();
    let whole = post(&server, "/v1/chat/completions", &whole, &[]).await;
    let choice = whole.json::<Value>().await.unwrap()["choices"][0].clone();
    assert_eq!(choice["finish_reason"], "length");
    assert!(choice["message"]["tool_calls"].is_null(), "{choice}");

    let told = post(&server, "/v1/responses", &response("short"), &[]).await;
    let events = objects(&told.text().await.unwrap());
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert!(!kinds.contains(&"response.function_call_arguments.done"), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"response.incomplete"));
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"][0]["status"], "incomplete");
    assert_eq!(of_type(&events, "response.output_item.done")[0]["item"], last["output"][0]);

    let (path, submit) = page("short", "c");
    let chunks = objects(&post(&server, &path, &submit, &[]).await.text().await.unwrap());
    assert_eq!(of_type(&chunks, "tool-input-available"), [] as [Value; 0]);

    let input = json!({ "threadId": "t", "runId": Uuid::now_v7(), "protocolVersion": "1.0",
        "messages": [{ "id": "1", "role": "user", "content": "Where?" }] });
    let told = post(&server, "/v1/agents/short/ag-ui", &input, &[]).await.text().await.unwrap();
    assert!(!told.contains("pendingToolCallIds"), "{told}");
    server.stop().await;
}
