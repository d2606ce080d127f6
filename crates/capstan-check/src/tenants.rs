//! Authentication, tenants and tickets.

use serde_json::Value;
use uuid::Uuid;

use crate::cap::start::{same, stream_of};
use crate::cap::watch::path;
use crate::lab::Lab;
use crate::outcome::{NotPassed, Outcome};
use crate::wire::{Ask, Exchange, Who};

pub(crate) async fn no_key(lab: &Lab) -> Outcome {
    lab.refused(&Ask::post(&*lab.assist, "{}").by(Who::Nobody), 401, "tenant_required").await
}

pub(crate) async fn wrong_key(lab: &Lab) -> Outcome {
    lab.refused(&Ask::post(&*lab.assist, "{}").by(Who::Stranger), 403, "tenant_unauthorized").await
}

pub(crate) async fn wrong_tenant(lab: &Lab) -> Outcome {
    let ask = Ask::post(&*lab.assist, "{}").header("x-tenant-id", "capstan-check-is-nobody");
    lab.refused(&ask, 403, "tenant_unauthorized").await
}

/// A refusal without the members that differ with every request.
fn comparable(exchange: &Exchange) -> (u16, Value) {
    let mut json = exchange.json();
    if let Some(members) = json.as_object_mut() {
        members.remove("request_id");
    }
    (exchange.status, json)
}

/// Checks that another tenant's stream gives the same answer as an unknown one.
async fn hidden(lab: &Lab, ask: impl Fn(String) -> Ask) -> Outcome {
    let stream = lab.plain().await?.stream()?;
    let foreign = lab.send(&ask(path(stream)).by(Who::Other)).await?;
    let unknown = lab.send(&ask(path(Uuid::now_v7())).by(Who::Other)).await?;
    foreign.expect(
        comparable(&foreign) == comparable(&unknown),
        format!("the same answer as for an unknown stream: {}", unknown.summary()),
    )
}

pub(crate) async fn watch(lab: &Lab) -> Outcome {
    hidden(lab, Ask::get).await
}

pub(crate) async fn stop(lab: &Lab) -> Outcome {
    hidden(lab, Ask::delete).await
}

pub(crate) async fn keys(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let exchange = lab.send(&lab.ask(&run.question).by(Who::Other)).await?;
    exchange.expect(exchange.is_stream(), "200 and a run of its own")?;
    let stream = run.stream()?.to_string();
    let is_so = stream_of(&exchange) != stream;
    if is_so {
        Ok(())
    } else {
        Err(exchange.broken(
            "a run of its own: request ids are scoped by tenant",
            format!("stream {stream}"),
        ))
    }
}

async fn issue(lab: &Lab, stream: Uuid) -> Result<String, NotPassed> {
    let exchange = lab.send(&Ask::post(format!("{}/ticket", path(stream)), "")).await?;
    let json = exchange.json();
    let ticket = json.get("ticket").and_then(Value::as_str).unwrap_or_default().to_owned();
    exchange.expect(exchange.status == 200 && !ticket.is_empty(), "200 and a ticket")?;
    lab.keep_secret(&ticket);
    Ok(ticket)
}

pub(crate) async fn ticket(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let stream = run.stream()?;
    let ticket = issue(lab, stream).await?;
    let ask = Ask::get(format!("{}?ticket={ticket}", path(stream))).by(Who::Nobody);
    same(&lab.send(&ask).await?, run)
}

/// A ticket allows reading and nothing else.
pub(crate) async fn ticket_reads(lab: &Lab) -> Outcome {
    let stream = lab.plain().await?.stream()?;
    let ticket = issue(lab, stream).await?;
    let ask = Ask::delete(format!("{}?ticket={ticket}", path(stream))).by(Who::Nobody);
    let exchange = lab.send(&ask).await?;
    exchange.expect(matches!(exchange.status, 401 | 403), "401 or 403: a ticket only reads")
}

/// A changed ticket is invalid.
pub(crate) async fn forged(lab: &Lab) -> Outcome {
    let stream = lab.plain().await?.stream()?;
    let ticket = issue(lab, stream).await?;
    let last = if ticket.ends_with('0') { "1" } else { "0" };
    let forged =
        format!("{}{last}", ticket.get(..ticket.len().saturating_sub(1)).unwrap_or_default());
    lab.keep_secret(&forged);
    let ask = Ask::get(format!("{}?ticket={forged}", path(stream))).by(Who::Nobody);
    lab.refused(&ask, 403, "tenant_unauthorized").await
}
