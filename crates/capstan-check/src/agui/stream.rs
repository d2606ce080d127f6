//! One run as a stream of events.

use std::collections::BTreeSet;

use capstan_protocol::Cursor;
use capstan_protocol::agui::{AguiEvent, Verifier, null_member};
use capstan_protocol::decode;

use crate::cap::packets::{judge_end, judge_separators};
use crate::frames::Frame;
use crate::lab::Lab;
use crate::outcome::{NotPassed, Outcome};
use crate::recording::Recording;

pub(crate) fn kind(frame: &Frame) -> String {
    frame.text("type").unwrap_or_default()
}

pub(crate) fn is_terminal(frame: &Frame) -> bool {
    matches!(kind(frame).as_str(), "RUN_FINISHED" | "RUN_ERROR")
}

fn each(run: &Recording, expected: &str, is_so: impl Fn(&Frame) -> bool) -> Outcome {
    match run.packets().into_iter().find(|frame| !is_so(frame)) {
        None => Ok(()),
        Some(frame) => Err(run.exchange.broken(expected, &frame.raw)),
    }
}

pub(crate) async fn answer(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    run.exchange.expect(run.exchange.is_stream(), "200 and a body of text/event-stream")
}

/// No proxy may hold events back or rewrite them.
pub(crate) async fn headers(lab: &Lab) -> Outcome {
    let run = &lab.agui_plain().await?.exchange;
    let (cache, encoding) =
        (run.header("cache-control").unwrap_or("none"), run.header("content-encoding"));
    let is_so =
        ["no-store", "no-transform"].iter().all(|word| cache.contains(word)) && encoding.is_none();
    let came = format!("Cache-Control: {cache}, Content-Encoding: {}", encoding.unwrap_or("none"));
    if is_so {
        Ok(())
    } else {
        Err(run.broken("Cache-Control: no-store, no-transform, and no Content-Encoding", came))
    }
}

pub(crate) async fn lines(lab: &Lab) -> Outcome {
    let run = &lab.agui_plain().await?.exchange;
    if run.body.contains(&b'\r') {
        Err(run.broken("lines that end in LF alone", run.summary()))
    } else {
        Ok(())
    }
}

pub(crate) async fn data(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    each(run, "one JSON object as data: no [DONE], nothing empty", |frame| {
        frame.fields.iter().filter(|(name, _)| name == "data").count() == 1
            && frame.json().is_object()
    })
}

pub(crate) async fn nulls(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    each(run, "absent members left out, never null", |frame| null_member(&frame.json()).is_none())
}

pub(crate) async fn separators(lab: &Lab) -> Outcome {
    judge_separators(lab.agui_plain().await?)
}

pub(crate) async fn events(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    for frame in run.packets() {
        if let Err(error) = decode::from_str::<AguiEvent>(frame.data()) {
            return Err(run.exchange.broken(format!("an event of AG-UI; {error}"), frame.data()));
        }
    }
    Ok(())
}

pub(crate) async fn started(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    let packets = run.packets();
    let first = packets.first().copied();
    let is_so = first.is_some_and(|frame| {
        kind(frame) == "RUN_STARTED" && frame.text("runId") == Some(run.question.id.to_string())
    });
    let came = first.map_or_else(|| run.exchange.summary(), |frame| frame.data().to_owned());
    if is_so {
        Ok(())
    } else {
        Err(run.exchange.broken(format!("RUN_STARTED of run {} at first", run.question.id), came))
    }
}

pub(crate) async fn terminal(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    let packets = run.packets();
    let count = packets.iter().filter(|frame| is_terminal(frame)).count();
    let is_so = count == 1 && packets.last().is_some_and(|frame| is_terminal(frame));
    let kinds: Vec<String> = packets.iter().rev().take(4).rev().map(|frame| kind(frame)).collect();
    if is_so {
        Ok(())
    } else {
        Err(run.exchange.broken(
            "exactly one RUN_FINISHED or RUN_ERROR, at last",
            format!("… {}", kinds.join(" ")),
        ))
    }
}

pub(crate) async fn end(lab: &Lab) -> Outcome {
    judge_end(lab.agui_plain().await?)
}

/// Messages, tool calls, steps and reasoning begin, continue and end as the published clients
/// require.
pub(crate) async fn sequence(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    let mut verifier = Verifier::default();
    for frame in run.packets() {
        verifier.check(&frame.json()).map_err(|why| {
            run.exchange.broken("a legal sequence of events", format!("{why}: {}", frame.data()))
        })?;
    }
    Ok(())
}

/// Servers without ids cannot be resumed, and AG-UI does not require ids.
fn identified(run: &Recording) -> Result<Vec<&Frame>, NotPassed> {
    let packets = run.packets();
    if packets.iter().any(|frame| frame.field("id").is_some()) {
        return Ok(packets);
    }
    Err(NotPassed::skip("an extension: the server gives events no ids"))
}

pub(crate) async fn ids(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    identified(run)?;
    each(run, "id: <stream_id>:<seq>.<k>", |frame| {
        let cursor = frame.field("id").and_then(|id| id.parse::<Cursor>().ok());
        cursor.is_some_and(|cursor| cursor.part.is_some())
    })
}

pub(crate) async fn unique(lab: &Lab) -> Outcome {
    let run = lab.agui_plain().await?;
    let mut seen = BTreeSet::new();
    let ids = identified(run)?.into_iter().filter_map(|frame| frame.field("id"));
    match ids.into_iter().find(|id| !seen.insert(*id)) {
        None => Ok(()),
        Some(id) => Err(run.exchange.broken("no id twice", id)),
    }
}
