//! Resuming: a cursor continues with the very bytes that follow it, or is refused.

use capstan_protocol::Cursor;
use uuid::Uuid;

use super::start::{compare, same};
use crate::lab::{Lab, share};
use crate::outcome::{NotPassed, Outcome};
use crate::question::Question;
use crate::recording::{Recording, Resumed};
use crate::wire::Exchange;

/// The number of cursors to try, spread over the stream.
const CURSORS: usize = 8;

/// Positions from the first to the last but one, spread evenly.
pub(crate) fn spread(count: usize) -> impl Iterator<Item = usize> {
    let step = count.div_ceil(CURSORS - 1).max(1);
    (0..count.saturating_sub(1))
        .step_by(step)
        .chain(count.checked_sub(2))
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
}

async fn resumed(lab: &Lab) -> Result<&Vec<Resumed>, NotPassed> {
    let make = Box::pin(async {
        let run = lab.plain().await?;
        let (stream, seqs, mut all) = (run.stream()?, run.seqs()?, Vec::new());
        for seq in spread(seqs.len()).filter_map(|at| seqs.get(at)) {
            let cursor = Cursor::new(stream, *seq);
            all.push(Resumed {
                cursor,
                exchange: lab.send(&lab.ask(&run.question).after(cursor)).await?,
            });
        }
        Ok(all)
    });
    share(&lab.resumed, make).await
}

/// The frames after a cursor in a recorded run.
pub(crate) fn tail(run: &Recording, seq: u64) -> Vec<&str> {
    let is_later = |frame: &&crate::frames::Frame| {
        frame.json().get("seq").and_then(|s| s.as_u64()) > Some(seq)
    };
    run.packets().into_iter().filter(is_later).map(|frame| frame.raw.as_str()).collect()
}

pub(crate) fn same_tail(exchange: &Exchange, run: &Recording, seq: u64) -> Outcome {
    exchange.expect(exchange.is_stream(), "200 and the rest of the stream")?;
    let frames = exchange.frames().frames;
    let came: Vec<&str> = frames.iter().filter(|f| f.has_data()).map(|f| f.raw.as_str()).collect();
    compare(exchange, &tail(run, seq), &came)
}

pub(crate) async fn resume(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    resumed(lab).await?.iter().try_for_each(|one| same_tail(&one.exchange, run, one.cursor.seq))
}

fn opens_at(exchange: &Exchange, cursor: Cursor) -> Outcome {
    let frames = exchange.frames().frames;
    let first = frames.first().filter(|frame| !frame.has_data());
    let is_so = first.is_some_and(|frame| frame.field("id") == Some(&cursor.to_string()));
    if is_so {
        Ok(())
    } else {
        Err(exchange
            .broken(format!("at first a frame that is only `id: {cursor}`"), exchange.summary()))
    }
}

pub(crate) async fn opening(lab: &Lab) -> Outcome {
    resumed(lab).await?.iter().try_for_each(|one| opens_at(&one.exchange, one.cursor))
}

/// RFC 004's literal client knows no more than the stream.
pub(crate) async fn bare(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    same(&lab.send(&lab.ask(&run.question).after(run.stream()?)).await?, run)
}

pub(crate) async fn past_end(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let seqs = run.seqs()?;
    let (Some(last), Some(close)) = (seqs.last(), run.raw().last().copied()) else { return Ok(()) };
    let exchange =
        lab.send(&lab.ask(&run.question).after(Cursor::new(run.stream()?, *last))).await?;
    exchange.expect(exchange.is_stream(), "200 and the CLOSE again")?;
    let frames = exchange.frames().frames;
    let came: Vec<&str> = frames.iter().filter(|f| f.has_data()).map(|f| f.raw.as_str()).collect();
    compare(&exchange, &[close], &came)
}

pub(crate) async fn lost(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    let beyond = run.seqs()?.last().copied().unwrap_or_default() + 1000;
    lab.refused(
        &lab.ask(&run.question).after(Cursor::new(run.stream()?, beyond)),
        410,
        "stream_lost",
    )
    .await
}

pub(crate) async fn foreign(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    lab.refused(
        &lab.ask(&run.question).after(Cursor::new(Uuid::now_v7(), 1)),
        400,
        "invalid_request",
    )
    .await
}

pub(crate) async fn unreadable(lab: &Lab) -> Outcome {
    let run = lab.plain().await?;
    lab.refused(&lab.ask(&run.question).after("no-cursor:x"), 400, "invalid_request").await
}

/// A client with a cursor must find its run: the server must not start a second one.
pub(crate) async fn unknown(lab: &Lab) -> Outcome {
    let fresh = Question::cap(lab.query());
    lab.refused(&lab.ask(&fresh).after(Cursor::new(Uuid::now_v7(), 1)), 410, "stream_expired").await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_spread_over_the_stream_and_leave_the_end_out() {
        assert_eq!(spread(0).count() + spread(1).count(), 0);
        assert_eq!(spread(3).collect::<Vec<_>>(), [0, 1]);
        let many: Vec<usize> = spread(100).collect();
        assert!(
            many.len() <= CURSORS && many.first() == Some(&0) && many.last() == Some(&98),
            "{many:?}"
        );
    }
}
