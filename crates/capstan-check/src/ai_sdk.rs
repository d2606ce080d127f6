//! Checks of the AI SDK's UI message streams.

use serde_json::json;
use uuid::Uuid;

use crate::lab::{Lab, share};
use crate::outcome::{NotPassed, Outcome};
use crate::question::Question;
use crate::recording::Recording;
use crate::wire::{Ask, End, Exchange};

fn ask(lab: &Lab, chat: Uuid, query: &str) -> (Question, Ask) {
    let message =
        json!({ "id": "m1", "role": "user", "parts": [{ "type": "text", "text": query }] });
    let body =
        json!({ "id": chat, "messages": [message], "trigger": "submit-message" }).to_string();
    let ask = Ask::post(lab.below("ai-sdk/chat"), body.clone());
    (Question { id: chat, body }, ask)
}

fn stream(lab: &Lab, chat: Uuid) -> String {
    format!("{}/{chat}/stream", lab.below("ai-sdk/chat"))
}

async fn run(lab: &Lab) -> Result<&Recording, NotPassed> {
    let (question, ask) = ask(lab, Uuid::now_v7(), lab.query());
    share(&lab.ai_sdk, lab.record(question, ask)).await
}

fn chunks(exchange: &Exchange) -> Vec<String> {
    exchange
        .frames()
        .frames
        .iter()
        .filter(|frame| frame.has_data())
        .map(|frame| frame.data().to_owned())
        .collect()
}

pub(crate) async fn answer(lab: &Lab) -> Outcome {
    let exchange = &run(lab).await?.exchange;
    let is_so =
        exchange.is_stream() && exchange.header("x-vercel-ai-ui-message-stream") == Some("v1");
    exchange.expect(is_so, "200, a stream, and x-vercel-ai-ui-message-stream: v1")
}

pub(crate) async fn order(lab: &Lab) -> Outcome {
    let run = run(lab).await?;
    let packets = run.packets();
    let kind = |at: Option<usize>| packets.get(at?)?.text("type");
    let begins = kind(Some(0)).as_deref() == Some("start")
        && packets.first().is_some_and(|frame| frame.text("messageId").is_some());
    run.exchange.expect(begins, "start with a messageId first")?;
    let is_done = packets.last().is_some_and(|frame| frame.data() == "[DONE]")
        && run.exchange.end == End::Clean;
    let is_finished = kind(packets.len().checked_sub(2)).as_deref() == Some("finish");
    run.exchange.expect(is_done && is_finished, "finish, [DONE], and the end of the body")
}

pub(crate) async fn replay(lab: &Lab) -> Outcome {
    let run = run(lab).await?;
    let again = lab.send(&Ask::get(stream(lab, run.question.id))).await?;
    again.expect(
        again.is_stream() && chunks(&again) == chunks(&run.exchange),
        "200 and the same chunks, from start",
    )
}

pub(crate) async fn nothing(lab: &Lab) -> Outcome {
    let exchange = lab.send(&Ask::get(stream(lab, Uuid::now_v7()))).await?;
    exchange.expect(exchange.status == 204, "204")
}

pub(crate) async fn stop(lab: &Lab) -> Outcome {
    let (question, ask) =
        ask(lab, Uuid::now_v7(), lab.target.queries.slow.as_deref().unwrap_or_default());
    let mut live = lab.open(&ask).await?;
    live.read_until(|seen| String::from_utf8_lossy(&seen.body).contains("text-delta")).await;
    let stopped = lab.send(&Ask::delete(stream(lab, question.id))).await?;
    stopped.expect((200..300).contains(&stopped.status), "200 or 204")?;
    let whole = live.finish().await;
    let chunks = chunks(&whole);
    let is_aborted = chunks.iter().any(|chunk| chunk.contains(r#""type":"abort""#));
    let is_done = chunks.last().is_some_and(|chunk| chunk == "[DONE]") && whole.end == End::Clean;
    whole.expect(is_aborted && is_done, "abort, [DONE], and the end of the body")
}
