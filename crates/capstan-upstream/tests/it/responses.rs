//! A client of Responses in front of an agent of Responses: every event reaches it, in the
//! provider's order and with the provider's members.

use serde_json::{Value, json};

use crate::common::*;

/// A provider that answers each call with these events.
async fn provider(events: Vec<Value>) -> Provider {
    let frames = move |_| std::iter::once(stream_head()).chain(events.iter().map(chunk)).collect();
    Provider::start(frames).await
}

/// The events of an answer to this request.
async fn stream(provider: &Provider, request: Value) -> Vec<Value> {
    let config = json!({ "model": "m", "api": "responses", "url": provider.url });
    let url = gateway(agent("openai", config)).await + "/v1/responses";
    let mut body = json!({ "input": "Hi", "stream": true });
    body.as_object_mut().unwrap().extend(request.as_object().unwrap().clone());
    let answer = client().post(url).json(&body).send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert_eq!(status, 200, "{text}");
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap_or_else(|e| panic!("{e}: {data}"))).collect()
}

async fn answer(events: Vec<Value>) -> Vec<Value> {
    stream(
        &provider(events).await,
        json!({ "tools": [
        { "type": "function", "name": "f", "parameters": {} }] }),
    )
    .await
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

fn of_kind<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn added(index: u64, item: Value) -> Value {
    json!({ "type": "response.output_item.added", "output_index": index, "item": item })
}

fn done(index: u64, item: Value) -> Value {
    json!({ "type": "response.output_item.done", "output_index": index, "item": item })
}

fn delta(kind: &str, index: u64, text: &str) -> Value {
    json!({ "type": format!("response.{kind}.delta"), "output_index": index,
        "item_id": "its_item", "content_index": 0, "delta": text })
}

fn completed() -> Value {
    json!({ "type": "response.completed", "response": { "id": "resp_1", "status": "completed" } })
}

fn text_item(text: &str) -> Value {
    json!({ "type": "message", "id": "msg_9", "role": "assistant", "status": "completed",
        "content": [{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }] })
}

fn message(index: u64, text: &str) -> [Value; 3] {
    let begun = json!({ "type": "message", "id": "msg_9", "role": "assistant", "content": [] });
    [added(index, begun), delta("output_text", index, text), done(index, text_item(text))]
}

fn reasoning(members: Value) -> Value {
    let mut item = json!({ "type": "reasoning", "id": "rs_9", "summary": [] });
    item.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    item
}

#[tokio::test]
async fn items_that_only_the_last_event_brings_are_an_answer() {
    let call = json!({ "type": "function_call", "id": "fc_9", "call_id": "call_9", "name": "f",
        "arguments": "{\"a\":1}" });
    let thought =
        |text: &str| reasoning(json!({ "summary": [{ "type": "summary_text", "text": text }] }));
    let output = json!([thought("Hm."), thought("So."), text_item("Hello."), call]);
    let mut whole = completed();
    whole["response"]["output"] = output;
    let all = answer(vec![whole.clone()]).await;
    let last = all.last().unwrap();
    let kinds: Vec<_> = last["response"]["output"].as_array().unwrap().iter().collect();
    let kinds: Vec<_> = kinds.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "reasoning", "message", "function_call"], "{last}");
    assert_eq!(last["response"]["output"][2]["content"][0]["text"], "Hello.");
    assert_eq!(last["response"]["output"][3]["arguments"], "{\"a\":1}");
    // Text that came in pieces without its item is not repeated.
    let all = answer(vec![delta("output_text", 0, "Hello."), whole]).await;
    let output = &all.last().unwrap()["response"]["output"];
    let text = output.as_array().unwrap().iter().find(|item| item["type"] == "message").unwrap();
    assert_eq!(text["content"][0]["text"], "Hello.", "{output}");
    assert!(output.to_string().contains("call_9"), "{output}");
}

#[tokio::test]
async fn reasoning_has_one_id_in_all_of_its_events() {
    let summary = json!([{ "type": "summary_text", "text": "Hm." }]);
    let item = reasoning(json!({ "summary": summary, "encrypted_content": "whole" }));
    let mut events = vec![
        added(0, reasoning(json!({ "encrypted_content": "unfinished" }))),
        delta("reasoning_summary_text", 0, "Hm."),
        done(0, item.clone()),
    ];
    events.extend(message(1, "Hello."));
    events.push(completed());
    let events = answer(events).await;
    let begun = &of_kind(&events, "response.output_item.added")[0]["item"];
    assert_eq!((&begun["id"], begun.get("encrypted_content")), (&json!("rs_9"), None));
    let of_item: Vec<&Value> = events.iter().filter(|event| event["output_index"] == 0).collect();
    let ids: Vec<&Value> = of_item.iter().filter_map(|event| event.get("item_id")).collect();
    assert_eq!(ids, vec!["rs_9"; 4]);
    assert_eq!(of_item.last().unwrap()["item"], item);
}

#[tokio::test]
async fn a_message_ends_before_the_call_behind_it() {
    let call = json!({ "type": "function_call", "id": "fc_9", "call_id": "c", "name": "f",
        "arguments": "{}" });
    let mut events = message(0, "I look.").to_vec();
    events.extend([
        added(1, call.clone()),
        delta("function_call_arguments", 1, "{}"),
        done(1, call),
    ]);
    events.extend(message(2, "Then I say more."));
    events.push(completed());
    let events = answer(events).await;
    let done = of_kind(&events, "response.output_item.done");
    let order: Vec<_> = done.iter().map(|event| event["output_index"].as_u64().unwrap()).collect();
    assert_eq!(order, [0, 1, 2]);
    let output = events.last().unwrap()["response"]["output"].as_array().unwrap();
    let items: Vec<&Value> = done.iter().map(|event| &event["item"]).collect();
    assert_eq!(output.iter().collect::<Vec<_>>(), items, "the object has the same items");
    assert_eq!(output[2]["content"][0]["text"], "Then I say more.");
}

#[tokio::test]
async fn reasoning_text_stays_text_and_parts_stay_apart() {
    let content = json!([{ "type": "reasoning_text", "text": "I think." }]);
    let summary = json!([{ "type": "summary_text", "text": "One." },
        { "type": "summary_text", "text": "Two." }]);
    let second = json!({ "type": "response.reasoning_summary_text.delta", "output_index": 1,
        "item_id": "rs_8", "summary_index": 1, "delta": "Two." });
    let other = json!({ "type": "reasoning", "id": "rs_8", "summary": summary });
    let events = vec![
        added(0, reasoning(json!({ "content": [] }))),
        delta("reasoning_text", 0, "I "),
        delta("reasoning_text", 0, "think."),
        done(0, reasoning(json!({ "content": content }))),
        added(1, json!({ "type": "reasoning", "id": "rs_8", "summary": [] })),
        delta("reasoning_summary_text", 1, "One."),
        second,
        done(1, other.clone()),
        completed(),
    ];
    let events = answer(events).await;
    let texts = of_kind(&events, "response.reasoning_text.delta");
    let said: String = texts.iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!((said.as_str(), &texts[0]["content_index"]), ("I think.", &json!(0)));
    assert_eq!(of_kind(&events, "response.reasoning_text.done")[0]["text"], "I think.");
    let summaries = of_kind(&events, "response.reasoning_summary_text.done");
    let parts: Vec<_> =
        summaries.iter().map(|event| (&event["summary_index"], &event["text"])).collect();
    assert_eq!(parts, [(&json!(0), &json!("One.")), (&json!(1), &json!("Two."))]);
    assert_eq!(of_kind(&events, "response.reasoning_summary_part.added").len(), 2);
    assert_eq!(of_kind(&events, "response.output_item.done")[1]["item"], other);
}

#[tokio::test]
async fn annotations_and_probabilities_reach_the_client_unchanged() {
    let file = json!({ "type": "file_citation", "file_id": "file_1", "index": 3,
        "filename": "a.txt" });
    let link = json!({ "type": "url_citation", "url": "https://A.Example/x", "title": "X",
        "start_index": 1, "end_index": 4 });
    let annotation = |note: &Value| {
        json!({ "type": "response.output_text.annotation.added", "output_index": 0,
            "item_id": "its_item", "content_index": 0, "annotation_index": 0, "annotation": note })
    };
    let logprobs = json!([{ "token": "Hello.", "logprob": -0.5, "top_logprobs": [] }]);
    let mut piece = delta("output_text", 0, "Hello.");
    (piece["logprobs"], piece["of_tomorrow"]) = (logprobs.clone(), json!({ "a": 1 }));
    let mut item = text_item("Hello.");
    item["content"][0]["annotations"] = json!([file, link]);
    item["content"][0]["logprobs"] = logprobs.clone();
    let events = vec![
        added(0, json!({ "type": "message", "id": "msg_9", "role": "assistant", "content": [] })),
        piece,
        annotation(&file),
        annotation(&link),
        done(0, item.clone()),
        completed(),
    ];
    let events = answer(events).await;
    let notes = of_kind(&events, "response.output_text.annotation.added");
    let notes: Vec<&Value> = notes.iter().map(|event| &event["annotation"]).collect();
    assert_eq!(notes, [&file, &link]);
    let piece = of_kind(&events, "response.output_text.delta")[0];
    assert_eq!((&piece["logprobs"], &piece["of_tomorrow"]), (&logprobs, &json!({ "a": 1 })));
    assert_eq!(of_kind(&events, "response.output_text.done")[0]["logprobs"], logprobs);
    let last = &events.last().unwrap()["response"]["output"][0];
    assert_eq!(last["content"], item["content"]);
}

#[tokio::test]
async fn unknown_events_reach_the_client() {
    let about_item = json!({ "type": "response.text_checked", "item_id": "its_item",
        "output_index": 0, "verdict": "fine" });
    let mut events = vec![
        json!({ "type": "response.created", "response": { "id": "resp_1" } }),
        json!({ "type": "response.weather", "mood": "good", "response": { "kept": true } }),
        json!({ "type": "response.nothing_else" }),
        json!({ "type": "response.bad\nevent: x", "a": 1 }),
    ];
    let [begun, text, end] = message(0, "Hello.");
    events.extend([begun, text, about_item, end, completed()]);
    let events = answer(events).await;
    let weather = of_kind(&events, "response.weather");
    assert_eq!(
        (&weather[0]["mood"], &weather[0]["response"]),
        (&json!("good"), &json!({ "kept": true }))
    );
    assert_eq!(of_kind(&events, "response.nothing_else").len(), 1);
    let checked = of_kind(&events, "response.text_checked")[0];
    let item = &of_kind(&events, "response.output_item.added")[0]["item"];
    assert_eq!((&checked["item_id"], &checked["verdict"]), (&item["id"], &json!("fine")));
    let names = kinds(&events);
    let place = |name: &str| names.iter().position(|kind| *kind == name).unwrap();
    assert!(place("response.text_checked") > place("response.output_text.delta"));
    assert!(!names.iter().any(|kind| kind.contains("bad")), "{names:?}");
}

#[tokio::test]
async fn the_object_has_each_member_once_and_the_providers_usage() {
    let mut events = message(0, "Hello.").to_vec();
    events.push(json!({ "type": "response.completed", "response": { "id": "resp_1",
        "status": "completed", "service_tier": "default", "prompt_cache_key": "k",
        "safety_identifier": "s", "max_tool_calls": 3, "prompt_cache_retention": "24h",
        "frequency_penalty": 0.0, "moderation": { "flagged": false },
        "usage": { "input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "cost": 0.25,
            "input_tokens_details": { "cached_tokens": 1, "image_tokens": 4 },
            "output_tokens_details": { "reasoning_tokens": 0, "audio_tokens": 6 } } } }));
    let provider = provider(events).await;
    let config = json!({ "model": "m", "api": "responses", "url": provider.url });
    let url = gateway(agent("openai", config)).await + "/v1/responses";
    let request = json!({ "input": "Hi", "service_tier": "auto", "prompt_cache_key": "k",
        "safety_identifier": "s", "max_tool_calls": 3, "prompt_cache_retention": "24h" });
    let answer = client().post(url).json(&request).send().await.unwrap().text().await.unwrap();
    for name in [
        "service_tier",
        "prompt_cache_key",
        "safety_identifier",
        "max_tool_calls",
        "prompt_cache_retention",
        "frequency_penalty",
        "moderation",
    ] {
        assert_eq!(answer.matches(&format!("\"{name}\":")).count(), 1, "{name}: {answer}");
    }
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["service_tier"], "default", "the provider says which tier it was");
    let usage = &answer["usage"];
    assert_eq!((&usage["total_tokens"], &usage["cost"]), (&json!(7), &json!(0.25)), "{usage}");
    let input = json!({ "cached_tokens": 1, "image_tokens": 4 });
    let output = json!({ "reasoning_tokens": 0, "audio_tokens": 6 });
    assert_eq!(
        (&usage["input_tokens_details"], &usage["output_tokens_details"]),
        (&input, &output)
    );
}

#[tokio::test]
async fn values_that_the_gateway_does_not_know_are_for_the_agent_to_judge() {
    let unknown = json!({ "top_logprobs": 2, "include": ["message.output_text.logprobs"],
        "prompt": { "id": "p" }, "truncation": "clever", "temperature": 3,
        "reasoning": { "effort": "gigantic" }, "text": { "verbosity": "huge" },
        "tool_choice": "sometimes", "input": [{ "type": "message", "role": "bard",
            "content": [{ "type": "song", "notes": "cde" }] }] });
    let own = provider(message(0, "Hello.").into_iter().chain([completed()]).collect()).await;
    stream(&own, unknown.clone()).await;
    let body = own.seen()[0].body.clone();
    for (name, value) in unknown.as_object().unwrap() {
        assert_eq!(&body[name], value, "{name}");
    }
    let other = provider(Vec::new()).await;
    let config = json!({ "model": "m", "url": other.url });
    let url = gateway(agent("anthropic", config)).await + "/v1/responses";
    let refused = client().post(url).json(&unknown).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), other.calls()), (400, 0));
}
