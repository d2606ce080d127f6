//! Failures in AG-UI: of a run, and before it.

use capstan_protocol::AguiErrorCode;
use serde_json::Value;
use uuid::Uuid;

use super::stream::kind;
use crate::frames::Frame;
use crate::lab::Lab;
use crate::outcome::{NotPassed, Outcome};
use crate::question::Question;
use crate::recording::Recording;
use crate::wire::{Ask, Exchange};

fn run_error(run: &Recording) -> Result<&Frame, NotPassed> {
    let packets = run.packets();
    let last = packets.last().copied().filter(|frame| kind(frame) == "RUN_ERROR");
    last.ok_or_else(|| NotPassed::skip("the fault query did not fail"))
}

/// The gateway's own members, wherever this server puts them.
fn ours(frame: &Frame) -> Result<Value, NotPassed> {
    let json = frame.json();
    let is_ours = json.pointer("/metadata/capstan").is_some() || json.get("http_status").is_some();
    if is_ours {
        Ok(json)
    } else {
        Err(NotPassed::skip("an extension: RUN_ERROR has a message alone"))
    }
}

pub(crate) async fn code(lab: &Lab) -> Outcome {
    let run = lab.agui_fault().await?;
    let json = ours(run_error(run)?)?;
    let code = json.get("code").and_then(Value::as_str).unwrap_or_default();
    let known = code.parse::<AguiErrorCode>().ok();
    let status = json.get("http_status").and_then(Value::as_u64);
    let is_so = known.is_some_and(|code| status == Some(u64::from(code.http_status())));
    if is_so {
        Ok(())
    } else {
        Err(run.exchange.broken("one of the ten codes, with its http_status", json))
    }
}

pub(crate) async fn members(lab: &Lab) -> Outcome {
    let run = lab.agui_fault().await?;
    let json = ours(run_error(run)?)?;
    let capstan = json.pointer("/metadata/capstan");
    let member = |name: &str| capstan.and_then(|c| c.get(name));
    let texts = ["kind", "severity", "domain", "type"];
    let is_so = json.get("message").is_some_and(Value::is_string)
        && json.get("details").is_some_and(Value::is_object)
        && texts.iter().all(|name| member(name).is_some_and(Value::is_string))
        && member("retryable").is_some_and(Value::is_boolean);
    let expected =
        "message, details, and under metadata.capstan kind, severity, domain, retryable and type";
    if is_so { Ok(()) } else { Err(run.exchange.broken(expected, json)) }
}

pub(crate) async fn event_name(lab: &Lab) -> Outcome {
    let run = lab.agui_fault().await?;
    let frame = run_error(run)?;
    ours(frame)?;
    if frame.field("event") == Some("RUN_ERROR") {
        Ok(())
    } else {
        Err(run.exchange.broken("event: RUN_ERROR beside the data", &frame.raw))
    }
}

pub(crate) async fn unreadable(lab: &Lab) -> Outcome {
    let exchange = lab.send(&Ask::post(&*lab.agui, "{\"threadId\": ")).await?;
    exchange.expect(exchange.status == 400, "400")
}

/// Expects a stream whose only event is RUN_ERROR, without an id.
fn only_error(exchange: &Exchange, code: AguiErrorCode) -> Result<Value, NotPassed> {
    let frames = exchange.frames().frames;
    let only = match frames.as_slice() {
        [only]
            if exchange.is_stream() && kind(only) == "RUN_ERROR" && only.field("id").is_none() =>
        {
            Some(only)
        }
        _ => None,
    };
    let only = only.filter(|frame| frame.text("code").as_deref() == Some(code.as_str()));
    only.map(Frame::json).ok_or_else(|| {
        exchange.broken(
            format!("200 and nothing but RUN_ERROR {code}, without an id"),
            exchange.summary(),
        )
    })
}

pub(crate) async fn conflict(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    let other = Question::agui_under(run.question.id, "Something else", None);
    only_error(&lab.send(&lab.ask_agui(&other)).await?, AguiErrorCode::InvalidRequest).map(drop)
}

/// Clients of the 1.0 line warn about members that they do not know.
pub(crate) async fn version(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    let other = Question::agui_under(run.question.id, "Something else", Some("1.0"));
    let exchange = lab.send(&lab.ask_agui(&other)).await?;
    let json = only_error(&exchange, AguiErrorCode::InvalidRequest)?;
    let is_so = json.get("http_status").is_none()
        && json.pointer("/metadata/capstan/http_status").is_some();
    exchange.expect(
        is_so,
        "http_status under metadata.capstan alone, for a peer with a protocolVersion",
    )
}

/// Keys of both faces are in one space.
pub(crate) async fn key_space(lab: &Lab) -> Outcome {
    let taken = lab.plain().await?.question.id;
    let question = Question::agui_under(taken, lab.query(), None);
    only_error(&lab.send(&lab.ask_agui(&question)).await?, AguiErrorCode::InvalidRequest).map(drop)
}

/// The failure of an unknown run is an event as well.
pub(crate) async fn unknown(lab: &Lab) -> Outcome {
    let exchange = lab.send(&Ask::get(format!("{}?runId={}", lab.agui, Uuid::now_v7()))).await?;
    only_error(&exchange, AguiErrorCode::SessionNotFound).map(drop)
}
