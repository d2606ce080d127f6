//! Checks of Durable Streams: a run that has ended, read by offsets.

use http::Method;
use serde_json::Value;
use uuid::Uuid;

use crate::lab::Lab;
use crate::outcome::{NotPassed, Outcome};
use crate::wire::{Ask, Exchange};

const NEXT: &str = "stream-next-offset";
const CLOSED: &str = "stream-closed";

pub(crate) fn path(stream: Uuid) -> String {
    format!("/v1/durable/{stream}")
}

async fn whole(lab: &Lab) -> Result<(String, Exchange), NotPassed> {
    let path = path(lab.plain().await?.stream()?);
    let exchange = lab.send(&Ask::get(&*path)).await?;
    Ok((path, exchange))
}

/// The packets as they were streamed.
async fn packets(lab: &Lab) -> Result<Vec<Value>, NotPassed> {
    Ok(lab.plain().await?.packets().iter().map(|frame| frame.json()).collect())
}

fn is_closed(exchange: &Exchange) -> bool {
    exchange.header(CLOSED) == Some("true")
}

pub(crate) async fn read(lab: &Lab) -> Outcome {
    let (_, exchange) = whole(lab).await?;
    let is_at_end = exchange.header("stream-up-to-date") == Some("true") && is_closed(&exchange);
    exchange.expect(
        is_at_end && exchange.header(NEXT).is_some(),
        "Stream-Next-Offset, Stream-Up-To-Date and Stream-Closed",
    )?;
    let is_so = exchange.status == 200 && exchange.json() == Value::Array(packets(lab).await?);
    exchange.expect(is_so, "200 and the packets in one array")
}

pub(crate) async fn offset(lab: &Lab) -> Outcome {
    let (path, _) = whole(lab).await?;
    let exchange = lab.send(&Ask::get(format!("{path}?offset={:020}", 1))).await?;
    let rest: Vec<Value> = packets(lab).await?.into_iter().skip(1).collect();
    exchange.expect(exchange.json() == Value::Array(rest), "the packets after the first")
}

pub(crate) async fn head(lab: &Lab) -> Outcome {
    let (path, whole) = whole(lab).await?;
    let exchange = lab.send(&Ask::new(Method::HEAD, path)).await?;
    let is_so = exchange.status == 200
        && exchange.header(NEXT) == whole.header(NEXT)
        && is_closed(&exchange);
    exchange.expect(is_so, "200, the last offset, and Stream-Closed")
}

pub(crate) async fn poll(lab: &Lab) -> Outcome {
    let (path, whole) = whole(lab).await?;
    let end = whole.header(NEXT).unwrap_or_default().to_owned();
    let exchange = lab.send(&Ask::get(format!("{path}?offset={end}&live=long-poll"))).await?;
    exchange.expect(exchange.status == 204 && is_closed(&exchange), "204 and Stream-Closed")
}

pub(crate) async fn write(lab: &Lab) -> Outcome {
    let (path, _) = whole(lab).await?;
    let exchange = lab.send(&Ask::post(path, "[]")).await?;
    exchange.expect(exchange.status == 405, "405")
}
