//! A run in one object, and a run in profile v2.

use capstan_protocol::{ServiceResponse, decode};
use serde_json::Value;

use super::watch::read_v2;
use crate::lab::Lab;
use crate::outcome::Outcome;
use crate::question::Question;

/// The same request with another Accept attaches to the same run.
pub(crate) async fn json(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let exchange = lab.send(&lab.ask(&run.question).header("accept", "application/json")).await?;
    exchange.expect(
        exchange.status == 200 && exchange.media_type() == "application/json",
        "200 and application/json",
    )?;
    let answer: ServiceResponse = decode::from_slice(&exchange.body).map_err(|error| {
        exchange.broken(format!("a ServiceResponse; {error}"), exchange.summary())
    })?;
    exchange
        .expect(answer.request_id == run.question.id, format!("request_id {}", run.question.id))?;
    let member = |name: &str| answer.output.get(name).and_then(Value::as_str).unwrap_or_default();
    let (stream, transcript) = (run.stream()?.to_string(), run.transcript()?);
    exchange.expect(member("stream_id") == stream, format!("output.stream_id {stream}"))?;
    exchange.expect(
        member("text") == transcript.text(),
        format!("output.text as streamed: {}", transcript.text()),
    )
}

pub(crate) async fn v2(lab: &Lab) -> Outcome {
    let question = Question::v2(lab.query());
    read_v2(&lab.send(&lab.ask(&question)).await?).map(drop)
}
