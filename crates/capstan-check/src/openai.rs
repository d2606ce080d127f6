//! Checks of OpenAI's API: Responses, and Chat Completions.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::cap::start::compare;
use crate::frames::Frame;
use crate::lab::{Lab, share};
use crate::outcome::{NotPassed, Outcome};
use crate::question::Question;
use crate::recording::Recording;
use crate::wire::{Ask, End};

pub(crate) const RESPONSES: &str = "/v1/responses";
const CHAT: &str = "/v1/chat/completions";
pub(crate) const MODELS: &str = "/v1/models";
const TERMINAL: [&str; 3] = ["response.completed", "response.incomplete", "response.failed"];

/// The model for requests: the named agent, or the first in the list.
pub(crate) async fn model(lab: &Lab) -> Result<String, NotPassed> {
    if let Some(agent) = &lab.target.agent {
        return Ok(agent.clone());
    }
    let listed = lab.send(&Ask::get(MODELS)).await?;
    let first = listed.json().pointer("/data/0/id").and_then(Value::as_str).map(str::to_owned);
    first.ok_or_else(|| NotPassed::skip("no model is listed at /v1/models"))
}

async fn response(lab: &Lab) -> Result<&Recording, NotPassed> {
    let make = Box::pin(async {
        let id = Uuid::now_v7();
        let body = json!({ "model": model(lab).await?, "input": lab.query(), "stream": true });
        let question = Question { id, body: body.to_string() };
        let ask = Ask::post(RESPONSES, question.body.clone()).header("idempotency-key", id);
        lab.record(question, ask).await
    });
    share(&lab.openai, make).await
}

fn kinds(run: &Recording) -> Vec<String> {
    run.packets().iter().map(|frame| frame.text("type").unwrap_or_default()).collect()
}

fn id_of(run: &Recording) -> Option<String> {
    let first = run.packets().first().map(|frame| frame.json())?;
    Some(first.pointer("/response/id")?.as_str()?.to_owned())
}

pub(crate) async fn answer(lab: &Lab) -> Outcome {
    let run = response(lab).await?;
    run.exchange.expect(run.exchange.is_stream(), "200 and a stream")?;
    let is_plain = |frame: &Frame| {
        frame.has_data()
            && frame.field("id").is_none()
            && frame.field("retry").is_none()
            && frame.json().is_object()
    };
    let odd = run.frames.iter().find(|frame| !is_plain(frame));
    match odd {
        None => Ok(()),
        Some(frame) => {
            Err(run.exchange.broken("events with an object and without an id", &frame.raw))
        }
    }
}

pub(crate) async fn order(lab: &Lab) -> Outcome {
    let run = response(lab).await?;
    let kinds = kinds(run);
    let begins =
        kinds.iter().map(String::as_str).take(2).eq(["response.created", "response.in_progress"]);
    run.exchange.expect(begins, "response.created and response.in_progress first")?;
    let number = |frame: &&Frame| frame.json().get("sequence_number").and_then(Value::as_u64);
    let numbers: Option<Vec<u64>> = run.packets().iter().map(number).collect();
    let goes_up = numbers.is_some_and(|numbers| numbers.is_sorted_by(|a, b| a < b));
    run.exchange.expect(goes_up, "a sequence_number with every event, each above the last")
}

pub(crate) async fn terminal(lab: &Lab) -> Outcome {
    let run = response(lab).await?;
    let kinds = kinds(run);
    let is_terminal = |kind: &String| TERMINAL.contains(&kind.as_str());
    let is_so = kinds.last().is_some_and(is_terminal)
        && kinds.iter().filter(|kind| is_terminal(kind)).count() == 1;
    run.exchange.expect(
        is_so && run.exchange.end == End::Clean,
        "one terminal event, then the end of the body",
    )
}

pub(crate) async fn resume(lab: &Lab) -> Outcome {
    let run = response(lab).await?;
    let (all, packets) = (run.raw(), run.packets());
    let half = packets.len() / 2;
    let number = packets.get(half).and_then(|frame| frame.json().get("sequence_number")?.as_u64());
    let (Some(id), Some(number)) = (id_of(run), number) else {
        return Err(NotPassed::skip("no id, or no numbers"));
    };
    let exchange = lab
        .send(&Ask::get(format!("{RESPONSES}/{id}?stream=true&starting_after={number}")))
        .await?;
    exchange.expect(exchange.is_stream(), "200 and a stream")?;
    let came = exchange.frames().frames;
    compare(
        &exchange,
        all.get(half + 1..).unwrap_or_default(),
        &came.iter().map(|frame| frame.raw.as_str()).collect::<Vec<_>>(),
    )
}

pub(crate) async fn once(lab: &Lab) -> Outcome {
    let run = response(lab).await?;
    let again = lab.record(run.question.clone(), run.ask.clone()).await?;
    again
        .exchange
        .expect(id_of(&again).is_some() && id_of(&again) == id_of(run), "the same response")
}

pub(crate) async fn error(lab: &Lab) -> Outcome {
    let exchange = lab.send(&Ask::post(RESPONSES, json!({ "model": 5 }).to_string())).await?;
    let json = exchange.json();
    let has = |name: &str| json.pointer(&format!("/error/{name}")).is_some();
    let is_so = exchange.status == 400 && ["message", "type", "param", "code"].into_iter().all(has);
    exchange.expect(is_so, "400 with error {message, type, param, code}")
}

pub(crate) async fn chat(lab: &Lab) -> Outcome {
    let make = Box::pin(async {
        let body = json!({ "model": model(lab).await?, "messages": [{ "role": "user",
        "content": lab.query() }], "stream": true });
        let question = Question { id: Uuid::now_v7(), body: body.to_string() };
        let ask = Ask::post(CHAT, question.body.clone()).header("idempotency-key", question.id);
        lab.record(question, ask).await
    });
    let run = share(&lab.chat, make).await?;
    run.exchange.expect(run.exchange.is_stream(), "200 and a stream")?;
    let packets = run.packets();
    let finished = packets.iter().filter(|frame| {
        frame.json().pointer("/choices/0/finish_reason").is_some_and(Value::is_string)
    });
    let is_so =
        finished.count() == 1 && packets.last().is_some_and(|frame| frame.data() == "[DONE]");
    run.exchange
        .expect(is_so && run.exchange.end == End::Clean, "one finish_reason, and [DONE] at the end")
}
