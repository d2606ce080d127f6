//! Checks of A2A: the card, JSON-RPC of both versions, and coming back at an event.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::cap::start::compare;
use crate::lab::{Lab, share};
use crate::outcome::{NotPassed, Outcome};
use crate::question::Question;
use crate::recording::Recording;
use crate::wire::{Ask, End, Exchange};

/// The id of our calls, which every answer repeats.
const CALL: u64 = 7;

pub(crate) fn card_path(lab: &Lab) -> String {
    match &lab.target.agent {
        Some(_) => lab.below("a2a/.well-known/agent-card.json"),
        None => "/.well-known/agent-card.json".into(),
    }
}

fn call(lab: &Lab, method: &str, params: &Value) -> Ask {
    let body = json!({ "jsonrpc": "2.0", "id": CALL, "method": method, "params": params });
    Ask::post(lab.below("a2a"), body.to_string())
        .header("a2a-version", if method.contains('/') { "0.3" } else { "1.0" })
}

async fn response_to(
    lab: &Lab,
    method: &str,
    params: &Value,
) -> Result<(Exchange, Value), NotPassed> {
    let exchange = lab.send(&call(lab, method, params)).await?;
    let json = exchange.json();
    Ok((exchange, json))
}

async fn run(lab: &Lab) -> Result<&Recording, NotPassed> {
    let id = Uuid::now_v7();
    let message = json!({ "message": { "messageId": id, "role": "ROLE_USER",
    "parts": [{ "text": lab.query() }] } });
    let question = Question { id, body: message.to_string() };
    let ask = call(lab, "SendStreamingMessage", &message).header("accept", "text/event-stream");
    share(&lab.a2a, lab.record(question, ask)).await
}

fn task(run: &Recording) -> Result<String, NotPassed> {
    let first = run.packets().first().map(|frame| frame.json()).unwrap_or_default();
    let id = first.pointer("/result/task/id").and_then(Value::as_str).map(str::to_owned);
    id.ok_or_else(|| NotPassed::skip("needs a2a.stream"))
}

fn text(parts: Option<&Value>) -> String {
    let parts = parts.and_then(Value::as_array).into_iter().flatten();
    parts.filter_map(|part| part.get("text")?.as_str()).collect()
}

pub(crate) async fn card(lab: &Lab) -> Outcome {
    let exchange = lab.send(&Ask::get(card_path(lab))).await?;
    let card = exchange.json();
    let offers =
        card.get("supportedInterfaces").and_then(Value::as_array).cloned().unwrap_or_default();
    let is_absolute = |offer: &Value| {
        offer.get("url").and_then(Value::as_str).is_some_and(|url| url.starts_with("http"))
    };
    let streams = card.pointer("/capabilities/streaming") == Some(&Value::Bool(true));
    exchange.expect(
        !offers.is_empty() && offers.iter().all(is_absolute) && streams,
        "supportedInterfaces with absolute urls, and capabilities.streaming",
    )
}

pub(crate) async fn stream(lab: &Lab) -> Outcome {
    let run = run(lab).await?;
    run.exchange.expect(run.exchange.is_stream(), "200 and a stream")?;
    let events: Vec<Value> = run.packets().iter().map(|frame| frame.json()).collect();
    let is_answer = |event: &Value| {
        event.get("jsonrpc") == Some(&json!("2.0")) && event.get("id") == Some(&json!(CALL))
    };
    run.exchange
        .expect(events.iter().all(is_answer), "jsonrpc and the id of the call in every event")?;
    let begins = events.first().is_some_and(|event| event.pointer("/result/task/id").is_some());
    let last = events
        .last()
        .and_then(|event| event.pointer("/result/statusUpdate/status/state")?.as_str());
    let is_over =
        last.is_some_and(|state| state != "TASK_STATE_WORKING") && run.exchange.end == End::Clean;
    run.exchange.expect(begins && is_over, "the task first, its last status last")
}

pub(crate) async fn get(lab: &Lab) -> Outcome {
    let run = run(lab).await?;
    let mut streamed = String::new();
    for event in run.packets().iter().map(|frame| frame.json()) {
        let Some(update) = event.pointer("/result/artifactUpdate") else { continue };
        if update.get("append") == Some(&Value::Bool(false)) {
            streamed.clear();
        }
        streamed.push_str(&text(update.pointer("/artifact/parts")));
    }
    let (exchange, json) = response_to(lab, "GetTask", &json!({ "id": task(run)? })).await?;
    let artifacts =
        json.pointer("/result/artifacts").and_then(Value::as_array).cloned().unwrap_or_default();
    let stored: String = artifacts.iter().map(|artifact| text(artifact.get("parts"))).collect();
    exchange.expect(stored == streamed, "the text that was streamed")
}

pub(crate) async fn old(lab: &Lab) -> Outcome {
    let (exchange, json) =
        response_to(lab, "tasks/get", &json!({ "id": task(run(lab).await?)? })).await?;
    let state = json.pointer("/result/status/state").and_then(Value::as_str);
    let is_so = json.pointer("/result/kind") == Some(&json!("task"))
        && state.is_some_and(|state| !state.contains('_'));
    exchange.expect(is_so, "a result of kind task, with a state of version 0.3")
}

pub(crate) async fn once(lab: &Lab) -> Outcome {
    let run = run(lab).await?;
    let message: Value = serde_json::from_str(&run.question.body).unwrap_or_default();
    let (exchange, json) = response_to(lab, "SendMessage", &message).await?;
    exchange.expect(json.pointer("/result/task/id") == Some(&json!(task(run)?)), "the same task")
}

pub(crate) async fn resume(lab: &Lab) -> Outcome {
    let run = run(lab).await?;
    let (all, packets) = (run.raw(), run.packets());
    let half = packets.len() / 2;
    let Some(id) = packets.get(half).and_then(|frame| frame.field("id")) else {
        return Err(NotPassed::skip("events have no ids: this server does not have the extension"));
    };
    let exchange =
        lab.send(&call(lab, "SubscribeToTask", &json!({ "id": task(run)? })).after(id)).await?;
    exchange.expect(exchange.is_stream(), "200 and a stream")?;
    let came = exchange.frames().frames;
    let came: Vec<&str> =
        came.iter().filter(|frame| frame.has_data()).map(|frame| frame.raw.as_str()).collect();
    compare(&exchange, all.get(half + 1..).unwrap_or_default(), &came)
}

pub(crate) async fn over(lab: &Lab) -> Outcome {
    let id = json!({ "id": task(run(lab).await?)? });
    for (method, code) in [("SubscribeToTask", -32004), ("CancelTask", -32002)] {
        let (exchange, json) = response_to(lab, method, &id).await?;
        exchange.expect(
            json.pointer("/error/code") == Some(&json!(code)),
            format!("the error {code}"),
        )?;
    }
    Ok(())
}
