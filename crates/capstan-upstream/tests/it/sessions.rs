//! What a session stores goes back to its provider whole: the items of requests, and the items and
//! blocks of answers, each in its place.

use std::time::Duration;

use capstan_agent::Clock;
use capstan_gateway::{Gateway, serve};
use capstan_journal::{Journal, Retention, TailLimits};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::common::*;
use crate::routes;

/// Sends a request, and returns the response.
async fn post(url: &str, body: &Value) -> Value {
    let answer = client().post(url).json(body).send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// A provider that gives this answer first, and then a short one.
async fn provider(first: Vec<Value>, then: Vec<Value>) -> Provider {
    let script = move |nth| {
        let said = if nth == 0 { &first } else { &then };
        std::iter::once(stream_head()).chain(said.iter().map(chunk)).collect()
    };
    Provider::start(script).await
}

/// A stream of Messages with these blocks.
fn messages(blocks: &[Value]) -> Vec<Value> {
    let mut events = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let (mut start, mut deltas) = (block.clone(), Vec::new());
        let mut streams = |name: &str, kind: &str, piece: &str, empty: Value| {
            let Some(value) = start.get_mut(name) else { return };
            let value = std::mem::replace(value, empty);
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            deltas.push(json!({ "type": kind, piece: text }));
        };
        match block["type"].as_str().unwrap() {
            "text" => streams("text", "text_delta", "text", "".into()),
            "thinking" => {
                streams("thinking", "thinking_delta", "thinking", "".into());
                streams("signature", "signature_delta", "signature", "".into());
            }
            kind if kind.ends_with("tool_use") => {
                streams("input", "input_json_delta", "partial_json", json!({}));
            }
            _ => {}
        }
        events
            .push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        events.extend(
            deltas.into_iter().map(
                |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            ),
        );
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }));
    events
}

fn thinking(n: u32) -> Value {
    json!({ "type": "thinking", "thinking": format!("Thought {n}."), "signature": format!("s{n}") })
}

fn redacted() -> Value {
    json!({ "type": "redacted_thinking", "data": "sealed" })
}

fn said(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn call() -> Value {
    json!({ "type": "tool_use", "id": "t1", "name": "weather", "input": { "city": "Ulm" } })
}

fn search() -> Value {
    json!({ "type": "server_tool_use", "id": "srv1", "name": "web_search",
        "input": { "query": "q" } })
}

fn found() -> Value {
    let page = json!({ "type": "web_search_result", "url": "https://a.example", "title": "t",
        "encrypted_content": "sealed", "page_age": null });
    json!({ "type": "web_search_tool_result", "tool_use_id": "srv1", "content": [page] })
}

/// The messages of the second request, after a first answer of these blocks.
async fn second_messages(blocks: &[Value]) -> Vec<Value> {
    let provider = provider(messages(blocks), messages(&[said("Sunny.")])).await;
    let config = json!({ "model": "m", "url": provider.url });
    let url = gateway(agent("anthropic", config)).await + "/v1/responses";
    let first = post(&url, &json!({ "input": "How is the weather?" })).await;
    let next = match blocks.contains(&call()) {
        true => json!([{ "type": "function_call_output", "call_id": "t1", "output": "Blue." }]),
        false => json!("And now?"),
    };
    post(&url, &json!({ "previous_response_id": first["id"], "input": next })).await;
    provider.seen()[1].body["messages"].as_array().unwrap().clone()
}

#[tokio::test]
async fn server_tools_come_back_as_they_came_with_the_thoughts_behind_them() {
    let asked = json!({ "type": "mcp_tool_use", "id": "mcp1", "name": "look",
        "server_name": "maps", "input": {} });
    let answered = json!({ "type": "mcp_tool_result", "tool_use_id": "mcp1", "is_error": false,
        "content": [{ "type": "text", "text": "Here." }] });
    let failed = json!({ "type": "web_search_tool_result", "tool_use_id": "srv1",
        "content": { "type": "web_search_tool_result_error", "error_code": "unavailable" } });
    for blocks in [
        vec![thinking(1), search(), found(), thinking(2), said("It is"), call()],
        vec![thinking(1), search(), found(), redacted(), said("It is"), call()],
        vec![search(), found(), redacted(), call()],
        vec![said("I look."), search(), failed, said("Sorry.")],
        vec![thinking(1), asked, answered, thinking(2), said("There.")],
    ] {
        let sent = second_messages(&blocks).await;
        assert_eq!((sent.len(), &sent[1]["role"]), (3, &json!("assistant")), "{sent:?}");
        assert_eq!(sent[1]["content"], json!(blocks));
        assert_eq!(sent[2]["role"], "user", "{sent:?}");
    }
}

#[tokio::test]
async fn another_model_gets_a_server_tool_as_a_call_with_its_result() {
    let blocks = [thinking(1), search(), found(), said("It is"), call()];
    let maker = provider(messages(&blocks), Vec::new()).await;
    let other = provider(messages(&[said("Sunny.")]), Vec::new()).await;
    let at = |provider: &Provider| json!({ "model": "m", "url": provider.url });
    let agents = [("maker", "anthropic", at(&maker)), ("other", "anthropic", at(&other))];
    let url = routes::gateway(&Clock::default(), &agents).await + "/v1/responses";
    let first = post(&url, &json!({ "model": "maker", "input": "Hi" })).await;
    let output = json!({ "type": "function_call_output", "call_id": "t1", "output": "Blue." });
    let second =
        json!({ "model": "other", "previous_response_id": first["id"], "input": [output] });
    post(&url, &second).await;
    let sent = other.seen()[0].body["messages"].clone();
    let kinds = |at: usize| -> Vec<&str> {
        let blocks = sent[at]["content"].as_array().unwrap().iter();
        blocks.map(|block| block["type"].as_str().unwrap()).collect()
    };
    assert_eq!((kinds(1), kinds(2)), (vec!["tool_use"], vec!["tool_result"]), "{sent}");
    assert_eq!((kinds(3), kinds(4)), (vec!["text", "tool_use"], vec!["tool_result"]), "{sent}");
}

#[tokio::test]
async fn thinking_at_the_end_of_a_message_stays_behind_since_its_provider_refuses_it() {
    for blocks in
        [vec![thinking(1), said("It is blue."), thinking(2)], vec![said("It is blue."), redacted()]]
    {
        let sent = second_messages(&blocks).await;
        assert_eq!(sent[1]["content"], json!(blocks[..blocks.len() - 1]), "{sent:?}");
    }
    let sent = second_messages(&[thinking(1)]).await;
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert_eq!(sent[0]["content"], json!([said("How is the weather?"), said("And now?")]));
}

/// A stream of Responses with these items.
fn responses(items: &[Value]) -> Vec<Value> {
    let mut events = vec![json!({ "type": "response.created", "response": { "id": "resp_9" } })];
    for (index, item) in items.iter().enumerate() {
        let mut begun = item.clone();
        for name in ["summary", "content", "input", "arguments", "encrypted_content", "result"] {
            begun.as_object_mut().unwrap().remove(name);
        }
        let of_item = |kind: &str, name: &str, value: &Value| {
            let mut event = json!({ "type": kind, "output_index": index });
            event[name] = value.clone();
            event
        };
        events.push(of_item("response.output_item.added", "item", &begun));
        if item["type"] == "message" {
            let text = &item["content"][0]["text"];
            events.push(of_item("response.output_text.delta", "delta", text));
        }
        events.push(of_item("response.output_item.done", "item", item));
    }
    let end = json!({ "status": "completed", "usage": {} });
    events.push(json!({ "type": "response.completed", "response": end }));
    events
}

fn reasoning() -> Value {
    json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed" })
}

fn message(text: &str) -> Value {
    json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
}

fn function_call() -> Value {
    json!({ "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f",
        "arguments": "{}", "status": "completed" })
}

/// The input of the second request, after a first answer of these items.
async fn second_input(items: &[Value], next: Value) -> Vec<Value> {
    let provider = provider(responses(items), responses(&[message("Done.")])).await;
    let config = json!({ "model": "m", "api": "responses", "url": provider.url });
    let url = gateway(agent("openai", config)).await + "/v1/responses";
    let first = post(&url, &json!({ "input": "Hi" })).await;
    post(&url, &json!({ "previous_response_id": first["id"], "input": next })).await;
    provider.seen()[1].body["input"].as_array().unwrap().clone()
}

#[tokio::test]
async fn items_at_the_end_of_an_answer_come_back() {
    let asks = json!({ "type": "mcp_approval_request", "id": "mcpr_1", "name": "t",
        "arguments": "{}", "server_label": "s" });
    let picture = json!({ "type": "image_generation_call", "id": "ig_1", "status": "completed",
        "result": "AA==" });
    let compaction = json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": "sealed" });
    let approves = json!({ "type": "mcp_approval_response", "approval_request_id": "mcpr_1",
        "approve": true });
    let asked = json!({ "role": "user", "content": [{ "type": "input_text", "text": "Hi" }] });
    let text = json!({ "role": "assistant",
        "content": [{ "type": "output_text", "text": "Here." }] });
    for (items, back) in [
        (vec![reasoning(), asks.clone()], vec![reasoning(), asks]),
        (vec![message("Here."), compaction.clone()], vec![text.clone(), compaction]),
        (vec![message("Here."), picture.clone()], vec![text.clone(), picture.clone()]),
        (vec![picture.clone()], vec![picture.clone()]),
        (vec![reasoning(), picture.clone()], vec![reasoning(), picture]),
        // Without the item that it led to the provider refuses it.
        (vec![message("Here."), reasoning()], vec![text]),
        (vec![reasoning(), function_call()], vec![]),
    ] {
        let sent = second_input(&items, json!([approves])).await;
        let expected = [vec![asked.clone()], back, vec![approves.clone()]].concat();
        assert_eq!(sent, expected);
    }
}

/// Items of which CAP has only a part, or nothing.
fn odd_input() -> Vec<Value> {
    let image = json!({ "type": "input_image", "image_url": "https://a.example/a.png",
        "detail": "original", "x": 2 });
    let content = json!([{ "type": "input_text", "text": "Hi", "x": 1 }, image,
        { "type": "input_file", "file_id": "file_2" }, { "type": "input_new", "z": 1 }]);
    vec![
        json!({ "role": "developer", "content": "Be brief.", "x": 1 }),
        json!({ "type": "message", "role": "user", "content": content, "x": 3 }),
        json!({ "type": "reasoning", "id": "rs_0", "summary": [], "encrypted_content": "sealed" }),
        json!({ "type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "raw" }),
        json!({ "type": "custom_tool_call_output", "call_id": "c2", "output": "Done.", "x": 1 }),
        json!({ "type": "function_call", "call_id": "c3", "name": "f", "arguments": "{ }",
            "namespace": "ns" }),
        json!({ "type": "function_call_output", "call_id": "c3",
            "output": [{ "type": "input_text", "text": "r" }, image] }),
        json!({ "type": "new_item", "n": 1.5e300, "q": [1] }),
        json!({ "type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": [] }),
        json!({ "role": "user", "content": "Go." }),
    ]
}

fn done() -> Value {
    json!({ "role": "assistant", "content": [{ "type": "output_text", "text": "Done." }] })
}

fn asked(text: &str) -> Value {
    json!({ "role": "user", "content": [{ "type": "input_text", "text": text }] })
}

async fn done_provider() -> Provider {
    provider(responses(&[message("Done.")]), responses(&[message("Done.")])).await
}

fn of_responses(provider: &Provider) -> Value {
    json!({ "model": "m", "api": "responses", "url": provider.url })
}

#[tokio::test]
async fn items_of_earlier_requests_reach_their_own_protocol_as_they_came() {
    let provider = done_provider().await;
    let base = gateway(agent("openai", of_responses(&provider))).await;
    let url = format!("{base}/v1/responses");
    let conversation = post(&format!("{base}/v1/conversations"), &json!({})).await;
    let first = post(&url, &json!({ "input": odd_input() })).await;
    let next = json!({ "input": "And?", "previous_response_id": first["id"] });
    let second = post(&url, &next).await;
    let next = json!({ "input": "So?", "previous_response_id": second["id"] });
    post(&url, &next).await;
    for input in [json!(odd_input()), json!("And?"), json!("So?")] {
        post(&url, &json!({ "input": input, "conversation": conversation["id"] })).await;
    }
    let sent: Vec<Value> = provider.seen().iter().map(|seen| seen.body["input"].clone()).collect();
    for turns in sent.chunks(3) {
        assert_eq!(turns[0], json!(odd_input()));
        let last = json!({ "role": "user", "content": "And?" });
        assert_eq!(turns[1], json!([odd_input(), vec![done(), last]].concat()));
        let last = json!({ "role": "user", "content": "So?" });
        let more = vec![done(), asked("And?"), done(), last];
        assert_eq!(turns[2], json!([odd_input(), more].concat()));
    }
}

#[tokio::test]
async fn earlier_items_reach_another_protocol_as_what_they_mean() {
    let (maker, other) = (done_provider().await, provider(messages(&[]), Vec::new()).await);
    let config = json!({ "model": "m", "url": other.url });
    let agents = [("maker", "openai", of_responses(&maker)), ("other", "anthropic", config)];
    let url = routes::gateway(&Clock::default(), &agents).await + "/v1/responses";
    let input: Vec<Value> = odd_input()
        .into_iter()
        .map(|mut item| {
            if let Some(content) = item["content"].as_array_mut() {
                content.truncate(1);
            }
            item
        })
        .collect();
    let first = post(&url, &json!({ "model": "maker", "input": input })).await;
    let next = json!({ "model": "other", "input": "And?", "previous_response_id": first["id"] });
    post(&url, &next).await;
    let body = other.seen()[0].body.clone();
    assert_eq!(body["system"], "Be brief.", "{body}");
    let roles: Vec<&str> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user", "assistant", "user"]);
    let text = body.to_string();
    for own in ["rs_0", "sealed", "new_item", "mcpl_1", "original"] {
        assert!(!text.contains(own), "{own}: {text}");
    }
    assert_eq!(text.matches("a.png").count(), 1, "{text}");
}

#[tokio::test]
async fn calls_that_nobody_answered_are_left_out_with_their_items() {
    let provider = done_provider().await;
    let url = gateway(agent("openai", of_responses(&provider))).await + "/v1/responses";
    let user = json!({ "role": "user", "content": "Hi", "x": 1 });
    let call = json!({ "type": "custom_tool_call", "call_id": "c", "name": "f", "input": "" });
    let input = json!([user, call]);
    let first = post(&url, &json!({ "input": input })).await;
    post(&url, &json!({ "input": "And?", "previous_response_id": first["id"] })).await;
    let sent = provider.seen().iter().map(|seen| seen.body["input"].clone()).collect::<Vec<_>>();
    assert_eq!(sent[0], input);
    let last = json!({ "role": "user", "content": "And?" });
    assert_eq!(sent[1], json!([user, done(), last]));
}

/// Serves a gateway over a journal.
async fn over(journal: &Journal, provider: &Provider) -> String {
    let agent = agent("openai", of_responses(provider));
    let gateway = Gateway::new(journal.clone()).agent("a", agent);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/responses", listener.local_addr().unwrap());
    tokio::spawn(async move { serve(gateway, vec![listener], std::future::pending()).await });
    url
}

#[tokio::test]
async fn an_expired_request_is_told_as_what_it_means() {
    let store = open("memory:", Durability::default()).unwrap();
    let (journal, provider) = (Journal::new(store, TailLimits::default()), done_provider().await);
    let url = over(&journal, &provider).await;
    let input = json!([{ "role": "developer", "content": "Be brief.", "x": 1 },
        { "role": "user", "content": "Hi" }]);
    let first = post(&url, &json!({ "input": input })).await;
    let next = json!({ "input": "And?", "previous_response_id": first["id"] });
    let second = post(&url, &next).await;
    let closed_at = async |response: &Value| {
        let id = response["id"].as_str().unwrap().strip_prefix("resp_").unwrap();
        let run = journal.store().run(id.parse().unwrap()).await.unwrap();
        run.map(|run| run.closed_at.unwrap().as_micros())
    };
    let last = closed_at(&second).await.unwrap();
    let age =
        Duration::from_micros(u64::try_from(last - closed_at(&first).await.unwrap()).unwrap());
    let retention = Retention { max_age: age / 2, ..Retention::default() };
    journal.store().expire(&retention, Timestamp::from_micros(last)).await.unwrap();
    assert_eq!((closed_at(&first).await, closed_at(&second).await), (None, Some(last)));
    // This gateway has not read the body before.
    let next = json!({ "input": "So?", "previous_response_id": second["id"] });
    post(&over(&journal, &provider).await, &next).await;
    let sent = provider.seen()[2].body["input"].clone();
    let system = json!({ "role": "system",
        "content": [{ "type": "input_text", "text": "Be brief." }] });
    assert_eq!((&sent[0], &sent[1]), (&system, &asked("Hi")), "{sent}");
}
