//! Reasoning that a client carries itself comes back to the model that made it, whatever protocol
//! the client speaks, and reaches nobody else.

use capstan_agent::Clock;
use serde_json::{Value, json};

use crate::common::*;
use crate::routes;

/// What must not reach another provider, nor another model.
const SECRETS: [&str; 5] = ["SIGNED", "REDACTED", "ENCRYPTED", "GOOGLE", "Hmm."];
const KINDS: [Kind; 3] = [Kind::Messages, Kind::Responses, Kind::Chat];

/// The protocols of clients, and of providers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Messages,
    Responses,
    Chat,
}

impl Kind {
    /// What a model answers first: it thinks, and calls a tool.
    fn thinks(self) -> Vec<Value> {
        match self {
            Self::Messages => blocks(&messages_content()),
            Self::Responses => items(&responses_output()),
            Self::Chat => chat_chunks(),
        }
    }

    /// What it answers then.
    fn done(self) -> Vec<Value> {
        match self {
            Self::Messages => blocks(&[json!({ "type": "text", "text": "Done." })]),
            Self::Responses => items(&[json!({ "type": "message", "id": "m", "role": "assistant",
                "content": [{ "type": "output_text", "text": "Done." }] })]),
            Self::Chat => vec![json!({ "choices": [{ "index": 0, "delta": { "content": "Done." },
                "finish_reason": "stop" }], "usage": {} })],
        }
    }

    fn agent(
        self,
        name: &'static str,
        url: &str,
        model: &str,
    ) -> (&'static str, &'static str, Value) {
        let config = json!({ "model": model, "url": url });
        match self {
            Self::Messages => (name, "anthropic", config),
            Self::Chat => (name, "openai", config),
            Self::Responses => {
                (name, "openai", json!({ "model": model, "url": url, "api": "responses" }))
            }
        }
    }

    /// The answer of the first turn, as the provider wants it back.
    fn wanted(self) -> Vec<Value> {
        match self {
            Self::Messages => messages_content(),
            Self::Responses => responses_output(),
            Self::Chat => vec![chat_message()],
        }
    }

    /// The answer of the first turn in the second request to the provider.
    fn returned(self, body: &Value) -> Vec<Value> {
        let is_said = |item: &&Value| {
            item["role"] == "assistant" || item["type"] == "reasoning" || !item["name"].is_null()
        };
        let list = |list: &Value| list.as_array().cloned().unwrap_or_default();
        let said = |member: &Value| list(member).iter().filter(is_said).cloned().collect();
        match self {
            Self::Messages => list(&body["messages"][1]["content"]),
            Self::Responses => said(&body["input"]),
            Self::Chat => said(&body["messages"]),
        }
    }
}

fn messages_content() -> Vec<Value> {
    vec![
        json!({ "type": "thinking", "thinking": "Hmm. First\n\nthis.", "signature": "SIGNED1" }),
        json!({ "type": "redacted_thinking", "data": "REDACTED" }),
        json!({ "type": "text", "text": "Let me look." }),
        json!({ "type": "thinking", "thinking": "", "signature": "SIGNED2" }),
        json!({ "type": "tool_use", "id": "c1", "name": "f", "input": { "a": 1 } }),
    ]
}

fn blocks(content: &[Value]) -> Vec<Value> {
    let mut events = vec![json!({ "type": "message_start", "message": { "id": "msg_1",
        "type": "message", "role": "assistant", "usage": {} } })];
    for (index, block) in content.iter().enumerate() {
        let (mut start, mut deltas) = (block.clone(), Vec::new());
        for (name, kind) in [
            ("thinking", "thinking_delta"),
            ("signature", "signature_delta"),
            ("text", "text_delta"),
        ] {
            if let Some(text) = start.get_mut(name).map(Value::take).filter(Value::is_string) {
                start[name] = json!("");
                deltas.push(json!({ "type": kind, name: text }));
            }
        }
        if let Some(input) = start.get_mut("input").map(Value::take) {
            start["input"] = json!({});
            deltas.push(json!({ "type": "input_json_delta", "partial_json": input.to_string() }));
        }
        events.push(json!({ "type": "content_block_start", "index": index,
            "content_block": start }));
        events.extend(
            deltas.into_iter().map(
                |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta }),
            ),
        );
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let has_call = content.iter().any(|block| block["type"] == "tool_use");
    let reason = if has_call { "tool_use" } else { "end_turn" };
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason },
        "usage": {} }));
    events
}

fn responses_output() -> Vec<Value> {
    vec![
        json!({ "type": "reasoning", "id": "rs_9", "encrypted_content": "ENCRYPTED",
            "summary": [{ "type": "summary_text", "text": "Hmm." }] }),
        json!({ "type": "function_call", "call_id": "c1", "name": "f",
            "arguments": "{\"a\":1}" }),
    ]
}

fn items(output: &[Value]) -> Vec<Value> {
    let mut events = vec![json!({ "type": "response.created", "response": { "id": "resp_9" } })];
    for (index, item) in output.iter().enumerate() {
        events.push(json!({ "type": "response.output_item.done", "output_index": index,
            "item": item }));
    }
    events.push(json!({ "type": "response.completed", "response": { "status": "completed" } }));
    events
}

fn chat_message() -> Value {
    json!({ "role": "assistant", "content": null, "reasoning_content": "Hmm.",
        "reasoning_details": [{ "type": "reasoning.encrypted", "data": "ENCRYPTED" }],
        "tool_calls": [{ "id": "c1", "type": "function",
            "function": { "name": "f", "arguments": "{\"a\":1}" },
            "extra_content": { "google": { "thought_signature": "GOOGLE" } } }] })
}

fn chat_chunks() -> Vec<Value> {
    let mut delta = chat_message();
    delta["tool_calls"][0]["index"] = json!(0);
    vec![
        json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }),
        json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }],
            "usage": {} }),
    ]
}

/// A provider that calls a tool unless it gets the tool's result.
async fn provider(kind: Kind) -> Provider {
    let script = move |_: usize, seen: &Seen| {
        let is_second = seen.body.to_string().contains("RESULT");
        let said = if is_second { kind.done() } else { kind.thinks() };
        std::iter::once(stream_head()).chain(said.iter().map(chunk)).collect()
    };
    Provider::judging(script).await
}

/// A client that stores the conversation itself.
struct Client<'a> {
    url: &'a str,
    speaks: Kind,
    streams: bool,
}

impl Client<'_> {
    fn path(&self) -> &'static str {
        match self.speaks {
            Kind::Messages => "/v1/messages",
            Kind::Responses => "/v1/responses",
            Kind::Chat => "/v1/chat/completions",
        }
    }

    fn request(&self, model: &str, history: &[Value]) -> Value {
        let schema = json!({ "type": "object" });
        let stream = self.streams;
        match self.speaks {
            Kind::Messages => json!({ "model": model, "max_tokens": 9, "messages": history,
                "stream": stream, "tools": [{ "name": "f", "input_schema": schema }] }),
            Kind::Responses => json!({ "model": model, "input": history, "stream": stream,
                "store": false, "include": ["reasoning.encrypted_content"],
                "tools": [{ "type": "function", "name": "f", "parameters": schema }] }),
            Kind::Chat => json!({ "model": model, "messages": history, "stream": stream,
                "tools": [{ "type": "function",
                    "function": { "name": "f", "parameters": schema } }] }),
        }
    }

    async fn post(&self, model: &str, history: &[Value]) -> String {
        let request = self.request(model, history);
        let post = client().post(format!("{}{}", self.url, self.path())).json(&request);
        let answer = post.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert_eq!(status, 200, "{text}");
        text
    }

    /// Asks, and returns the conversation with the answer and the result of its call.
    async fn first_turn(&self, model: &str) -> Vec<Value> {
        let mut history = vec![json!({ "role": "user", "content": "Hi" })];
        let said = self.post(model, &history).await;
        let said =
            if self.streams { self.collect(&said) } else { serde_json::from_str(&said).unwrap() };
        match self.speaks {
            Kind::Messages => {
                history.push(json!({ "role": "assistant", "content": said["content"] }));
                history.push(json!({ "role": "user", "content": [{ "type": "tool_result",
                    "tool_use_id": "c1", "content": "RESULT" }] }));
            }
            Kind::Responses => {
                history.extend(said["output"].as_array().unwrap().clone());
                history.push(json!({ "type": "function_call_output", "call_id": "c1",
                    "output": "RESULT" }));
            }
            Kind::Chat => {
                history.push(said["choices"][0]["message"].clone());
                history.push(json!({ "role": "tool", "tool_call_id": "c1",
                    "content": "RESULT" }));
            }
        }
        history
    }

    /// What SDKs make of the events.
    fn collect(&self, text: &str) -> Value {
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
        match self.speaks {
            Kind::Messages => json!({ "content": collect_blocks(&events) }),
            Kind::Responses => events.last().unwrap()["response"].clone(),
            Kind::Chat => json!({ "choices": [{ "message": collect_deltas(&events) }] }),
        }
    }
}

fn collect_blocks(events: &[Value]) -> Vec<Value> {
    let mut content: Vec<Value> = Vec::new();
    let mut input = String::new();
    for event in events {
        let last = content.last_mut();
        match (event["type"].as_str().unwrap(), last) {
            ("content_block_start", _) => content.push(event["content_block"].clone()),
            ("content_block_delta", Some(block)) => {
                for (name, piece) in event["delta"].as_object().unwrap() {
                    match (name.as_str(), piece.as_str().unwrap()) {
                        ("type", _) => {}
                        ("partial_json", piece) => input.push_str(piece),
                        (name, piece) => {
                            let known = block[name].as_str().unwrap_or_default();
                            block[name] = json!(format!("{known}{piece}"));
                        }
                    }
                }
            }
            ("content_block_stop", Some(block)) if !input.is_empty() => {
                block["input"] = serde_json::from_str(&std::mem::take(&mut input)).unwrap();
            }
            _ => {}
        }
    }
    content
}

/// As OpenAI's SDKs do: texts are joined, items of lists by their `index`.
fn collect_deltas(chunks: &[Value]) -> Value {
    let mut message = json!({});
    for chunk in chunks.iter().filter(|chunk| chunk["choices"][0]["delta"].is_object()) {
        accumulate(&mut message, &chunk["choices"][0]["delta"]);
    }
    message
}

fn accumulate(known: &mut Value, delta: &Value) {
    for (name, piece) in delta.as_object().unwrap() {
        let known = &mut known[name];
        match piece {
            Value::String(more) if known.is_string() && name != "type" => {
                *known = json!(format!("{}{more}", known.as_str().unwrap()));
            }
            Value::Object(_) if known.is_object() => accumulate(known, piece),
            Value::Array(more) if known.is_array() => {
                for piece in more {
                    let index = piece["index"].as_u64().expect("an index") as usize;
                    let list = known.as_array_mut().unwrap();
                    match list.get_mut(index) {
                        Some(known) => accumulate(known, piece),
                        None => list.push(piece.clone()),
                    }
                }
            }
            Value::Null => {}
            Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => *known = piece.clone(),
        }
    }
}

fn without_index(mut said: Vec<Value>) -> Vec<Value> {
    for message in &mut said {
        for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
            call.as_object_mut().unwrap().remove("index");
        }
        let call = message.as_object_mut().unwrap();
        for name in ["status", "content", "refusal"] {
            if call.get(name).is_none_or(|value| value.is_null() || value.is_string()) {
                call.remove(name);
            }
        }
        if call.get("type").is_some_and(|kind| kind == "function_call") {
            call.remove("id");
        }
    }
    said
}

#[tokio::test]
async fn reasoning_that_a_client_carries_comes_back_in_its_place() {
    for made in KINDS {
        let provider = provider(made).await;
        let url = routes::gateway(&Clock::default(), &[made.agent("a", &provider.url, "m")]).await;
        for (speaks, streams) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let client = Client { url: &url, speaks, streams };
            let history = client.first_turn("a").await;
            client.post("a", &history).await;
            let body = provider.seen().last().unwrap().body.clone();
            let returned = without_index(made.returned(&body));
            let case = format!("{speaks:?} client, {made:?} provider, streams: {streams}");
            assert_eq!(returned, without_index(made.wanted()), "{case}: {history:#?}");
        }
    }
}

#[tokio::test]
async fn reasoning_reaches_no_other_provider_account_or_model() {
    for made in KINDS {
        let (maker, other) = (provider(made).await, provider(made).await);
        let mut account = made.agent("account", &maker.url, "m");
        account.2["key_env"] = "KEY_OF_ANOTHER_ACCOUNT".into();
        let path = format!("{}/other/v1", maker.url);
        let agents = [
            made.agent("a", &maker.url, "m"),
            made.agent("model", &maker.url, "n"),
            made.agent("host", &other.url, "m"),
            account,
            made.agent("path", &path, "m"),
            ("route", "route", json!({ "use": ["a", "host"] })),
        ];
        let url = routes::gateway(&Clock::default(), &agents).await;
        for (speaks, streams) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
            let client = Client { url: &url, speaks, streams };
            let case = format!("{speaks:?} client, {made:?} provider, streams: {streams}");
            for first in ["a", "route"] {
                let history = client.first_turn(first).await;
                for (next, provider) in
                    [("model", &maker), ("host", &other), ("account", &maker), ("path", &maker)]
                {
                    client.post(next, &history).await;
                    let body = provider.seen().last().unwrap().body.to_string();
                    let told: Vec<_> = SECRETS.iter().filter(|one| body.contains(**one)).collect();
                    assert_eq!(told, [&""; 0], "{case}, to {next}: {body}");
                    assert!(!body.contains("cap1."), "{case}: {body}");
                }
                client.post("a", &history).await;
                let body = maker.seen().last().unwrap().body.clone();
                let returned = without_index(made.returned(&body));
                assert_eq!(returned, without_index(made.wanted()), "{case}: {history:#?}");
            }
        }
    }
}

/// An answer that thinks, says something and calls a tool.
fn thinks(thought: &str, signature: &str) -> Vec<Value> {
    vec![
        json!({ "type": "thinking", "thinking": thought, "signature": signature }),
        json!({ "type": "text", "text": "Let me look." }),
        json!({ "type": "tool_use", "id": "c1", "name": "f", "input": { "a": 1 } }),
    ]
}

#[tokio::test]
async fn one_attempts_reasoning_comes_back_at_the_beginning_of_its_turn() {
    for (speaks, signature) in [(Kind::Chat, "SIGNED2"), (Kind::Responses, "SIGNED1")] {
        let script = move |nth: usize, seen: &Seen| {
            let mut said = match nth {
                0 => blocks(&thinks("Hmm.", "SIGNED1")),
                _ if seen.body.to_string().contains("RESULT") => Kind::Messages.done(),
                _ => blocks(&thinks("Well.", "SIGNED2")),
            };
            let is_cut = nth == 0;
            if is_cut {
                // The last events are the piece of the arguments, and two ends.
                said.truncate(said.len() - 2);
                said.last_mut().unwrap()["delta"]["partial_json"] = json!("{\"a\"");
            }
            let head = std::iter::once(stream_head());
            let end = is_cut.then_some(Do::Reset);
            head.chain(said.iter().map(chunk)).chain(end).collect()
        };
        let provider = Provider::judging(script).await;
        let url = provider.gateway("anthropic", json!({ "model": "m", "url": provider.url })).await;
        let client = Client { url: &url, speaks, streams: true };
        let history = client.first_turn("a").await;
        client.post("a", &history).await;
        assert_eq!(provider.calls(), 3);
        let body = provider.seen().last().unwrap().body.clone();
        let content = Kind::Messages.returned(&body);
        let kinds: Vec<&Value> = content.iter().map(|block| &block["type"]).collect();
        assert_eq!(kinds, ["thinking", "text", "tool_use"], "{speaks:?}: {body:#}");
        assert_eq!(content[0]["signature"], signature, "{speaks:?}: {history:#?}");
        let thought = if signature == "SIGNED1" { "Hmm." } else { "Well." };
        assert_eq!(content[0]["thinking"], thought, "{speaks:?}");
    }
}

#[tokio::test]
async fn the_only_agent_of_a_protocol_gives_its_providers_own_values() {
    for made in KINDS {
        let provider = provider(made).await;
        let url = routes::gateway(&Clock::default(), &[made.agent("a", &provider.url, "m")]).await;
        let client = Client { url: &url, speaks: made, streams: false };
        let history = json!(client.first_turn("a").await).to_string();
        assert!(!history.contains("cap1."), "{history}");
        assert!(history.contains("SIGNED2") || history.contains("ENCRYPTED"), "{history}");
    }
}

#[tokio::test]
async fn a_broken_sealed_part_is_left_out() {
    for speaks in KINDS {
        let provider = provider(Kind::Messages).await;
        let agents = [Kind::Messages.agent("a", &provider.url, "m")];
        let url = routes::gateway(&Clock::default(), &agents).await;
        let client = Client { url: &url, speaks, streams: false };
        let text = json!(client.first_turn("a").await).to_string();
        let broken = text.replace("cap1.ey", "cap1.!").replace("SIGNED1", "cap1.AAAA");
        let history: Vec<Value> = serde_json::from_str(&broken).unwrap();
        client.post("a", &history).await;
        let body = provider.seen().last().unwrap().body.to_string();
        assert!(body.contains("Let me look.") && !body.contains("cap1."), "{speaks:?}: {body}");
    }
}

/// A client learns nothing of an operator's hosts and models from what it carries.
#[tokio::test]
async fn a_sealed_part_names_neither_host_nor_model() {
    let (provider, other) = (provider(Kind::Messages).await, provider(Kind::Messages).await);
    let agents = [
        Kind::Messages.agent("a", &provider.url, "private-model"),
        Kind::Messages.agent("b", &other.url, "private-model"),
    ];
    let url = routes::gateway(&Clock::default(), &agents).await;
    for speaks in KINDS {
        let client = Client { url: &url, speaks, streams: false };
        let history = json!(client.first_turn("a").await).to_string();
        let sealed: Vec<&str> = history.split("cap1.").skip(1).collect();
        assert!(!sealed.is_empty(), "{history}");
        for text in sealed.iter().flat_map(|text| text.split('"').next().unwrap().split('.')) {
            let text = format!("{:?}", capstan_agent::sealed::open(&format!("cap1.{text}")));
            assert!(text.contains("origin"), "{text}");
            for private in ["127.0.0.1", "private-model"] {
                assert!(!text.contains(private), "{speaks:?}: {text}");
            }
        }
    }
}

/// Clients of protocols without reasoning that comes back have no use for what is opaque.
#[tokio::test]
async fn opaque_values_reach_no_client_that_cannot_bring_them_back() {
    for made in KINDS {
        let provider = provider(made).await;
        let url = routes::gateway(&Clock::default(), &[made.agent("a", &provider.url, "m")]).await;
        let agui = json!({ "threadId": "t", "runId": uuid::Uuid::now_v7(), "state": {},
            "messages": [{ "id": "1", "role": "user", "content": "Hi" }], "context": [],
            "tools": [{ "name": "f", "description": "", "parameters": { "type": "object" } }],
            "forwardedProps": {} });
        let ai_sdk = json!({ "id": "c", "messages": [{ "id": "1", "role": "user",
            "parts": [{ "type": "text", "text": "Hi" }] }] });
        let a2a = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage",
            "params": { "message": { "messageId": "1", "role": "ROLE_USER",
                "parts": [{ "text": "Hi" }] } } });
        let messages = json!({ "max_tokens": 9, "stream": true,
            "messages": [{ "role": "user", "content": "Hi" }] });
        let mut told = Vec::new();
        for (path, body) in [
            ("/v1/ag-ui", &agui),
            ("/v1/ai-sdk/chat", &ai_sdk),
            ("/v1/a2a", &a2a),
            ("/v1/messages", &messages),
        ] {
            let post = client().post(format!("{url}{path}")).header("a2a-version", "1.0");
            let answer = post.json(body).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            let stream = answer.headers()["x-stream-id"].to_str().unwrap().to_owned();
            let text = answer.text().await.unwrap();
            if path != "/v1/messages" {
                told.push((path.to_owned(), text));
            }
            for path in [
                format!("/v1/streams/{stream}?face=ag-ui"),
                format!("/v1/durable/{stream}?face=ai-sdk"),
            ] {
                let answer = client().get(format!("{url}{path}")).send().await.unwrap();
                told.push((path, answer.text().await.unwrap()));
            }
        }
        for (path, text) in told {
            for opaque in ["SIGNED", "REDACTED", "ENCRYPTED", "GOOGLE", "NATIVE", "127.0.0.1"] {
                assert!(!text.contains(opaque), "{made:?}, {path}: {opaque} in {text}");
            }
        }
    }
}

/// Claude Code prints the last block of an answer.
#[tokio::test]
async fn an_answer_for_a_client_of_messages_ends_with_its_text() {
    let details = json!([{ "type": "reasoning.encrypted", "data": "ENCRYPTED" }]);
    for thought in [json!({ "reasoning_content": "Hmm." }), json!({ "reasoning_details": details })]
    {
        let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
        let says = |delta: Value| json!({ "choices": [{ "index": 0, "delta": delta }] });
        let events = [says(thought.clone()), says(json!({ "content": "Done." })), end];
        let script =
            move |_| std::iter::once(stream_head()).chain(events.iter().map(chunk)).collect();
        let provider = Provider::start(script).await;
        let agents = [
            Kind::Chat.agent("a", &provider.url, "m"),
            ("route", "route", json!({ "use": ["a"] })),
        ];
        let url = routes::gateway(&Clock::default(), &agents).await;
        for (model, streams) in [("a", true), ("a", false), ("route", true), ("route", false)] {
            let client = Client { url: &url, speaks: Kind::Messages, streams };
            let said = client.post(model, &[json!({ "role": "user", "content": "Hi" })]).await;
            let said =
                if streams { client.collect(&said) } else { serde_json::from_str(&said).unwrap() };
            let last = said["content"].as_array().unwrap().last().unwrap();
            assert_eq!(*last, json!({ "type": "text", "text": "Done." }), "{model} {streams}");
        }
    }
}
