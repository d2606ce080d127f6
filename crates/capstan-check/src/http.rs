//! HTTP around the faces: texts of refusals, health, CORS.

use capstan_protocol::{FaultKind, HealthCheckResponse, decode};
use http::Method;
use serde_json::Value;
use uuid::Uuid;

use crate::cap::watch::path;
use crate::lab::Lab;
use crate::outcome::{NotPassed, Outcome};
use crate::wire::{Ask, Exchange};

pub(crate) async fn malformed(lab: &Lab) -> Outcome {
    lab.refused(&Ask::post(&*lab.assist, "{\"request_id\": "), 400, "invalid_request").await
}

/// A refusal names the member that is wrong.
pub(crate) async fn place(lab: &Lab) -> Outcome {
    let exchange = lab.send(&Ask::post(&*lab.assist, "{\"request_id\": 7}")).await?;
    exchange.expect(exchange.status == 400, "400")?;
    let detail =
        exchange.json().get("detail").and_then(Value::as_str).unwrap_or_default().to_owned();
    let names = ["request_id", "context", "payload"];
    exchange.expect(
        names.iter().any(|name| detail.contains(name)),
        "a detail that names the member that is wrong",
    )
}

pub(crate) async fn media_type(lab: &Lab) -> Outcome {
    let ask = Ask::post(&*lab.assist, "{}").header("content-type", "text/plain");
    lab.refused(&ask, 415, "unsupported_media_type").await
}

pub(crate) async fn route(lab: &Lab) -> Outcome {
    lab.refused(&Ask::get(format!("/{}", Uuid::now_v7())), 404, "route_not_found").await
}

pub(crate) async fn method(lab: &Lab) -> Outcome {
    lab.refused(&Ask::new(Method::PUT, &*lab.assist), 405, "method_not_allowed").await
}

pub(crate) async fn key_in_url(lab: &Lab) -> Outcome {
    let ask = Ask::get(format!("{}?api_key=abc", path(Uuid::now_v7())));
    lab.refused(&ask, 400, "invalid_request").await
}

/// Fails at the first refusal that does not fulfil the condition.
fn each(lab: &Lab, expected: &str, is_so: impl Fn(&Exchange, &Value) -> bool) -> Outcome {
    match lab.refusals()?.iter().find(|refusal| !is_so(refusal, &refusal.json())) {
        None => Ok(()),
        Some(refusal) => refusal.expect(false, expected),
    }
}

pub(crate) async fn problem(lab: &Lab) -> Outcome {
    each(lab, "Content-Type: application/problem+json", |refusal, _| {
        refusal.media_type() == capstan_protocol::problem::CONTENT_TYPE
    })?;
    const TEXTS: [&str; 7] =
        ["type", "title", "detail", "code", "severity", "domain", "request_id"];
    each(
        lab,
        "type, title, status, detail, code, severity, domain, retryable and request_id",
        |refusal, json| {
            TEXTS.iter().all(|name| json.get(*name).is_some_and(Value::is_string))
                && json.get("retryable").is_some_and(Value::is_boolean)
                && json.get("status").and_then(Value::as_u64) == Some(u64::from(refusal.status))
        },
    )
}

/// A refusal's members agree with the catalogue's row.
pub(crate) async fn catalogue(lab: &Lab) -> Outcome {
    each(lab, "status, type and domain of the catalogue's row", |_, json| {
        let member = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default();
        let Some(kind) =
            FaultKind::parse(member("code")).filter(|kind| kind.entry().code == member("code"))
        else {
            return true;
        };
        let entry = kind.entry();
        let status = json.get("status").and_then(Value::as_u64);
        status == Some(u64::from(entry.status))
            && member("type") == entry.problem_type()
            && member("domain") == entry.domain.as_str()
    })
}

pub(crate) async fn request_id(lab: &Lab) -> Outcome {
    each(lab, "an X-Request-ID that the problem repeats", |refusal, json| {
        let member = json.get("request_id").and_then(Value::as_str);
        member.is_some() && member == refusal.header("x-request-id")
    })
}

pub(crate) async fn retry_after(lab: &Lab) -> Outcome {
    each(lab, "a Retry-After that agrees with retry_after, or neither", |refusal, json| {
        let member = json.get("retry_after").map(Value::to_string);
        member.as_deref() == refusal.header("retry-after")
    })?;
    let has_wait =
        lab.refusals()?.iter().any(|refusal| refusal.json().get("retry_after").is_some());
    if has_wait {
        Ok(())
    } else {
        Err(NotPassed::skip("no refusal had a wait: --fault-query with one"))
    }
}

/// The problem's type is a page that a person can read.
pub(crate) async fn page(lab: &Lab) -> Outcome {
    let refusals = lab.refusals()?;
    let kind =
        refusals.iter().find_map(|refusal| Some(refusal.json().get("type")?.as_str()?.to_owned()));
    let Some(kind) = kind.filter(|kind| kind.starts_with('/')) else {
        return Err(NotPassed::skip("problems have no type below this server"));
    };
    let exchange = lab.send(&Ask::get(kind).header("accept", "text/html")).await?;
    exchange
        .expect(exchange.status == 200 && exchange.media_type() == "text/html", "200 and a page")
}

fn offered(exchange: &Exchange, what: &str) -> Outcome {
    if exchange.status == 404 {
        Err(NotPassed::skip(format!("not offered: {what}")))
    } else {
        Ok(())
    }
}

pub(crate) async fn health(lab: &Lab) -> Outcome {
    let exchange = lab.send(&Ask::get("/health")).await?;
    offered(&exchange, "GET /health")?;
    let read = decode::from_slice::<HealthCheckResponse>(&exchange.body);
    exchange.expect(exchange.status == 200 && read.is_ok(), "200 and a HealthCheckResponse")
}

pub(crate) async fn ready(lab: &Lab) -> Outcome {
    let exchange = lab.send(&Ask::get("/readyz")).await?;
    offered(&exchange, "GET /readyz")?;
    exchange.expect(exchange.status == 200, "200: it takes runs")
}

/// The headers that a page must be able to send.
const SENT: [&str; 7] = [
    "authorization",
    "content-type",
    "last-event-id",
    "x-request-id",
    "x-tenant-id",
    "x-run-id",
    "x-cap-accept",
];
/// The headers that a page must be able to read.
const READ: [&str; 4] = ["x-request-id", "x-stream-id", "x-stream-ticket", "retry-after"];

fn lists(exchange: &Exchange, header: &str, wanted: &[&str]) -> Outcome {
    let value = exchange.header(header).unwrap_or_default().to_ascii_lowercase();
    let missing = wanted.iter().find(|name| !value.split(',').any(|item| item.trim() == **name));
    match missing {
        None => Ok(()),
        Some(name) => {
            Err(exchange
                .broken(format!("{header} that lists {name}"), format!("{header}: {value}")))
        }
    }
}

fn allows(lab: &Lab, exchange: &Exchange) -> Outcome {
    let allowed = exchange.header("access-control-allow-origin");
    if allowed.is_some() {
        return Ok(());
    }
    Err(NotPassed::skip(format!("pages of {} may not call: --origin", lab.target.origin)))
}

pub(crate) async fn preflight(lab: &Lab) -> Outcome {
    let ask = Ask::new(Method::OPTIONS, &*lab.assist)
        .header("origin", &lab.target.origin)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type, last-event-id");
    let exchange = lab.send(&ask.by(crate::wire::Who::Nobody)).await?;
    allows(lab, &exchange)?;
    exchange.expect(exchange.status < 300, "a preflight that is answered without a key")?;
    lists(&exchange, "access-control-allow-headers", &SENT)
}

pub(crate) async fn exposed(lab: &Lab) -> Outcome {
    let ask = Ask::post(&*lab.assist, "{}").header("origin", &lab.target.origin);
    let exchange = lab.send(&ask).await?;
    allows(lab, &exchange)?;
    lists(&exchange, "access-control-expose-headers", &READ)
}
