//! Checks of Anthropic's Messages.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::cap::start::compare;
use crate::frames::Frame;
use crate::lab::{Lab, share};
use crate::openai::{MODELS, model};
use crate::outcome::{NotPassed, Outcome};
use crate::question::Question;
use crate::recording::Recording;
use crate::wire::{Ask, End, Exchange, Who};

pub(crate) const MESSAGES: &str = "/v1/messages";
const COUNT: &str = "/v1/messages/count_tokens";
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");
/// The header by which an SDK marks a retry.
const RETRY: &str = "x-stainless-retry-count";
/// How long the SDKs wait before a retry.
const BEFORE_RETRY: Duration = Duration::from_millis(500);

/// Sends a question that no other run has.
async fn ask(lab: &Lab, user: &str, query: &str, is_stream: bool) -> Result<Recorded, NotPassed> {
    let id = Uuid::now_v7();
    let body = json!({ "model": model(lab).await?, "max_tokens": 1024, "stream": is_stream,
    "metadata": { "user_id": format!("{user}-{id}") },
    "messages": [{ "role": "user", "content": query }] });
    let question = Question { id, body: body.to_string() };
    let ask = Ask::post(MESSAGES, question.body.clone()).header(VERSION.0, VERSION.1);
    Ok((question, ask.header(RETRY, 0)))
}

type Recorded = (Question, Ask);

async fn message(lab: &Lab) -> Result<&Recording, NotPassed> {
    let make = Box::pin(async {
        let (question, ask) = ask(lab, "check", lab.query(), true).await?;
        lab.record(question, ask).await
    });
    share(&lab.messages, make).await
}

/// The response to the retry of a message whose client lost the connection.
async fn cut(lab: &Lab) -> Result<&Recording, NotPassed> {
    let make = Box::pin(async {
        let (question, ask) = ask(lab, "check-cut", lab.query(), true).await?;
        beginning(lab, &ask).await?;
        tokio::time::sleep(BEFORE_RETRY).await;
        lab.record(question, ask.header(RETRY, 1)).await
    });
    share(&lab.messages_cut, make).await
}

fn kind(frame: &Frame) -> String {
    frame.text("type").unwrap_or_default()
}

/// All events except pings.
fn events(run: &Recording) -> Vec<&Frame> {
    run.packets().into_iter().filter(|frame| kind(frame) != "ping").collect()
}

fn id_of(run: &Recording) -> Option<String> {
    let first = events(run).first().map(|frame| frame.json())?;
    Some(first.pointer("/message/id")?.as_str()?.to_owned())
}

pub(crate) async fn answer(lab: &Lab) -> Outcome {
    let run = message(lab).await?;
    run.exchange.expect(run.exchange.is_stream(), "200 and a stream")?;
    let is_named = |frame: &Frame| {
        let name = frame.field("event").map(str::to_owned);
        name.is_some() && name == frame.text("type") && frame.field("id").is_none()
    };
    match run.frames.iter().find(|frame| !is_named(frame)) {
        None => Ok(()),
        Some(frame) => {
            Err(run.exchange.broken("events named like their type, without an id", &frame.raw))
        }
    }
}

/// One message, from message_start to message_stop.
pub(crate) async fn order(lab: &Lab) -> Outcome {
    let run = message(lab).await?;
    let events = events(run);
    let kinds: Vec<String> = events.iter().map(|frame| kind(frame)).collect();
    let count = |wanted: &str| kinds.iter().filter(|kind| *kind == wanted).count();
    let begins = kinds.first().is_some_and(|kind| kind == "message_start");
    let once = ["message_start", "message_delta", "message_stop"].iter().all(|k| count(k) == 1);
    let ends: Vec<&str> = kinds.iter().rev().take(2).map(String::as_str).collect();
    run.exchange.expect(
        begins && once && ends == ["message_stop", "message_delta"],
        "message_start first, one message_delta and message_stop last",
    )?;
    let start = events.first().map(|frame| frame.json()).unwrap_or_default();
    let is = |at: &str, wanted: Value| start.pointer(at) == Some(&wanted);
    let is_message = is("/message/type", json!("message"))
        && is("/message/role", json!("assistant"))
        && is("/message/content", json!([]))
        && id_of(run).is_some();
    run.exchange.expect(is_message, "a message of the assistant with an id and no content yet")?;
    run.exchange.expect(run.exchange.end == End::Clean, "the end of the body after it")
}

/// The deltas that each type of block may have.
fn fits(block: &str, delta: &str) -> bool {
    match block {
        "text" => matches!(delta, "text_delta" | "citations_delta"),
        "thinking" => matches!(delta, "thinking_delta" | "signature_delta"),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => delta == "input_json_delta",
        // Unknown types of blocks may have unknown deltas.
        _ => true,
    }
}

pub(crate) async fn blocks(lab: &Lab) -> Outcome {
    let run = message(lab).await?;
    let (mut next, mut open) = (0, None::<(u64, String)>);
    for frame in events(run) {
        let event = frame.json();
        let index = event.get("index").and_then(Value::as_u64);
        let word = |at: &str| event.pointer(at).and_then(Value::as_str).unwrap_or_default();
        let is_legal = match word("/type") {
            "content_block_start" => {
                let is_next = open.is_none() && index == Some(next);
                open = Some((next, word("/content_block/type").to_owned()));
                next += 1;
                is_next
            }
            "content_block_delta" => open.as_ref().is_some_and(|(place, block)| {
                index == Some(*place) && fits(block, word("/delta/type"))
            }),
            "content_block_stop" => open.take().is_some_and(|(place, _)| index == Some(place)),
            "message_delta" | "message_stop" => open.is_none(),
            _ => true,
        };
        if !is_legal {
            return Err(run.exchange.broken(
                "blocks one after the other from 0: one start, deltas of its type, one stop",
                &frame.raw,
            ));
        }
    }
    run.exchange.expect(next > 0, "a block at least")
}

/// Clients add to the counts of the start, so a member that is missing there stays missing.
const COUNTED: [&str; 4] =
    ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"];

pub(crate) async fn usage(lab: &Lab) -> Outcome {
    let run = message(lab).await?;
    let of_kind = |wanted: &str| {
        let found = events(run).into_iter().find(|frame| kind(frame) == wanted);
        found.map(|frame| frame.json()).unwrap_or_default()
    };
    let start = of_kind("message_start");
    let is_whole = COUNTED
        .iter()
        .all(|name| start.pointer(&format!("/message/usage/{name}")).is_some_and(Value::is_u64));
    run.exchange.expect(is_whole, format!("numbers for {} at the start", COUNTED.join(", ")))?;
    let end = of_kind("message_delta");
    let is_told = end.pointer("/usage/output_tokens").is_some_and(Value::is_u64)
        && end.pointer("/delta/stop_reason").is_some_and(Value::is_string);
    run.exchange.expect(is_told, "output_tokens and a stop_reason at the end")
}

pub(crate) async fn whole(lab: &Lab) -> Outcome {
    let (_, ask) = ask(lab, "check", lab.query(), false).await?;
    let exchange = lab.send(&ask).await?;
    let json = exchange.json();
    let is = |at: &str, wanted: &str| json.pointer(at).is_some_and(|value| value == wanted);
    let is_message = exchange.status == 200
        && is("/type", "message")
        && is("/role", "assistant")
        && json.get("content").and_then(Value::as_array).is_some_and(|blocks| !blocks.is_empty())
        && json.get("stop_reason").is_some_and(Value::is_string)
        && COUNTED
            .iter()
            .all(|name| json.pointer(&format!("/usage/{name}")).is_some_and(Value::is_u64));
    exchange.expect(is_message, "200 and a message with content, stop_reason and usage")
}

/// An error as the clients read it.
fn is_error(json: &Value) -> bool {
    let has = |at: &str| json.pointer(at).is_some_and(Value::is_string);
    json.get("type").is_some_and(|kind| kind == "error")
        && has("/error/type")
        && has("/error/message")
}

pub(crate) async fn error(lab: &Lab) -> Outcome {
    let ask = Ask::post(MESSAGES, json!({ "model": 5 }).to_string()).header(VERSION.0, VERSION.1);
    let exchange = lab.send(&ask).await?;
    let json = exchange.json();
    let is_so = exchange.status == 400
        && is_error(&json)
        && json.pointer("/error/type") == Some(&json!("invalid_request_error"));
    exchange.expect(is_so, "400 with {type: error, error: {type: invalid_request_error, message}}")
}

/// A run that fails has a status and an error, or an `error` event and no end.
pub(crate) async fn fault(lab: &Lab) -> Outcome {
    let query = lab.target.queries.fault.as_deref().unwrap_or_default();
    let (question, ask) = ask(lab, "check", query, true).await?;
    let run = lab.record(question, ask).await?;
    if !run.exchange.is_stream() {
        let is_so = run.exchange.status >= 400 && is_error(&run.exchange.json());
        return run.exchange.expect(is_so, "a status of 400 or above, and an error");
    }
    let events = events(&run);
    let is_told = events
        .last()
        .is_some_and(|frame| frame.field("event") == Some("error") && is_error(&frame.json()));
    let is_over = events.iter().any(|frame| kind(frame) == "message_stop");
    run.exchange.expect(is_told && !is_over, "an error event at last, and no message_stop")
}

/// Without a key a repeat is known by its body. The run should still be open when it comes.
pub(crate) async fn once(lab: &Lab) -> Outcome {
    let query = lab.target.queries.slow.as_deref().unwrap_or(lab.query());
    let (_, ask) = ask(lab, "check-once", query, true).await?;
    let before = beginning(lab, &ask).await?;
    tokio::time::sleep(BEFORE_RETRY).await;
    let again = beginning(lab, &ask.header(RETRY, 1)).await?;
    // A gateway's run would go on for a while.
    for exchange in [&before, &again] {
        if let Some(stream) = exchange.header("x-stream-id") {
            lab.send(&Ask::delete(format!("/v1/streams/{stream}"))).await?;
        }
    }
    let (before, all) = (events_in(&before), events_in(&again));
    let all: Vec<&str> = all.iter().map(String::as_str).take(before.len()).collect();
    compare(&again, &before.iter().map(String::as_str).collect::<Vec<_>>(), &all)
}

/// A message up to its first piece. Then the connection is closed.
async fn beginning(lab: &Lab, ask: &Ask) -> Result<Exchange, NotPassed> {
    // A short answer may be complete by then. On another connection its client may repeat it.
    let mut live = lab.open(&ask.clone().header("connection", "close")).await?;
    live.read_until(|seen| String::from_utf8_lossy(&seen.body).contains("_delta\"")).await;
    Ok(live.seen)
}

fn events_in(exchange: &Exchange) -> Vec<String> {
    let frames = exchange.frames().frames.into_iter();
    frames.filter(|frame| frame.has_data() && kind(frame) != "ping").map(|it| it.raw).collect()
}

/// A client that lost the connection and repeats the request gets one complete message from its
/// start.
pub(crate) async fn resume(lab: &Lab) -> Outcome {
    let back = cut(lab).await?;
    back.exchange.expect(back.exchange.is_stream(), "200 and a stream")?;
    let events = events(back);
    let is_whole = events.first().is_some_and(|frame| kind(frame) == "message_start")
        && events.last().is_some_and(|frame| kind(frame) == "message_stop")
        && back.exchange.end == End::Clean;
    back.exchange.expect(is_whole, "the whole message, from message_start to message_stop")
}

pub(crate) async fn apart(lab: &Lab) -> Outcome {
    let (run, other) = (message(lab).await?, cut(lab).await?);
    let is_apart = id_of(run).is_some() && id_of(run) != id_of(other);
    other.exchange.expect(is_apart, "another message than for another question")
}

fn counted(who: Who) -> Ask {
    let body = json!({ "model": "any", "messages": [{ "role": "user", "content": "Heave ho" }] });
    Ask::post(COUNT, body.to_string()).header(VERSION.0, VERSION.1).by(who)
}

fn is_counted(exchange: &Exchange) -> bool {
    exchange.status == 200 && exchange.json().get("input_tokens").is_some_and(Value::is_u64)
}

pub(crate) async fn count(lab: &Lab) -> Outcome {
    let mut ask = counted(Who::Tenant);
    let body = json!({ "model": model(lab).await?,
    "messages": [{ "role": "user", "content": "Heave ho" }] });
    ask.body = Some(body.to_string().into());
    let exchange = lab.send(&ask).await?;
    exchange.expect(is_counted(&exchange), "200 and input_tokens")
}

pub(crate) async fn models(lab: &Lab) -> Outcome {
    let exchange = lab.send(&Ask::get(MODELS).header(VERSION.0, VERSION.1)).await?;
    let json = exchange.json();
    let is_model = |model: &Value| {
        model.get("type").is_some_and(|kind| kind == "model")
            && ["id", "display_name", "created_at"]
                .iter()
                .all(|name| model.get(*name).is_some_and(Value::is_string))
    };
    let models = json.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_so = exchange.status == 200
        && !models.is_empty()
        && models.iter().all(is_model)
        && json.get("has_more").is_some_and(Value::is_boolean);
    exchange.expect(is_so, "200, models with type, id, display_name and created_at, and has_more")
}

/// Clients have their key in either of two headers.
pub(crate) async fn key(lab: &Lab) -> Outcome {
    let key = lab.target.key.as_deref().unwrap_or_default();
    let with_key = lab.send(&counted(Who::Nobody).header("x-api-key", key)).await?;
    let without = lab.send(&counted(Who::Nobody)).await?;
    with_key.expect(with_key.status != 401, "the key is taken from x-api-key")?;
    let is_refused = without.status == 401 && is_error(&without.json());
    without.expect(is_refused, "401 with {type: error, error: {type, message}}")
}
