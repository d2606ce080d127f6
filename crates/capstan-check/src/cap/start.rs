//! Start once: a key is one run, for any number and any spelling of its requests.

use futures_util::future::join_all;

use crate::lab::Lab;
use crate::outcome::{NotPassed, Outcome};
use crate::question::Question;
use crate::recording::Recording;
use crate::wire::Exchange;

/// The number of simultaneous requests: enough for a race, and few if each of them costs a run.
const RACERS: usize = 4;

/// The same stream, byte by byte.
pub(crate) fn same(exchange: &Exchange, run: &Recording) -> Outcome {
    exchange.expect(exchange.is_stream(), "200 and the run's stream")?;
    let frames = exchange.frames().frames;
    let came: Vec<&str> = frames.iter().filter(|f| f.has_data()).map(|f| f.raw.as_str()).collect();
    compare(exchange, &run.raw(), &came)
}

/// Frames that must be the same bytes.
pub(crate) fn compare(exchange: &Exchange, expected: &[&str], came: &[&str]) -> Outcome {
    let at = expected
        .iter()
        .zip(came)
        .position(|(a, b)| a != b)
        .unwrap_or(expected.len().min(came.len()));
    if at == expected.len() && at == came.len() {
        return Ok(());
    }
    let show = |frames: &[&str]| {
        frames.get(at).map_or_else(|| "the end of the body".to_owned(), |raw| (*raw).to_owned())
    };
    let expected = format!("the same bytes as before, as frame {}: {}", at + 1, show(expected));
    Err(exchange.broken(expected, show(came)))
}

pub(crate) async fn attach(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    same(&lab.send(&lab.ask(&run.question)).await?, run)
}

/// Equal is the JSON value, not how it is written.
pub(crate) async fn spacing(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    same(&lab.send(&lab.ask(&run.question.respaced())).await?, run)
}

pub(crate) async fn race(lab: &Lab) -> Outcome {
    let ask = lab.ask(&Question::cap(lab.query()));
    let answers = join_all((0..RACERS).map(|_| lab.send(&ask))).await;
    let answers: Vec<Exchange> = answers.into_iter().collect::<Result<_, NotPassed>>()?;
    let streams: Vec<String> = answers.iter().map(stream_of).collect();
    let Some((first, others)) = streams.split_first() else { return Ok(()) };
    let is_so = !first.is_empty() && others.iter().all(|stream| stream == first);
    let expected = format!("one stream for {RACERS} requests at once");
    if is_so { Ok(()) } else { Err(crate::wire::broken(&ask, expected, streams.join(", "))) }
}

/// The stream that the packets of a body name.
pub(crate) fn stream_of(exchange: &Exchange) -> String {
    let frames = exchange.frames().frames;
    frames.iter().find_map(|frame| frame.text("stream_id")).unwrap_or_else(|| exchange.summary())
}

pub(crate) async fn conflict(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let other = Question::cap_under(run.question.id, "Something else");
    lab.refused(&lab.ask(&other), 409, "request_conflict").await
}
