//! A long run: its client leaves, comes back and stops it.

use std::time::Duration;

use capstan_protocol::{Close, Cursor};
use serde_json::Value;
use tokio::time::Instant;

use super::watch::path;
use crate::frames::Frame;
use crate::lab::{Lab, share};
use crate::outcome::{NotPassed, Outcome};
use crate::question::Question;
use crate::recording::Stopped;
use crate::wire::{Ask, End, Exchange};

/// Packets that show that a run continues. The first ones may have been on the way when the client
/// hung up.
const SIGNS_OF_LIFE: usize = 5;

fn packets(exchange: &Exchange) -> Vec<Frame> {
    exchange.frames().frames.into_iter().filter(Frame::has_data).collect()
}

fn op(frame: &Frame) -> String {
    frame.text("op").unwrap_or_default()
}

/// Why a stream was closed, if this is its CLOSE.
fn reason(frame: &Frame) -> Option<String> {
    let json = frame.json();
    let p = json.get("p").filter(|_| op(frame) == "CLOSE")?;
    Some(p.as_str().or_else(|| p.get("reason")?.as_str()).unwrap_or_default().to_owned())
}

fn cursor(exchange: &Exchange) -> Option<Cursor> {
    exchange.frames().frames.last()?.field("id")?.parse().ok()
}

async fn stopped(lab: &Lab) -> Result<&Stopped, NotPassed> {
    share(&lab.stopped, stop_it(lab)).await
}

async fn stop_it(lab: &Lab) -> Result<Stopped, NotPassed> {
    let question = Question::cap(lab.target.queries.slow.as_deref().unwrap_or_default());
    let mut live = lab.open(&lab.ask(&question)).await?;
    let has_begun = live.read_until(|seen| !packets(seen).is_empty()).await;
    let left_at = cursor(&live.seen).filter(|_| has_begun);
    let left_at =
        left_at.ok_or_else(|| NotPassed::skip("the slow query's stream did not begin"))?;
    // Closes the connection.
    drop(live);
    let mut back = lab.open(&lab.ask(&question).after(left_at)).await?;
    back.read_until(|seen| packets(seen).len() >= SIGNS_OF_LIFE).await;
    let back_before = packets(&back.seen);
    let stream = path(left_at.stream_id);
    let stop = lab.send(&Ask::delete(&*stream)).await?;
    let replay = lab.send(&Ask::get(&*stream)).await?;
    let again = lab.send(&Ask::delete(&*stream)).await?;
    let replay_again = lab.send(&Ask::get(&*stream)).await?;
    // A response that was left early is read to its end.
    let back = if back.seen.end == End::Left { back.finish().await } else { back.seen };
    Ok(Stopped { left_at, back, back_before, stop, replay, again, replay_again })
}

pub(crate) async fn disconnect(lab: &Lab) -> Outcome {
    let run = stopped(lab).await?;
    run.back.expect(run.back.is_stream(), "200: the run is still there")?;
    let is_bad = |frame: &Frame| {
        op(frame) == "ERROR" || reason(frame).is_some_and(|reason| reason != Close::COMPLETED)
    };
    let expected = format!("packets after {}: the run continued without viewers", run.left_at.seq);
    match run.back_before.iter().find(|frame| is_bad(frame)) {
        Some(frame) => Err(run.back.broken(expected, frame.data())),
        None if run.back_before.is_empty() => Err(run.back.broken(expected, &run.back.end)),
        None => Ok(()),
    }
}

/// Fails if the run had ended already.
fn is_stoppable(run: &Stopped) -> Outcome {
    let has_ended = run.back_before.iter().any(|frame| op(frame) == "CLOSE");
    if has_ended {
        Err(NotPassed::skip("the slow query's run ended before it could be stopped: --slow-query"))
    } else {
        Ok(())
    }
}

pub(crate) async fn stop(lab: &Lab) -> Outcome {
    let run = stopped(lab).await?;
    is_stoppable(run)?;
    run.stop.expect(run.stop.status == 200, "200")?;
    let frames = packets(&run.replay);
    let came = frames.last().map_or_else(|| run.replay.summary(), |frame| frame.data().to_owned());
    let is_so = run.replay.end == End::Clean
        && frames.last().and_then(reason).as_deref() == Some(Close::CANCELLED);
    if is_so {
        Ok(())
    } else {
        Err(run.stop.broken("CLOSE cancelled in the journal once DELETE is answered", came))
    }
}

pub(crate) async fn viewer(lab: &Lab) -> Outcome {
    let run = stopped(lab).await?;
    is_stoppable(run)?;
    let last = packets(&run.back).last().map(op);
    let is_so = last.as_deref() == Some("CLOSE") && run.back.end == End::Clean;
    let came = format!("last {}, then {}", last.unwrap_or_default(), run.back.end);
    if is_so {
        Ok(())
    } else {
        Err(run.back.broken("viewers see the CLOSE, and the body ends", came))
    }
}

pub(crate) async fn again(lab: &Lab) -> Outcome {
    let run = stopped(lab).await?;
    run.again.expect(run.again.status == 200, "200: a finished run is unchanged")?;
    let is_so = packets(&run.replay) == packets(&run.replay_again);
    run.replay_again.expect(is_so, "the same stream as before the second DELETE")
}

/// Heartbeats come every 15 s; a busy server may be a little late.
const HEARTBEAT: Duration = Duration::from_secs(20);

pub(crate) async fn heartbeat(lab: &Lab) -> Outcome {
    let question = Question::cap(lab.target.queries.quiet.as_deref().unwrap_or_default());
    let mut live = lab.open(&lab.ask(&question)).await?;
    live.deadline = Instant::now() + HEARTBEAT;
    let has_beat = live
        .read_until(|seen| {
            String::from_utf8_lossy(&seen.body).lines().any(|line| line.starts_with(':'))
        })
        .await;
    if let Some(cursor) = cursor(&live.seen) {
        lab.send(&Ask::delete(path(cursor.stream_id))).await?;
    }
    let body = String::from_utf8_lossy(&live.seen.body).into_owned();
    let is_quiet = packets(&live.seen).is_empty();
    match (has_beat, is_quiet) {
        (true, _) if body.contains(":\n\n") => {
            Err(live.seen.broken("a heartbeat without a blank line", body))
        }
        (true, _) => Ok(()),
        (false, true) => Err(live.seen.broken("a line `:` after 15 s of silence", body)),
        (false, false) => Err(NotPassed::skip("the quiet query's agent spoke: --quiet-query")),
    }
}

/// The summary that a stop is answered with.
pub(crate) async fn summary(lab: &Lab) -> Outcome {
    let run = stopped(lab).await?;
    is_stoppable(run)?;
    let json = run.stop.json();
    let member = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_so =
        member("stream_id") == run.left_at.stream_id.to_string() && member("state") == "closed";
    run.stop.expect(is_so, "the run's summary: its stream_id, and state closed")
}
