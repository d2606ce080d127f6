//! Answers of Messages that break off anywhere, and that a later attempt completes: the client gets
//! the blocks of an answer that did not break off.

use capstan_agent::Clock;
use serde_json::{Value, json};

use crate::common::*;
use crate::routes;

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn thinking(thought: &str) -> Value {
    json!({ "type": "thinking", "thinking": thought, "signature": "" })
}

fn redacted() -> Value {
    json!({ "type": "redacted_thinking", "data": "" })
}

fn call(kind: &str, id: &str, input: &Value) -> Value {
    json!({ "type": kind, "id": id, "name": "web_search", "input": input })
}

fn found(id: &str) -> Value {
    json!({ "type": "web_search_tool_result", "tool_use_id": id, "caller": { "type": "direct" },
        "content": [{ "type": "web_search_result", "title": "A", "url": "https://a.example" }] })
}

/// Answers whose reasoning and calls stand in several places.
fn answers() -> Vec<Vec<Value>> {
    let query = json!({ "query": "cats and dogs" });
    let searches = [call("server_tool_use", "srvtoolu_1", &query), found("srvtoolu_1")];
    let more = [call("server_tool_use", "srvtoolu_2", &query), found("srvtoolu_2")];
    let calls = call("tool_use", "toolu_1", &query);
    vec![
        vec![thinking("First."), text("Intro."), thinking("Second."), calls.clone()],
        vec![thinking(""), text("Intro."), thinking(""), text("The end of it.")],
        vec![thinking("First."), thinking("Second."), text("The end of it.")],
        vec![thinking(""), thinking(""), text("The end of it.")],
        vec![thinking("Same."), text("Intro."), thinking("Same."), text("The end of it.")],
        vec![redacted(), text("Intro."), redacted(), redacted(), text("The end of it.")],
        vec![thinking("First."), redacted(), text("Intro."), redacted(), calls.clone()],
        vec![thinking("First."), calls, redacted(), thinking("Second.")],
        [&[text("I search.")], &searches[..], &[text("The end of it.")]].concat(),
        [&[thinking("")], &searches[..], &[thinking("")], &more[..], &[text("Yes.")]].concat(),
    ]
}

/// What an attempt makes of an answer: reasoning is signed anew each time, and calls have other
/// ids.
fn written(answer: &[Value], attempt: usize) -> Vec<Value> {
    let mut blocks = answer.to_vec();
    for (nth, block) in blocks.iter_mut().enumerate() {
        for (name, made) in [
            ("signature", format!("{nth}-signed-{attempt}")),
            ("data", format!("{nth}-sealed-{attempt}")),
            ("id", format!("{}-{attempt}", block["id"].as_str().unwrap_or_default())),
            ("tool_use_id", format!("{}-{attempt}", block["tool_use_id"].as_str().unwrap_or(""))),
        ] {
            if block.get(name).is_some() {
                block[name] = made.into();
            }
        }
    }
    blocks
}

/// The events of an attempt, as Anthropic writes them.
fn events(answer: &[Value], attempt: usize) -> Vec<Value> {
    let mut events = vec![json!({ "type": "message_start", "message": {
        "id": format!("msg_{attempt}"), "type": "message", "role": "assistant", "model": "m",
        "content": [], "usage": { "input_tokens": 3, "output_tokens": 1 } } })];
    for (index, block) in written(answer, attempt).into_iter().enumerate() {
        let mut start = block.clone();
        let mut deltas = Vec::new();
        let mut piece = |kind: &str, name: &str, text: &str| {
            let (one, two) = text.split_at(text.len() / 2);
            let pieces = [one, two].into_iter().filter(|piece| !piece.is_empty());
            deltas.extend(pieces.map(|piece| json!({ "type": kind, name: piece })));
        };
        match block["type"].as_str().unwrap() {
            "text" => piece("text_delta", "text", block["text"].as_str().unwrap()),
            "thinking" => {
                piece("thinking_delta", "thinking", block["thinking"].as_str().unwrap());
                piece("signature_delta", "signature", block["signature"].as_str().unwrap());
            }
            kind if kind.ends_with("tool_use") => {
                piece("input_json_delta", "partial_json", &block["input"].to_string());
                start["input"] = json!({});
            }
            _ => {}
        }
        for name in ["text", "thinking", "signature"] {
            if start.get(name).is_some() {
                start[name] = "".into();
            }
        }
        let start =
            json!({ "type": "content_block_start", "index": index, "content_block": start });
        events.push(start);
        let delta =
            |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta });
        events.extend(deltas.into_iter().map(delta));
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    let reason = json!({ "stop_reason": "end_turn", "stop_sequence": null });
    let end = json!({ "type": "message_delta", "delta": reason, "usage": { "output_tokens": 9 } });
    events.extend([end, json!({ "type": "message_stop" })]);
    events
}

/// The blocks of a streamed answer. Each start has the empty members that SDKs add to.
fn blocks(told: &str) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut input = String::new();
    for data in told.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(data).unwrap();
        match event["type"].as_str().unwrap() {
            "content_block_start" => blocks.push(event["content_block"].clone()),
            "content_block_delta" => {
                let block = blocks.last_mut().unwrap();
                for (name, piece) in event["delta"].as_object().unwrap() {
                    match (name.as_str(), piece.as_str().unwrap()) {
                        ("type", _) => {}
                        ("partial_json", piece) => input.push_str(piece),
                        (name, piece) => {
                            let known = block[name].as_str().expect("an empty member to add to");
                            block[name] = json!(format!("{known}{piece}"));
                        }
                    }
                }
            }
            "content_block_stop" if !input.is_empty() => {
                let input = serde_json::from_str(&std::mem::take(&mut input)).unwrap();
                blocks.last_mut().unwrap()["input"] = input;
            }
            "error" => panic!("{told}"),
            _ => {}
        }
    }
    blocks
}

/// The blocks as any attempt could have written them. A value of two attempts stays different.
fn of_any_attempt(blocks: &[Value]) -> Vec<Value> {
    let text = json!(blocks).to_string().replace("-2\"", "-1\"");
    let mut blocks: Vec<Value> = serde_json::from_str(&text).unwrap();
    for block in &mut blocks {
        for name in ["signature", "data"] {
            let opened = block.get(name).and_then(Value::as_str).and_then(opened);
            if let Some(opened) = opened {
                block[name] = opened[name].as_str().unwrap().replace("-2", "-1").into();
            }
        }
    }
    blocks
}

/// The provider's own block within a sealed one.
fn opened(sealed: &str) -> Option<Value> {
    let part = capstan_agent::sealed::open(sealed).into_iter().next()?;
    Some(part.to_value())
}

fn asked() -> Value {
    json!({ "model": "a", "max_tokens": 9, "stream": true, "messages": [
        { "role": "user", "content": "Hi" }] })
}

fn script(answer: &[Value], cut: usize) -> impl Fn(usize) -> Vec<Do> + Send + Sync + 'static {
    let attempts = [events(answer, 1)[..cut].to_vec(), events(answer, 2)];
    move |nth| {
        let events = attempts.get(nth).unwrap_or(&attempts[1]);
        std::iter::once(stream_head()).chain(events.iter().map(chunk)).collect()
    }
}

/// Cuts each answer behind each of its events, and returns what differs from an answer without
/// a cut.
async fn differences(agents: &[(&str, &str, Value)]) -> Vec<String> {
    let mut differences = Vec::new();
    for answer in answers() {
        let expected = of_any_attempt(&written(&answer, 1));
        for cut in 1..events(&answer, 1).len() - 1 {
            let provider = Provider::start(script(&answer, cut)).await;
            let agents: Vec<_> = agents
                .iter()
                .map(|(name, kind, config)| {
                    let mut config = config.clone();
                    if *kind == "anthropic" {
                        config["url"] = provider.url.as_str().into();
                    }
                    (*name, *kind, config)
                })
                .collect();
            let url = routes::gateway(&Clock::by_hand(), &agents).await;
            let request = client().post(format!("{url}/v1/messages")).json(&asked());
            let told = request.send().await.unwrap().text().await.unwrap();
            let is_error = told.contains("event: error");
            let seen = if is_error { Vec::new() } else { of_any_attempt(&blocks(&told)) };
            if seen != expected {
                let last = events(&answer, 1)[cut - 1].to_string();
                let seen = if is_error { told } else { json!(seen).to_string() };
                differences.push(format!("{cut} behind {last}: {seen}\n"));
            }
        }
    }
    differences
}

#[tokio::test]
async fn a_healed_answer_has_the_blocks_of_one_that_did_not_break_off() {
    let agents = [("a", "anthropic", json!({ "model": "m" }))];
    let differences = differences(&agents).await;
    assert!(differences.is_empty(), "{} {}", differences.len(), differences.concat());
}

#[tokio::test]
async fn an_answer_that_another_member_of_a_route_completes_has_the_same_blocks() {
    let agents = [
        ("a", "route", json!({ "use": ["one", "two"] })),
        ("one", "anthropic", json!({ "model": "m" })),
        ("two", "anthropic", json!({ "model": "n" })),
    ];
    let differences = differences(&agents).await;
    assert!(differences.is_empty(), "{} {}", differences.len(), differences.concat());
}
