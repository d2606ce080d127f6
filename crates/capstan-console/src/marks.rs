//! The packets of a run without content. Of a long run only a sample of packets is read.

use std::collections::BTreeSet;

use capstan_journal::{Frame, JournalError, Run};
use capstan_protocol::{Payload, StreamPacket, sse};
use serde::Deserialize;

use super::answers::{Mark, Marks};
use crate::Console;

/// Up to this many packets, all are returned.
const ALL: u64 = 20_000;
/// Beyond that, this many places are sampled.
const SEEKS: u64 = 1_000;
/// The limit of bytes. The answer says how far it came.
const MOST_BYTES: usize = 16 * 1024 * 1024;
/// How much is read at once, in packets and bytes.
const STEP: (usize, usize) = (1024, 1024 * 1024);

/// The range of packets, both ends included, and how many places are sampled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) columns: u64,
}

pub(crate) async fn of(console: &Console, run: &Run, span: Span) -> Result<Marks, JournalError> {
    let (from, to) = (span.from.max(1), span.to.min(run.last_seq));
    if from > to {
        return Ok(Marks { complete: true, read_to: to, ..Marks::default() });
    }
    if to - from < ALL {
        all(console, run, from, to).await
    } else {
        some(console, run, from, to, span.columns).await
    }
}

async fn all(console: &Console, run: &Run, from: u64, to: u64) -> Result<Marks, JournalError> {
    let (mut marks, mut read, mut after) = (Vec::new(), 0_usize, from - 1);
    while after < to && read < MOST_BYTES {
        let frames = console.engine.store().read(run.stream_id, after, STEP.0, STEP.1).await?;
        let Some(last) = frames.last().map(|frame| frame.seq) else {
            // Purged, or lost: there is nothing more.
            after = to;
            break;
        };
        read = read.saturating_add(frames.iter().map(|frame| frame.bytes.len()).sum());
        after = last;
        marks.extend(
            frames.iter().filter(|frame| frame.seq <= to).filter_map(|frame| mark(run, frame)),
        );
    }
    Ok(Marks { marks, complete: after >= to, read_to: after.min(to), sampled: false })
}

async fn some(
    console: &Console,
    run: &Run,
    from: u64,
    to: u64,
    columns: u64,
) -> Result<Marks, JournalError> {
    let (mut marks, mut read, mut read_to) = (Vec::new(), 0_usize, from - 1);
    for seq in places(run, from, to, columns) {
        if read >= MOST_BYTES {
            return Ok(Marks { marks, complete: false, read_to, sampled: true });
        }
        // One packet, and with it the block in which it lies.
        let frames = console.engine.store().read(run.stream_id, seq - 1, 1, 1).await?;
        read = read.saturating_add(frames.iter().map(|frame| frame.bytes.len().max(BLOCK)).sum());
        read_to = seq;
        marks.extend(
            frames.iter().filter(|frame| frame.seq <= to).filter_map(|frame| mark(run, frame)),
        );
    }
    marks.dedup_by_key(|mark| mark.0);
    Ok(Marks { marks, complete: true, read_to: to, sampled: true })
}

/// The least cost of reading a packet: the block that contains it.
const BLOCK: usize = 8 * 1024;

/// The places to sample: evenly, and at packets that the record names.
fn places(run: &Run, from: u64, to: u64, columns: u64) -> BTreeSet<u64> {
    let count = columns.clamp(2, SEEKS - 4 * capstan_journal::Attempt::KEPT as u64);
    let step = (to - from).div_ceil(count).max(1);
    let even = (0..count).map(|n| from.saturating_add(n.saturating_mul(step)));
    let known = run.attempts.iter().flat_map(|attempt| {
        let after_reset = attempt.reset_to.and(attempt.from_seq);
        [attempt.from_seq, attempt.to_seq, attempt.fault_seq, after_reset].into_iter().flatten()
    });
    let ends = [from, to];
    even.chain(known).chain(ends).filter(|seq| (from..=to).contains(seq)).collect()
}

fn mark(run: &Run, frame: &Frame) -> Option<Mark> {
    let packet = sse::decode_packet(&frame.bytes)?;
    let t = (packet.t.as_micros() - run.created_at.as_micros()) / 1000;
    Some(Mark(frame.seq, t, packet.op().as_str(), event_type(&packet), frame.bytes.len()))
}

fn event_type(packet: &StreamPacket) -> Option<String> {
    /// Longer ones are no types.
    const LONGEST: usize = 64;
    #[derive(Deserialize)]
    struct Typed {
        #[serde(alias = "event", alias = "kind")]
        r#type: Option<String>,
    }
    let Payload::Event(event) = &packet.payload else { return None };
    let kind = serde_json::from_str::<Typed>(event.get()).ok()?.r#type?;
    Some(kind.chars().take(LONGEST).collect())
}

#[cfg(test)]
mod tests {
    use capstan_journal::{Attempt, Claim};
    use capstan_protocol::Timestamp;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_long_run_is_looked_at_in_so_many_places_and_where_it_is_worth_it() {
        let mut run = Claim::new("t", "k", Uuid::nil(), Timestamp::now()).to_run();
        run.attempts = (1..=32)
            .map(|n| Attempt {
                fault_seq: Some(u64::from(n) * 3001),
                from_seq: Some(u64::from(n) * 3000),
                ..Attempt::new(n, run.created_at)
            })
            .collect();
        for columns in [0, 100, u64::MAX] {
            let places = places(&run, 1, 1_000_000, columns);
            assert!(places.len() as u64 <= SEEKS, "{}", places.len());
            assert!([1, 3001, 96_032, 1_000_000].iter().all(|seq| places.contains(seq)));
        }
        assert_eq!(places(&run, 1, u64::MAX, 1000).last(), Some(&u64::MAX));
    }
}
