//! What a server of Chat Completions says reaches a client of Chat Completions, whether CAP has a
//! word for it or not: streamed and in one object, once in the journal, and once after a cut.

use serde_json::{Value, json};

use crate::common::*;

fn piece(delta: Value, more: Value) -> Value {
    let mut choice = json!({ "index": 0, "delta": delta, "finish_reason": null });
    choice.as_object_mut().unwrap().extend(keys(more));
    json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m-1",
        "system_fingerprint": "fp_1", "service_tier": "flex", "choices": [choice] })
}

fn logprobs(token: &str) -> Value {
    json!({ "logprobs": { "content": [{ "token": token, "logprob": -0.5 }], "refusal": null } })
}

const SOURCE: &str = "https://a.example/page";

/// Each member that only this server knows.
fn rich() -> Vec<Value> {
    let note = json!([{ "type": "url_citation", "url_citation": { "url": SOURCE, "title": "t",
        "start_index": 1, "end_index": 3 } }, { "type": "file_citation", "file_id": "file_7" }]);
    let mut first = piece(json!({ "role": "assistant", "content": "" }), json!({}));
    first["provider"] = json!("mark-top");
    vec![
        first,
        piece(json!({ "content": "Hel" }), logprobs("mark-hel")),
        piece(json!({ "content": "lo", "mood": "mark-mood" }), logprobs("mark-lo")),
        piece(json!({ "annotations": note }), json!({})),
        json!({ "id": "x", "choices": [], "citations": ["mark-citation"] }),
        piece(
            json!({}),
            json!({ "finish_reason": "mark_finish", "native_finish_reason": "mark-n" }),
        ),
        json!({ "id": "x", "choices": [], "usage": { "prompt_tokens": 5, "completion_tokens": 7,
            "total_tokens": 12, "cost": 0.125, "prompt_tokens_details": { "cached_tokens": 1,
            "audio_tokens": 2 }, "completion_tokens_details": { "reasoning_tokens": 4,
            "accepted_prediction_tokens": 6 } } }),
    ]
}

const MARKS: [&str; 9] = [
    "mark-top",
    "mark-hel",
    "mark-lo",
    "mark-mood",
    "mark-citation",
    "mark_finish",
    "mark-n",
    "file_7",
    "\"cost\":0.125",
];

fn script(chunks: Vec<Value>) -> Vec<Do> {
    let done = Do::Write("data: [DONE]\n\n".into());
    std::iter::once(stream_head()).chain(chunks.iter().map(chunk)).chain([done]).collect()
}

fn question(is_stream: bool) -> Value {
    json!({ "messages": [{ "role": "user", "content": "Hi" }], "stream": is_stream,
        "stream_options": { "include_usage": true } })
}

/// The answer of a gateway, and the journal of its run.
async fn told(gateway: &str, body: &Value) -> (String, String) {
    let url = format!("{gateway}/v1/chat/completions");
    let response = client().post(url).json(body).send().await.unwrap();
    let stream = response.headers()["x-stream-id"].to_str().unwrap().to_owned();
    let status = response.status();
    let text = response.text().await.unwrap();
    assert_eq!(status, 200, "{text}");
    let journal = client().get(format!("{gateway}/v1/streams/{stream}")).send().await.unwrap();
    (text, journal.text().await.unwrap())
}

async fn answer_of(chunks: Vec<Value>, body: &Value) -> (String, String) {
    let provider = Provider::start(move |_| script(chunks.clone())).await;
    told(&provider.gateway("openai", json!({ "model": "m", "url": provider.url })).await, body)
        .await
}

fn chunks_of(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| serde_json::from_str(data).ok()).collect()
}

#[tokio::test]
async fn unknown_members_reach_a_streaming_chat_once() {
    let (text, journal) = answer_of(rich(), &question(true)).await;
    for mark in MARKS {
        assert_eq!(text.matches(mark).count(), 1, "{mark}: {text}");
        // The reason of an end is also in CLOSE.
        let expected = if mark == "mark_finish" { 2 } else { 1 };
        assert_eq!(journal.matches(mark).count(), expected, "{mark}: {journal}");
    }
    let chunks = chunks_of(&text);
    let with = |mark: &str| chunks.iter().find(|chunk| chunk.to_string().contains(mark)).unwrap();
    assert_eq!(with("mark-hel")["choices"][0]["delta"]["content"], "Hel", "beside its text");
    assert_eq!(with("mark-mood")["choices"][0]["delta"]["content"], "lo");
    assert_eq!(with("mark-citation")["choices"], json!([]));
    let end = with("mark_finish");
    assert_eq!(end["choices"][0]["finish_reason"], "mark_finish");
    assert_eq!(end["choices"][0]["native_finish_reason"], "mark-n");
    assert_eq!(text.matches("url_citation").count(), 2, "the type and the member: {text}");
    assert_eq!(
        with("url_citation")["choices"][0]["delta"]["annotations"][0]["url_citation"]["end_index"],
        3
    );
    for chunk in &chunks[1..] {
        assert_eq!(
            (&chunk["system_fingerprint"], &chunk["service_tier"]),
            (&json!("fp_1"), &json!("flex")),
            "{chunk}"
        );
    }
    assert_eq!(journal.matches("fp_1").count(), 1, "{journal}");
    let usage = &chunks.last().unwrap()["usage"];
    assert_eq!(usage["prompt_tokens_details"], json!({ "cached_tokens": 1, "audio_tokens": 2 }));
}

#[tokio::test]
async fn unknown_members_are_in_a_collected_chat() {
    let (text, _) = answer_of(rich(), &question(false)).await;
    for mark in MARKS {
        assert_eq!(text.matches(mark).count(), 1, "{mark}: {text}");
    }
    let answer: Value = serde_json::from_str(&text).unwrap();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "Hello");
    assert_eq!(
        (&answer["system_fingerprint"], &answer["service_tier"]),
        (&json!("fp_1"), &json!("flex"))
    );
    assert_eq!(
        (&choice["finish_reason"], &choice["native_finish_reason"]),
        (&json!("mark_finish"), &json!("mark-n"))
    );
    let tokens = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!((tokens.len(), &tokens[1]["token"]), (2, &json!("mark-lo")));
    assert_eq!(choice["message"]["annotations"].as_array().unwrap().len(), 2, "{text}");
    assert_eq!(
        answer["usage"]["completion_tokens_details"],
        json!({ "reasoning_tokens": 4, "accepted_prediction_tokens": 6 })
    );
    assert_eq!(answer["citations"], json!(["mark-citation"]));
}

#[tokio::test]
async fn after_a_cut_no_member_is_sent_twice() {
    let cut = |nth: usize| {
        let mut acts = script(rich());
        acts.truncate(if nth == 0 { 5 } else { acts.len() });
        acts
    };
    let provider = Provider::start(cut).await;
    let config = json!({ "model": "m", "url": provider.url, "attempts": 2 });
    let gateway = provider.gateway("openai", config).await;
    let (text, journal) = told(&gateway, &question(true)).await;
    assert_eq!(provider.calls(), 2, "{journal}");
    for mark in MARKS {
        assert_eq!(text.matches(mark).count(), 1, "{mark}: {text}");
    }
    assert_eq!(text.matches("url_citation").count(), 2, "{text}");
}

#[tokio::test]
async fn sources_of_any_agent_are_annotations_of_a_chat() {
    let event = |value: Value| chunk(&value);
    let acts = move |_| {
        vec![
            stream_head(),
            event(json!({ "type": "content_block_start", "index": 0,
                "content_block": { "type": "text", "text": "" } })),
            event(json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "text_delta", "text": "Hello" } })),
            event(json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "citations_delta", "citation": {
                    "type": "web_search_result_location", "url": SOURCE, "title": "t",
                    "cited_text": "x" } } })),
            event(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } })),
        ]
    };
    let provider = Provider::start(acts).await;
    let gateway = provider.gateway("anthropic", json!({ "model": "m", "url": provider.url })).await;
    let (text, _) = told(&gateway, &question(false)).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    let note = &answer["choices"][0]["message"]["annotations"][0]["url_citation"];
    assert_eq!((&note["url"], &note["start_index"]), (&json!(SOURCE), &json!(5)), "{text}");
    let (text, _) = told(&gateway, &question(true)).await;
    assert!(text.contains(SOURCE), "{text}");
}

/// Pieces of a call that has a signature, in the ways that servers have.
fn signed() -> Vec<(&'static str, Vec<Value>, &'static str)> {
    let function = || json!({ "name": "f", "arguments": "{}" });
    let sig = || json!({ "google": { "thought_signature": "sig" } });
    let google = "/extra_content/google/thought_signature";
    vec![
        (
            "in a later piece without an id",
            vec![
                json!({ "index": 0, "id": "g1", "type": "function",
                "function": { "name": "f", "arguments": "{" } }),
                json!({ "index": 0, "function": { "arguments": "}" }, "extra_content": sig() }),
            ],
            google,
        ),
        (
            "in a piece of its own",
            vec![
                json!({ "index": 0, "id": "g1", "type": "function", "function": function() }),
                json!({ "index": 0, "extra_content": sig() }),
            ],
            google,
        ),
        (
            "an empty id",
            vec![json!({ "index": 0, "id": "", "type": "function", "function": function(),
                "extra_content": sig() })],
            google,
        ),
        (
            "no id",
            vec![json!({ "index": 0, "type": "function", "function": function(),
                "extra_content": sig() })],
            google,
        ),
        (
            "a member of the call",
            vec![json!({ "index": 0, "id": "g1", "type": "function", "thought_signature": "sig",
                "function": function() })],
            "/thought_signature",
        ),
        (
            "a member of the function",
            vec![json!({ "index": 0, "id": "g1", "type": "function",
                "function": { "name": "f", "arguments": "{}", "thought_signature": "sig" } })],
            "/function/thought_signature",
        ),
    ]
}

fn calling(pieces: &[Value]) -> Vec<Value> {
    let pieces = pieces.iter().map(|call| piece(json!({ "tool_calls": [call] }), json!({})));
    pieces.chain([piece(json!({}), json!({ "finish_reason": "tool_calls" }))]).collect()
}

#[tokio::test]
async fn signatures_on_calls_reach_the_client_however_they_come() {
    let tool = json!({ "type": "function", "function": { "name": "f" } });
    for (label, pieces, at) in signed() {
        let mut body = question(false);
        body["tools"] = json!([tool]);
        let (text, _) = answer_of(calling(&pieces), &body).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        let calls = &answer["choices"][0]["message"]["tool_calls"];
        assert_eq!(calls[0].pointer(at), Some(&json!("sig")), "{label}: {text}");
        body["stream"] = true.into();
        let (text, journal) = answer_of(calling(&pieces), &body).await;
        assert_eq!(text.matches("\"sig\"").count(), 1, "{label}: {text}");
        assert_eq!(journal.matches("\"sig\"").count(), 1, "{label}: {journal}");
        // A tool that was not offered.
        body["tools"] = json!([]);
        let (text, _) = answer_of(calling(&pieces), &body).await;
        assert_eq!(text.matches("\"sig\"").count(), 1, "{label}: {text}");
    }
}

#[tokio::test]
async fn signatures_on_calls_come_back_to_the_server_in_a_session() {
    for (label, pieces, at) in signed() {
        let script = move |nth| script(if nth == 0 { calling(&pieces) } else { rich() });
        let provider = Provider::start(script).await;
        let config = json!({ "model": "m", "url": provider.url });
        let url = provider.gateway("openai", config).await + "/v1/responses";
        let post = async |body: &Value| {
            let response = client().post(&url).json(body).send().await.unwrap();
            response.json::<Value>().await.unwrap()
        };
        let first = post(&json!({ "input": "Hi" })).await;
        let id = &first["output"].as_array().unwrap().last().unwrap()["call_id"];
        let output = json!({ "type": "function_call_output", "call_id": id, "output": "42" });
        post(&json!({ "previous_response_id": first["id"], "input": [output] })).await;
        let body = provider.seen()[1].body.clone();
        let said = body["messages"].as_array().unwrap();
        let said = said.iter().find(|message| message["role"] == "assistant").unwrap();
        assert_eq!(said["tool_calls"][0].pointer(at), Some(&json!("sig")), "{label}: {body}");
        assert_eq!(said["tool_calls"][0]["function"]["name"], "f", "{label}: {body}");
    }
}

#[tokio::test]
async fn calls_of_custom_tools_and_of_functions_keep_their_form() {
    let custom = [
        json!({ "index": 0, "id": "c1", "type": "custom",
            "custom": { "name": "patch", "input": "*** Be" } }),
        json!({ "index": 0, "custom": { "input": "gin\n\"x\"" } }),
    ];
    let mut body = question(false);
    body["tools"] = json!([{ "type": "custom", "custom": { "name": "patch" } }]);
    let (text, _) = answer_of(calling(&custom), &body).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    let call = &answer["choices"][0]["message"]["tool_calls"][0];
    let expected = json!({ "name": "patch", "input": "*** Begin\n\"x\"" });
    assert_eq!((&call["type"], &call["custom"]), (&json!("custom"), &expected), "{text}");
    body["stream"] = true.into();
    let (text, _) = answer_of(calling(&custom), &body).await;
    let chunks = chunks_of(&text);
    let pieces = chunks
        .iter()
        .filter_map(|chunk| chunk.pointer("/choices/0/delta/tool_calls/0/custom/input")?.as_str());
    assert_eq!(pieces.collect::<String>(), "*** Begin\n\"x\"", "{text}");

    let legacy = vec![
        piece(json!({ "function_call": { "name": "old", "arguments": "{" } }), json!({})),
        piece(json!({ "function_call": { "arguments": "}" } }), json!({})),
        piece(json!({}), json!({ "finish_reason": "function_call" })),
    ];
    let mut body = question(false);
    body["functions"] = json!([{ "name": "old", "parameters": {} }]);
    let (text, _) = answer_of(legacy.clone(), &body).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    let choice = &answer["choices"][0];
    let expected = json!({ "name": "old", "arguments": "{}" });
    assert_eq!(
        (&choice["message"]["function_call"], &choice["finish_reason"]),
        (&expected, &json!("function_call")),
        "{text}"
    );
    assert_eq!(choice["message"]["tool_calls"], Value::Null);
    body["stream"] = true.into();
    let (text, _) = answer_of(legacy, &body).await;
    let chunks = chunks_of(&text);
    let pieces = chunks
        .iter()
        .filter_map(|chunk| chunk.pointer("/choices/0/delta/function_call/arguments")?.as_str());
    assert_eq!(pieces.collect::<String>(), "{}", "{text}");
    assert!(!text.contains("tool_calls"), "{text}");
}

#[tokio::test]
async fn other_clients_are_warned_once_of_members_of_the_message() {
    let provider = Provider::start(move |_| script(rich())).await;
    let config = json!({ "model": "m", "url": provider.url });
    let gateway = provider.gateway("openai", config).await;
    let seen = ask(&gateway, "Hi").await;
    let left_out: Vec<String> = seen.errors.iter().map(|error| error.message.clone()).collect();
    assert_eq!(left_out.len(), 1, "{left_out:?}");
    assert!(left_out[0].contains("mood"), "{left_out:?}");
    assert!(!seen.raw.contains("mark-hel"), "{}", seen.raw);
}

#[tokio::test]
async fn cached_input_is_counted_once_in_every_protocol() {
    let chat = vec![
        json!({ "choices": [{ "index": 0, "delta": { "content": "a" },
            "finish_reason": "stop" }] }),
        json!({ "choices": [], "usage": { "prompt_tokens": 105, "completion_tokens": 7,
            "total_tokens": 112, "prompt_tokens_details": { "cached_tokens": 100 } } }),
    ];
    let messages = vec![
        json!({ "type": "message_start", "message": { "model": "c", "usage": {
            "input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 100,
            "cache_creation_input_tokens": 0 } } }),
        json!({ "type": "content_block_delta", "index": 0,
            "delta": { "type": "text_delta", "text": "a" } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" },
            "usage": { "output_tokens": 7 } }),
    ];
    for (kind, chunks) in [("openai", chat), ("anthropic", messages)] {
        let provider = Provider::start(move |_| script(chunks.clone())).await;
        let config = json!({ "model": "m", "url": provider.url });
        let gateway = provider.gateway(kind, config).await;
        let (text, _) = told(&gateway, &question(false)).await;
        let usage = serde_json::from_str::<Value>(&text).unwrap()["usage"].clone();
        assert_eq!(
            (&usage["prompt_tokens"], &usage["total_tokens"]),
            (&json!(105), &json!(112)),
            "{kind}: {usage}"
        );
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 100, "{kind}: {usage}");
        let body = json!({ "max_tokens": 9, "messages": [{ "role": "user", "content": "Hi" }] });
        let post = client().post(format!("{gateway}/v1/messages")).json(&body);
        let answer: Value = post.send().await.unwrap().json().await.unwrap();
        let usage = &answer["usage"];
        assert_eq!(
            (&usage["input_tokens"], &usage["cache_read_input_tokens"]),
            (&json!(5), &json!(100)),
            "{kind}: {usage}"
        );
    }
}

#[tokio::test]
async fn parts_of_a_summary_are_paragraphs() {
    let delta = |part: u64, text: &str| {
        vec![
            json!({ "type": "response.reasoning_summary_part.added", "output_index": 0,
                "item_id": "rs", "summary_index": part }),
            json!({ "type": "response.reasoning_summary_text.delta", "output_index": 0,
                "item_id": "rs", "summary_index": part, "delta": text }),
        ]
    };
    let mut events = [delta(0, "sum one"), delta(1, "sum two")].concat();
    events.push(json!({ "type": "response.output_text.delta", "output_index": 1, "delta": "a" }));
    events.push(json!({ "type": "response.completed", "response": { "status": "completed" } }));
    let provider = Provider::start(move |_| script(events.clone())).await;
    let config = json!({ "model": "m", "url": provider.url, "api": "responses" });
    let gateway = provider.gateway("openai", config).await;
    let (text, _) = told(&gateway, &question(false)).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["choices"][0]["message"]["reasoning_content"], "sum one\n\nsum two");
}
