//! The items of an answer stay apart and in order: in the events of Responses, in the response at
//! their end, and in the next request to the provider.

use serde_json::{Value, json};

use crate::common::*;

fn thought(n: u64) -> Value {
    json!({ "type": "reasoning", "id": format!("rs_{n}"), "encrypted_content": format!("ENC{n}"),
        "summary": [{ "type": "summary_text", "text": format!("Thought {n}.") }] })
}

fn message(n: u64, text: &str) -> Value {
    json!({ "type": "message", "id": format!("msg_{n}"), "role": "assistant",
        "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
}

fn call(n: u64) -> Value {
    json!({ "type": "function_call", "id": format!("fc_{n}"), "call_id": format!("c{n}"),
        "name": "f", "arguments": "{\"city\":\"Paris\"}", "status": "completed" })
}

/// The events of an item.
fn item_events(index: usize, item: &Value) -> Vec<Value> {
    let mut begun = item.clone();
    let (kind, member) = match item["type"].as_str().unwrap() {
        "reasoning" => ("response.reasoning_summary_text", "/summary/0/text"),
        "message" => ("response.output_text", "/content/0/text"),
        _ => ("response.function_call_arguments", "/arguments"),
    };
    for name in ["summary", "content", "arguments", "encrypted_content", "status"] {
        begun.as_object_mut().unwrap().remove(name);
    }
    let of_item = |kind: &str, name: &str, value: &Value| {
        let mut event = json!({ "type": kind, "output_index": index, "item_id": item["id"] });
        event[name] = value.clone();
        event
    };
    let text = item.pointer(member).unwrap().as_str().unwrap();
    let (first, rest) = text.split_at(text.len() / 2);
    let delta = format!("{kind}.delta");
    vec![
        of_item("response.output_item.added", "item", &begun),
        of_item(&delta, "delta", &json!(first)),
        of_item(&delta, "delta", &json!(rest)),
        of_item(&format!("{kind}.done"), "text", &json!(text)),
        of_item("response.output_item.done", "item", item),
    ]
}

/// The events of an answer, without its end.
fn events(items: &[Value]) -> Vec<Value> {
    let begun = json!({ "id": "resp_9", "status": "in_progress", "service_tier": "flex",
        "tools": [], "x_new": 1 });
    let mut events = vec![json!({ "type": "response.created", "response": begun })];
    events.extend(items.iter().enumerate().flat_map(|(index, item)| item_events(index, item)));
    events
}

fn answer(events: &[Value]) -> Vec<Do> {
    let end = json!({ "type": "response.completed", "response": { "status": "completed",
        "service_tier": "flex", "x_new": 1, "x_end": 2 } });
    std::iter::once(stream_head()).chain(events.iter().chain([&end]).map(chunk)).collect()
}

/// An answer whose connection breaks.
fn cut(events: &[Value]) -> Vec<Do> {
    let head = std::iter::once(stream_head());
    head.chain(events.iter().map(chunk)).chain([Do::Reset]).collect()
}

const RESPONSES: &str = "responses";

/// A gateway with an agent that calls this provider.
async fn gateway_to(provider: &Provider, kind: &str) -> String {
    let mut config = json!({ "model": "m", "url": provider.url });
    if kind == RESPONSES {
        config["api"] = RESPONSES.into();
    }
    let kind = if kind == RESPONSES { "openai" } else { kind };
    provider.gateway(kind, config).await + "/v1/responses"
}

async fn post(url: &str, input: Value, more: Value) -> String {
    let tool = json!({ "type": "function", "name": "f", "parameters": { "type": "object" } });
    let mut body = json!({ "input": input, "tools": [tool] });
    body.as_object_mut().unwrap().extend(keys(more));
    let answer = client().post(url).json(&body).send().await.unwrap();
    let status = answer.status();
    let text = answer.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    text
}

/// The events of a streamed answer.
async fn stream(url: &str) -> Vec<Value> {
    let text = post(url, json!("Hi"), json!({ "stream": true })).await;
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The items of a stream, as a client has them that takes each when it is complete.
fn done(events: &[Value]) -> Vec<Value> {
    let done = events.iter().filter(|event| event["type"] == "response.output_item.done");
    done.map(|event| event["item"].clone()).collect()
}

/// An item by its id, its text and what proves it.
fn short(item: &Value) -> String {
    let texts = ["/summary/0/text", "/content/0/text", "/arguments", "/encrypted_content"];
    let text = |at: &&str| item.pointer(at).and_then(Value::as_str).map(str::to_owned);
    texts.iter().filter_map(text).collect::<Vec<_>>().join(" ")
}

fn shorts<'a>(items: impl IntoIterator<Item = &'a Value>) -> Vec<String> {
    items.into_iter().map(short).filter(|text| !text.is_empty()).collect()
}

/// The answer of the first turn in the last request to the provider.
fn returned(provider: &Provider) -> Vec<String> {
    let body = provider.seen().last().unwrap().body.clone();
    let items = body["input"].as_array().unwrap().clone();
    shorts(items.iter().filter(|item| item["role"] != "user"))
}

#[tokio::test]
async fn items_of_a_response_stay_apart_and_in_order() {
    for items in [
        vec![thought(1), message(1, "One."), thought(2), message(2, "Two.")],
        vec![message(1, "One."), message(2, "Two."), call(1)],
        vec![message(1, "One."), message(2, "Two."), message(3, "Three.")],
    ] {
        let events = events(&items);
        let provider = Provider::start(move |_| answer(&events)).await;
        let url = gateway_to(&provider, RESPONSES).await;
        let wanted = shorts(&items);
        let told = stream(&url).await;
        assert_eq!(shorts(&done(&told)), wanted, "{told:#?}");
        let last = told.last().unwrap()["response"].clone();
        assert_eq!(shorts(last["output"].as_array().unwrap()), wanted, "{last:#}");
        let next = json!([{ "type": "function_call_output", "call_id": "c1", "output": "42" }]);
        let next = if items.last() == Some(&call(1)) { next } else { json!([]) };
        let ask = json!([{ "role": "user", "content": "And?" }]);
        let all = [done(&told), next.as_array().unwrap().clone()].concat();
        post(&url, [all, ask.as_array().unwrap().clone()].concat().into(), json!({})).await;
        assert_eq!(returned(&provider), wanted, "the client's history");
        let next = [next.as_array().unwrap().clone(), ask.as_array().unwrap().clone()].concat();
        post(&url, next.into(), json!({ "previous_response_id": last["id"] })).await;
        assert_eq!(returned(&provider), wanted, "the stored conversation");
    }
}

#[tokio::test]
async fn items_stay_apart_when_the_connection_breaks() {
    let items = [thought(1), message(1, "One."), message(2, "Two."), call(1)];
    let all = events(&items);
    for length in 2..all.len() {
        let events = all.clone();
        let provider = Provider::start(move |nth| match nth {
            0 => cut(&events[..length]),
            _ => answer(&events),
        });
        let provider = provider.await;
        let url = gateway_to(&provider, RESPONSES).await;
        let told = stream(&url).await;
        assert_eq!(shorts(&done(&told)), shorts(&items), "cut after {length}: {told:#?}");
        let output = told.last().unwrap()["response"]["output"].clone();
        assert_eq!(shorts(output.as_array().unwrap()), shorts(&items), "cut after {length}");
    }
}

#[tokio::test]
async fn reasoning_of_a_later_attempt_is_never_the_last_item() {
    let first = [thought(1), message(1, "One."), call(1)];
    let second = [thought(2), message(1, "One."), call(1)];
    let (sent, all) = (events(&first), events(&second));
    // In the thoughts, after them, in the text, and in the arguments.
    for (length, wanted) in [
        (3, vec![&second[0], &first[1], &first[2]]),
        (6, vec![&first[0], &second[0], &first[1], &first[2]]),
        (9, vec![&first[0], &first[1], &second[0], &first[2]]),
        (13, vec![&first[0], &first[1], &first[2]]),
    ] {
        let (sent, all) = (sent.clone(), all.clone());
        let provider = Provider::start(move |nth| match nth {
            0 => cut(&sent[..length]),
            _ => answer(&all),
        });
        let provider = provider.await;
        let url = gateway_to(&provider, RESPONSES).await;
        let told = stream(&url).await;
        let proofs = |items: &[Value]| -> Vec<Value> {
            items.iter().map(|item| item["encrypted_content"].clone()).collect()
        };
        let wanted: Vec<Value> = wanted.into_iter().cloned().collect();
        assert_eq!(proofs(&done(&told)), proofs(&wanted), "cut after {length}: {told:#?}");
        let output = told.last().unwrap()["response"]["output"].clone();
        assert_eq!(proofs(output.as_array().unwrap()), proofs(&wanted), "cut after {length}");
    }
}

#[tokio::test]
async fn an_unknown_event_keeps_its_place() {
    let unknown = json!({ "type": "response.brand_new", "x": 1 });
    let mut events = events(&[message(1, "One."), call(1)]);
    events.insert(6, unknown);
    let provider = Provider::start(move |_| answer(&events)).await;
    let told = stream(&gateway_to(&provider, RESPONSES).await).await;
    let kinds: Vec<&str> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let at = kinds.iter().position(|kind| *kind == "response.brand_new").unwrap();
    let around = (kinds[at - 1], kinds[at + 1]);
    assert_eq!(around, ("response.output_item.done", "response.output_item.added"), "{kinds:?}");
}

#[tokio::test]
async fn a_response_begins_with_the_members_of_the_provider() {
    let events = events(&[message(1, "One.")]);
    let provider = Provider::start(move |_| answer(&events)).await;
    let url = gateway_to(&provider, RESPONSES).await;
    let told = stream(&url).await;
    for (nth, kind) in ["response.created", "response.in_progress"].into_iter().enumerate() {
        let (event, response) = (&told[nth], &told[nth]["response"]);
        let place = (event["type"].as_str(), event["sequence_number"].as_u64());
        assert_eq!(place, (Some(kind), Some(nth as u64)));
        let members = (&response["service_tier"], &response["x_new"], &response["x_end"]);
        assert_eq!(members, (&json!("flex"), &json!(1), &Value::Null), "{response:#}");
        assert_eq!(response["tools"][0]["name"], "f", "the request's");
    }
    let last = &told.last().unwrap()["response"];
    assert_eq!((&last["x_new"], &last["x_end"]), (&json!(1), &json!(2)));
    let id = last["id"].as_str().unwrap();
    let again = client().get(format!("{url}/{id}?stream=true")).send().await.unwrap();
    let again = again.text().await.unwrap();
    let first = again.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(first).unwrap(), told[0]);
}

/// The events of Messages for thinking, a text, thinking and a text.
fn interleaved() -> Vec<Value> {
    let mut events = Vec::new();
    for n in 0..4 {
        let (kind, member, text) = match n % 2 {
            0 => ("thinking", "thinking", format!("Thought {n}.")),
            _ => ("text", "text", format!("Text {n}.")),
        };
        let mut block = json!({ "type": kind });
        block[member] = "".into();
        events.push(json!({ "type": "content_block_start", "index": n, "content_block": block }));
        let mut delta = json!({ "type": format!("{kind}_delta") });
        delta[member] = text.into();
        events.push(json!({ "type": "content_block_delta", "index": n, "delta": delta }));
        if kind == "thinking" {
            let delta = json!({ "type": "signature_delta", "signature": format!("SIGNED{n}") });
            events.push(json!({ "type": "content_block_delta", "index": n, "delta": delta }));
        }
        events.push(json!({ "type": "content_block_stop", "index": n }));
    }
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }));
    events
}

#[tokio::test]
async fn thinking_between_texts_comes_back_in_its_place() {
    let provider = Provider::start(|_| {
        std::iter::once(stream_head()).chain(interleaved().iter().map(chunk)).collect()
    });
    let provider = provider.await;
    let url = gateway_to(&provider, "anthropic").await;
    let told = stream(&url).await;
    let mut history = done(&told);
    assert_eq!(history.len(), 4, "{told:#?}");
    history.push(json!({ "role": "user", "content": "And?" }));
    post(&url, history.into(), json!({})).await;
    let body = provider.seen().last().unwrap().body.clone();
    let content = &body["messages"][0]["content"];
    let blocks: Vec<_> = content.as_array().unwrap().iter().collect();
    let said: Vec<_> =
        blocks.iter().map(|block| (block["signature"].as_str(), block["text"].as_str())).collect();
    let wanted = [
        (Some("SIGNED0"), None),
        (None, Some("Text 1.")),
        (Some("SIGNED2"), None),
        (None, Some("Text 3.")),
    ];
    assert_eq!(said, wanted, "{content:#}");
}
