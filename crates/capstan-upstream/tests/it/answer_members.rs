//! Members of an answer that the gateway does not know, at every level of each protocol: a client
//! of the same protocol gets each of them once, whatever breaks, and no text is stored twice.

use serde_json::{Value, json};

use crate::common::*;

/// Each mark of an answer, `mark-1` and so on.
fn marks(events: &[Value]) -> Vec<String> {
    let text = json!(events).to_string();
    let parts = text.split("mark-").skip(1);
    let number = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    let mut marks: Vec<String> = parts.map(|part| format!("mark-{}\"", number(part))).collect();
    let count = marks.len();
    marks.sort();
    marks.dedup();
    assert_eq!(marks.len(), count, "each mark stands once");
    marks
}

fn script(events: &[Value]) -> Vec<Do> {
    std::iter::once(stream_head()).chain(events.iter().map(chunk)).collect()
}

fn events_of(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let all = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    all.filter(|event| *event != json!({ "type": "ping" })).collect()
}

/// The answer of a gateway, and the journal of its run.
async fn told(gateway: &str, path: &str, body: &Value) -> (String, String) {
    let response = client().post(format!("{gateway}{path}")).json(body).send().await.unwrap();
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    let journal = client().get(format!("{gateway}/v1/streams/{stream}")).send().await.unwrap();
    (text, journal.text().await.unwrap())
}

fn has_each_once(text: &str, marks: &[String], case: &str) {
    for mark in marks {
        assert_eq!(text.matches(mark.as_str()).count(), 1, "{case}: {mark} in {text}");
    }
}

/// An answer of Messages with a mark at every place.
fn messages() -> Vec<Value> {
    let block = |index: u64, block: Value, mark: &str| {
        let kind = "content_block_start";
        json!({ "type": kind, "index": index, "content_block": block, "x": mark })
    };
    let delta = |index: u64, delta: Value, mark: &str| {
        let kind = "content_block_delta";
        json!({ "type": kind, "index": index, "delta": delta, "x": mark })
    };
    let stop =
        |index: u64, mark: &str| json!({ "type": "content_block_stop", "index": index, "x": mark });
    vec![
        json!({ "type": "message_start", "x": "mark-1", "message": { "id": "msg_1",
            "type": "message", "role": "assistant", "model": "m", "content": [], "x": "mark-2",
            "usage": { "input_tokens": 3, "output_tokens": 1, "x": "mark-3" } } }),
        json!({ "type": "ping", "x": "mark-4" }),
        block(
            0,
            json!({ "type": "thinking", "thinking": "", "signature": "", "x": "mark-5" }),
            "mark-6",
        ),
        delta(0, json!({ "type": "thinking_delta", "thinking": "Hmm. ", "x": "mark-7" }), "mark-8"),
        delta(0, json!({ "type": "thinking_delta", "thinking": "Yes.", "x": "mark-9" }), "mark-10"),
        delta(
            0,
            json!({ "type": "signature_delta", "signature": "c2ln", "x": "mark-11" }),
            "mark-12",
        ),
        stop(0, "mark-13"),
        block(1, json!({ "type": "redacted_thinking", "data": "ZA==", "x": "mark-14" }), "mark-15"),
        stop(1, "mark-16"),
        block(2, json!({ "type": "text", "text": "", "x": "mark-17" }), "mark-18"),
        delta(2, json!({ "type": "text_delta", "text": "Once upon", "x": "mark-19" }), "mark-20"),
        delta(2, json!({ "type": "text_delta", "text": " a time", "x": ["mark-21"] }), "mark-22"),
        delta(
            2,
            json!({ "type": "citations_delta", "x": "mark-23", "citation": {
            "type": "page_location", "cited_text": "c", "x": "mark-24" } }),
            "mark-25",
        ),
        stop(2, "mark-26"),
        block(
            3,
            json!({ "type": "tool_use", "id": "t1", "name": "f", "input": {},
            "x": "mark-27" }),
            "mark-28",
        ),
        delta(
            3,
            json!({ "type": "input_json_delta", "partial_json": "{\"a\"", "x": "mark-29" }),
            "mark-30",
        ),
        delta(
            3,
            json!({ "type": "input_json_delta", "partial_json": ":1}", "x": "mark-31" }),
            "mark-32",
        ),
        stop(3, "mark-33"),
        block(4, json!({ "type": "block_of_tomorrow", "x": "mark-34" }), "mark-35"),
        delta(4, json!({ "type": "delta_of_tomorrow", "x": "mark-36" }), "mark-37"),
        stop(4, "mark-38"),
        json!({ "type": "event_of_tomorrow", "x": "mark-39" }),
        json!({ "type": "message_delta", "delta": { "stop_reason": null, "x": "mark-40" },
            "usage": { "output_tokens": 5, "x": "mark-41" }, "x": "mark-42" }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use",
            "stop_sequence": null, "x": "mark-43" },
            "usage": { "output_tokens": 9, "x": "mark-44" }, "x": "mark-45" }),
        json!({ "type": "message_stop", "x": "mark-46" }),
    ]
}

fn ask_messages(is_stream: bool) -> Value {
    json!({ "max_tokens": 99, "messages": [{ "role": "user", "content": "Hi" }],
        "stream": is_stream, "tools": [{ "name": "f", "input_schema": { "type": "object" } }] })
}

#[tokio::test]
async fn a_message_has_each_member_of_its_provider_where_it_was() {
    let events = messages();
    let sent = events.clone();
    let provider = Provider::start(move |_| script(&sent)).await;
    let config = json!({ "model": "m", "url": provider.url });
    let gateway = provider.gateway("anthropic", config).await;
    let (text, journal) = told(&gateway, "/v1/messages", &ask_messages(true)).await;
    let seen = events_of(&text);
    for (event, seen) in events.iter().zip(&seen) {
        assert_eq!(seen, event, "{text}");
    }
    assert_eq!(seen.len(), events.len(), "{text}");
    // A member of a thinking block stands at its beginning, and in the part for the next turn.
    let once: Vec<String> = marks(&events).into_iter().filter(|m| m != "mark-5\"").collect();
    has_each_once(&journal, &once, "journal");
    for text in ["Hmm. ", "Once upon", " a time", "c2ln"] {
        assert_eq!(journal.matches(text).count(), 1, "{text}: {journal}");
    }
}

#[tokio::test]
async fn a_collected_message_has_the_members_of_its_blocks() {
    let provider = Provider::start(move |_| script(&messages())).await;
    let config = json!({ "model": "m", "url": provider.url });
    let gateway = provider.gateway("anthropic", config).await;
    let (text, _) = told(&gateway, "/v1/messages", &ask_messages(false)).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    let content = &answer["content"];
    assert_eq!(
        (&content[0]["thinking"], &content[0]["signature"]),
        (&json!("Hmm. Yes."), &json!("c2ln"))
    );
    assert_eq!(
        (&content[2]["text"], &content[3]["input"]),
        (&json!("Once upon a time"), &json!({ "a": 1 }))
    );
    assert_eq!(content[4]["type"], "block_of_tomorrow");
    for mark in ["mark-5", "mark-14\"", "mark-24\"", "mark-27", "mark-44\"", "mark-45\""] {
        assert_eq!(text.matches(mark).count(), 1, "{mark}: {text}");
    }
}

#[tokio::test]
async fn a_cut_anywhere_in_a_message_repeats_no_member() {
    let events = messages();
    // Behind the head of the answer, and before its end.
    for cut in 2..events.len() - 3 {
        let sent = events.clone();
        let script = move |nth| script(if nth == 0 { &sent[..cut] } else { &sent });
        let provider = Provider::start(script).await;
        let config = json!({ "model": "m", "url": provider.url, "attempts": 2 });
        let gateway = provider.gateway("anthropic", config).await;
        let (text, journal) = told(&gateway, "/v1/messages", &ask_messages(true)).await;
        assert_eq!(provider.calls(), 2, "{cut}: {journal}");
        has_each_once(&text, &marks(&events), &format!("cut after {cut}"));
        let pieces = |name: &str| -> String {
            let deltas = events_of(&text).into_iter();
            deltas.filter_map(|event| Some(event["delta"][name].as_str()?.to_owned())).collect()
        };
        let said = (pieces("thinking"), pieces("text"), pieces("partial_json"));
        let expected = ("Hmm. Yes.", "Once upon a time", "{\"a\":1}");
        assert_eq!((&*said.0, &*said.1, &*said.2), expected, "{cut}: {text}");
    }
}

#[tokio::test]
async fn a_text_in_the_beginning_of_its_block_is_sent_once() {
    let events = [
        json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message",
            "role": "assistant", "model": "m", "content": [], "usage": {} } }),
        json!({ "type": "content_block_start", "index": 0,
            "content_block": { "type": "text", "text": "Hello.", "citations": [] } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": {} }),
        json!({ "type": "message_stop" }),
    ];
    let provider = Provider::start(move |_| script(&events)).await;
    let config = json!({ "model": "m", "url": provider.url });
    let gateway = provider.gateway("anthropic", config).await;
    for is_stream in [true, false] {
        let (text, _) = told(&gateway, "/v1/messages", &ask_messages(is_stream)).await;
        assert_eq!(text.matches("Hello.").count(), 1, "{text}");
    }
}

#[tokio::test]
async fn a_block_without_an_end_of_its_own_is_complete_with_the_message() {
    let all = messages();
    let ends_block = |event: &&Value| event["type"] != "content_block_stop";
    let events: Vec<Value> = all.iter().filter(ends_block).cloned().collect();
    let provider = Provider::start(move |_| script(&events)).await;
    let config = json!({ "model": "m", "url": provider.url });
    let gateway = provider.gateway("anthropic", config).await;
    let (text, _) = told(&gateway, "/v1/messages", &ask_messages(true)).await;
    assert_eq!(text.matches("ZA==").count(), 1, "{text}");
    assert!(text.contains("message_stop"), "{text}");
}

/// An answer of Chat Completions with a mark at every place.
fn chat() -> Vec<Value> {
    let chunk = |delta: Value, mark: u32| {
        json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "x": format!("mark-{mark}"), "choices": [{ "index": 0, "delta": delta,
            "finish_reason": null, "x": format!("mark-{}", mark + 1),
            "logprobs": { "content": [{ "token": "t", "x": format!("mark-{}", mark + 2) }] } }] })
    };
    let call = json!([{ "index": 0, "id": "c1", "type": "function", "x": "mark-31",
        "function": { "name": "f", "arguments": "{}", "x": "mark-32" } }]);
    let mut end = chunk(json!({}), 40);
    end["choices"][0]["finish_reason"] = json!("tool_calls");
    vec![
        chunk(json!({ "reasoning_content": "Hmm.", "x": "mark-1" }), 2),
        chunk(json!({ "content": "Once upon", "x": "mark-10" }), 11),
        chunk(json!({ "content": " a time", "x": ["mark-20"] }), 21),
        chunk(json!({ "tool_calls": call }), 33),
        end,
        json!({ "id": "x", "choices": [], "usage": { "prompt_tokens": 1, "completion_tokens": 2,
            "total_tokens": 3, "x": "mark-50", "prompt_tokens_details": { "x": "mark-51" },
            "details_of_tomorrow": { "x": "mark-52" } } }),
    ]
}

#[tokio::test]
async fn a_chat_has_each_member_of_its_provider_once() {
    for is_cut in [false, true] {
        let sent = |nth| {
            let mut events = chat();
            events.truncate(if nth == 0 { 3 } else { events.len() });
            script(&events)
        };
        let provider = match is_cut {
            true => Provider::start(sent).await,
            false => Provider::start(move |_| script(&chat())).await,
        };
        let config = json!({ "model": "m", "url": provider.url, "attempts": 2 });
        let gateway = provider.gateway("openai", config).await;
        let body = json!({ "messages": [{ "role": "user", "content": "Hi" }], "stream": true,
            "stream_options": { "include_usage": true },
            "tools": [{ "type": "function", "function": { "name": "f" } }] });
        let (text, journal) = told(&gateway, "/v1/chat/completions", &body).await;
        let case = format!("cut: {is_cut}");
        has_each_once(&text, &marks(&chat()), &case);
        has_each_once(&journal, &marks(&chat()), &case);
        assert_eq!(journal.matches("Once upon").count(), 1, "{journal}");
    }
}

/// An answer of Responses with a mark at every place.
fn responses() -> Vec<Value> {
    let event = |kind: &str, mark: u32, more: Value| {
        let mut event = json!({ "type": format!("response.{kind}"), "x": format!("mark-{mark}") });
        event.as_object_mut().unwrap().extend(keys(more));
        event
    };
    let of_item = |kind: &str, mark: u32, index: u64, item: Value| {
        event(kind, mark, json!({ "output_index": index, "item": item }))
    };
    let summary = |text: &str, mark: &str| {
        json!({ "type": "summary_text", "text": text,
        "x": mark })
    };
    let text = |text: &str, mark: &str| {
        json!({ "type": "output_text", "text": text,
        "annotations": [], "x": mark })
    };
    let (rs, msg, fc) = (("rs_1", 0), ("msg_1", 1), ("fc_1", 2));
    let at = |(id, index): (&str, u64), more: Value| {
        let mut place = json!({ "item_id": id, "output_index": index });
        place.as_object_mut().unwrap().extend(keys(more));
        place
    };
    let note = json!({ "type": "url_citation", "url": "https://a.example/p", "title": "t",
        "start_index": 0, "end_index": 1, "x": "mark-31" });
    vec![
        // The gateway sends its own before the provider answers.
        json!({ "type": "response.created", "response": { "id": "resp_1", "output": [] } }),
        of_item(
            "output_item.added",
            5,
            0,
            json!({ "type": "reasoning", "id": "rs_1",
            "summary": [], "x": "mark-6" }),
        ),
        event(
            "reasoning_summary_part.added",
            7,
            at(
                rs,
                json!({ "summary_index": 0,
            "part": summary("", "mark-8") }),
            ),
        ),
        event(
            "reasoning_summary_text.delta",
            9,
            at(
                rs,
                json!({ "summary_index": 0,
            "delta": "Hmm." }),
            ),
        ),
        event(
            "reasoning_summary_text.done",
            10,
            at(
                rs,
                json!({ "summary_index": 0,
            "text": "Hmm." }),
            ),
        ),
        event(
            "reasoning_summary_part.done",
            11,
            at(
                rs,
                json!({ "summary_index": 0,
            "part": summary("Hmm.", "mark-12") }),
            ),
        ),
        of_item(
            "output_item.done",
            13,
            0,
            json!({ "type": "reasoning", "id": "rs_1",
            "encrypted_content": "e", "summary": [{ "type": "summary_text", "text": "Hmm.",
            "x": "mark-14" }], "x": "mark-15" }),
        ),
        of_item(
            "output_item.added",
            20,
            1,
            json!({ "type": "message", "id": "msg_1",
            "role": "assistant", "status": "in_progress", "content": [], "x": "mark-21" }),
        ),
        event(
            "content_part.added",
            22,
            at(
                msg,
                json!({ "content_index": 0,
            "part": text("", "mark-23") }),
            ),
        ),
        event(
            "output_text.delta",
            24,
            at(
                msg,
                json!({ "content_index": 0,
            "delta": "Once upon", "logprobs": [{ "token": "t", "x": "mark-25" }] }),
            ),
        ),
        event(
            "output_text.delta",
            26,
            at(
                msg,
                json!({ "content_index": 0,
            "delta": " a time" }),
            ),
        ),
        event(
            "output_text.annotation.added",
            30,
            at(
                msg,
                json!({ "content_index": 0,
            "annotation_index": 0, "annotation": note }),
            ),
        ),
        event(
            "output_text.done",
            32,
            at(
                msg,
                json!({ "content_index": 0,
            "text": "Once upon a time" }),
            ),
        ),
        event(
            "content_part.done",
            33,
            at(
                msg,
                json!({ "content_index": 0,
            "part": { "type": "output_text", "text": "Once upon a time" } }),
            ),
        ),
        of_item(
            "output_item.done",
            35,
            1,
            json!({ "type": "message", "id": "msg_1",
            "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": "Once upon a time", "annotations": [],
                "x": "mark-36" }], "x": "mark-37" }),
        ),
        of_item(
            "output_item.added",
            40,
            2,
            json!({ "type": "function_call", "id": "fc_1",
            "call_id": "c1", "name": "f", "arguments": "", "x": "mark-41" }),
        ),
        event("function_call_arguments.delta", 42, at(fc, json!({ "delta": "{}" }))),
        event("function_call_arguments.done", 43, at(fc, json!({ "arguments": "{}" }))),
        of_item(
            "output_item.done",
            44,
            2,
            json!({ "type": "function_call", "id": "fc_1",
            "call_id": "c1", "name": "f", "arguments": "{}", "x": "mark-45" }),
        ),
        event("event_of_tomorrow", 46, json!({})),
        event(
            "completed",
            50,
            json!({ "response": { "id": "resp_1", "status": "completed",
            "output": [], "x": "mark-51", "usage": { "input_tokens": 1, "output_tokens": 2,
            "x": "mark-52", "input_tokens_details": { "x": "mark-53" } } } }),
        ),
    ]
}

/// A response repeats its members. So each mark of an event stands at least once, and each piece
/// of the answer only once in the journal.
#[tokio::test]
async fn a_response_has_each_member_of_its_provider() {
    for is_cut in [false, true] {
        let sent = |nth| {
            let mut events = responses();
            events.truncate(if nth == 0 { 11 } else { events.len() });
            script(&events)
        };
        let provider = match is_cut {
            true => Provider::start(sent).await,
            false => Provider::start(move |_| script(&responses())).await,
        };
        let config = json!({ "model": "m", "api": "responses", "url": provider.url,
            "attempts": 2 });
        let gateway = provider.gateway("openai", config).await;
        let body = json!({ "input": "Hi", "stream": true,
            "tools": [{ "type": "function", "name": "f", "parameters": {} }] });
        let (text, journal) = told(&gateway, "/v1/responses", &body).await;
        let lost: Vec<String> =
            marks(&responses()).into_iter().filter(|mark| !text.contains(mark.as_str())).collect();
        assert_eq!(lost, Vec::<String>::new(), "cut: {is_cut}: {text}");
        let deltas = events_of(&text);
        let said = deltas.iter().filter(|event| event["type"] == "response.output_text.delta");
        let said: String = said.map(|event| event["delta"].as_str().unwrap()).collect();
        assert_eq!(said, "Once upon a time", "{text}");
        assert_eq!(journal.matches("Once upon").count(), 1, "{journal}");
    }
}
