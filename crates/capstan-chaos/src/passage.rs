//! A body on its way: each piece is walked byte by byte to the places where its stream's fate
//! strikes.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;

use crate::fate::{Stalling, Stopping};
use crate::faults::Hangup;
use crate::frames::{Packet, Scanner};
use crate::ledger::Ledger;
use crate::memory::{Memory, StreamKey};
use crate::outlet::Outlet;

/// One body: the bytes that passed, and the faults that will strike.
#[derive(Debug)]
pub(crate) struct Passage<'a> {
    pub(crate) scanner: Scanner,
    pub(crate) stall: Option<Stalling>,
    pub(crate) stop: Option<Stopping>,
    pub(crate) ledger: &'a Ledger,
    /// The memory for packets of event streams.
    pub(crate) keep: Option<(&'a Memory, StreamKey)>,
}

/// The result of a piece.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    /// The number of bytes that pass.
    passed: usize,
    /// Before this one there is silence.
    stall: Option<(usize, Duration)>,
    /// The fault that stops the rest.
    stop: Option<Stop>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Cut(Hangup),
    End,
}

impl Passage<'_> {
    /// Writes a piece, or what its fate leaves of it. Returns how to hang up if nothing more may
    /// follow.
    pub(crate) async fn pass<W>(
        &mut self,
        data: &[u8],
        out: &mut Outlet<W>,
    ) -> io::Result<Option<Hangup>>
    where
        W: AsyncWrite + Unpin,
    {
        let step = self.walk(data);
        // A cut leaves a chunk unfinished, as a network would; a clean end needs a complete one.
        let promised = if step.stop == Some(Stop::End) { step.passed } else { data.len() };
        let (passed, _) = data.split_at_checked(step.passed).unwrap_or((data, &[]));
        out.start_chunk(promised).await?;
        match step.stall {
            None => out.write(passed).await?,
            Some((index, time)) => {
                let (before, after) = passed.split_at_checked(index).unwrap_or((passed, &[]));
                out.write(before).await?;
                tokio::time::sleep(time).await;
                out.write(after).await?;
            }
        }
        if let Some(Stop::Cut(hangup)) = step.stop {
            return Ok(Some(hangup));
        }
        out.end_chunk(promised).await?;
        if step.stop.is_none() {
            return Ok(None);
        }
        out.finish().await?;
        Ok(Some(Hangup::Fin))
    }

    fn walk(&mut self, data: &[u8]) -> Step {
        let mut step = Step::default();
        for (index, byte) in data.iter().copied().enumerate() {
            let settled = self.scanner.settle(byte);
            self.note(settled);
            if let Some(stall) = self.strike_stall(byte) {
                step.stall = Some((index, stall.time));
                step.stop = stall.then.map(Stop::Cut);
            }
            step.stop = step.stop.or_else(|| self.strike_stop(byte));
            if step.stop.is_some() {
                break;
            }
            let passed = self.scanner.pass(byte);
            self.note(passed);
            step.passed = index + 1;
        }
        step
    }

    fn strike_stall(&mut self, next: u8) -> Option<Stalling> {
        let stall = self.stall.take_if(|stall| stall.place.is_before(next, &self.scanner))?;
        self.ledger.spend(|tally| &mut tally.stalls).then_some(stall)
    }

    fn strike_stop(&mut self, next: u8) -> Option<Stop> {
        let stop = self
            .stop
            .take_if(|stop| stop.place().is_some_and(|p| p.is_before(next, &self.scanner)))?;
        match stop {
            Stopping::Cut(_, hangup) => {
                self.ledger.spend(|tally| &mut tally.cuts).then_some(Stop::Cut(hangup))
            }
            Stopping::End(_) => self.ledger.spend(|tally| &mut tally.ends).then_some(Stop::End),
            Stopping::BeforeHead(_) => None,
        }
    }

    fn note(&self, packet: Option<Packet>) {
        let (Some(packet), Some((memory, key))) = (packet, self.keep) else { return };
        self.ledger.count_packet();
        if let Packet { id: Some(id), bytes: Some(bytes) } = packet {
            memory.keep(key, id, Bytes::from(bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strike_point::{Spot, StrikePoint};

    const BODY: &str = ":\nid: 1\ndata: \u{e9}\n\nid: 2\ndata: b\n\n";

    /// The part of the body before a stop at this place, for any chunks.
    fn left(bytes: u64, packets: u64, spot: Spot) -> Vec<u8> {
        let cut = |size: usize| {
            let ledger = Ledger::default();
            let stop = Some(Stopping::Cut(StrikePoint { bytes, packets, spot }, Hangup::Fin));
            let mut passage = Passage {
                scanner: Scanner::default(),
                stall: None,
                stop,
                ledger: &ledger,
                keep: None,
            };
            let mut left = Vec::new();
            for piece in BODY.as_bytes().chunks(size) {
                let step = passage.walk(piece);
                left.extend_from_slice(&piece[..step.passed]);
                if step.stop.is_some() {
                    break;
                }
            }
            left
        };
        let whole = cut(BODY.len());
        assert!((1..BODY.len()).all(|size| cut(size) == whole));
        whole
    }

    fn up_to(text: &str) -> Vec<u8> {
        let end = BODY.find(text).unwrap() + text.len();
        BODY.as_bytes()[..end].to_vec()
    }

    #[test]
    fn a_place_is_found_whatever_the_pieces() {
        assert_eq!(left(0, 0, Spot::Here), b"");
        assert_eq!(left(5, 0, Spot::Here), &BODY.as_bytes()[..5]);
        assert_eq!(left(0, 1, Spot::Here), up_to("\u{e9}\n\n"));
        assert_eq!(left(5, 0, Spot::Boundary), up_to("\u{e9}\n\n"));
        assert_eq!(left(0, 1, Spot::Inside(7)), up_to("id: 2\nd"));
        assert_eq!(
            left(0, 1, Spot::Inside(999)),
            up_to("data: b\n"),
            "a short frame still loses its last byte"
        );
        let mut half = up_to("data: ");
        half.push("\u{e9}".as_bytes()[0]);
        assert_eq!(left(0, 0, Spot::Character), half);
    }

    #[test]
    fn where_nothing_follows_nothing_is_withheld() {
        assert_eq!(left(0, 2, Spot::Here), BODY.as_bytes());
        assert_eq!(left(0, 1, Spot::Character), BODY.as_bytes());
    }

    #[test]
    fn a_spent_budget_lets_everything_pass() {
        let ledger = Ledger::new(Some(0));
        let place = StrikePoint { bytes: 0, packets: 0, spot: Spot::Here };
        let stall = Some(Stalling { place, time: Duration::MAX, then: Some(Hangup::Reset) });
        let stop = Some(Stopping::End(place));
        let mut passage =
            Passage { scanner: Scanner::default(), stall, stop, ledger: &ledger, keep: None };
        assert_eq!(passage.walk(b"abc"), Step { passed: 3, stall: None, stop: None });
    }
}
