//! The writer of one call, which knows whether anything was said: after that, nobody else may be asked in its attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use capstan_agent::{Clock, Output, Stopped, Writer};
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::seam::Seam;

pub(crate) struct AttemptWriter<'a> {
    out: &'a mut Writer,
    has_written: bool,
    seat: Option<Seat>,
}

/// A call of a route: what is said before its answer is held back, since another may answer in its place.
pub(crate) struct Seat {
    member: Arc<str>,
    floor: Arc<Floor>,
    number: usize,
    clock: Clock,
    began: Instant,
    first_token: Option<Duration>,
    pieces: u64,
    held: Vec<Output>,
    has_reason: bool,
    seam: Option<Seam>,
}

/// Who of several may speak: the first who wants to.
#[derive(Default)]
pub(crate) struct Floor {
    /// 0 while nobody has it.
    taken_by: AtomicUsize,
    taken: Notify,
}

impl Floor {
    fn take(&self, number: usize) -> bool {
        let taken = self.taken_by.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire);
        let is_ours = taken.map_or_else(|by| by == number, |_| true);
        if taken.is_ok() {
            self.taken.notify_one();
        }
        is_ours
    }

    /// Returns when somebody has it, with its number.
    pub(crate) async fn taken(&self) -> usize {
        loop {
            let by = self.taken_by.load(Ordering::Acquire);
            if by != 0 {
                return by;
            }
            self.taken.notified().await;
        }
    }
}

/// What is known of a call of a route that is over.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) first_token: Option<Duration>,
    pub(crate) took: Duration,
    pub(crate) pieces: u64,
    /// What it took, if it said nothing else.
    pub(crate) usage: Option<Map<String, Value>>,
    /// It gave a reason for its end.
    pub(crate) has_reason: bool,
}

impl<'a> AttemptWriter<'a> {
    pub(crate) fn new(out: &'a mut Writer) -> Self {
        Self { out, has_written: false, seat: None }
    }

    /// For one call of a route.
    pub(crate) fn seated(out: &'a mut Writer, seat: Seat) -> Self {
        Self { out, has_written: false, seat: Some(seat) }
    }

    pub(crate) fn has_written(&self) -> bool {
        self.has_written
    }

    /// Writes what a decoder made; waits while the journal is slow.
    pub(crate) async fn say(&mut self, outputs: &mut Vec<Output>) -> Result<(), Stopped> {
        for output in outputs.drain(..) {
            match &mut self.seat {
                // Nothing is in the way of what follows the first token.
                Some(seat) if self.has_written && seat.seam.is_none() => {
                    seat.pieces += 1;
                    self.out.put(output).await?;
                }
                Some(_) => self.say_seated(output).await?,
                None => {
                    self.has_written |= output.is_answer();
                    self.out.put(output).await?;
                }
            }
        }
        Ok(())
    }

    async fn say_seated(&mut self, output: Output) -> Result<(), Stopped> {
        let Some(seat) = &mut self.seat else { return Ok(()) };
        seat.has_reason |= matches!(output, Output::Reason(_));
        let ready = match (output, &mut seat.seam) {
            // A stop must find what was started elsewhere, whoever answers; by whom it was started is in the id.
            (Output::FarId(id), _) => {
                return self.out.put(Output::FarId(format!("{}/{id}", seat.member))).await;
            }
            (Output::Delta(piece), Some(seam)) => seam.take(&piece),
            (output, Some(seam)) if output.is_answer() => {
                let mut before = seam.finish();
                before.push(output);
                before
            }
            (output, _) => vec![output],
        };
        if seat.seam.as_ref().is_some_and(Seam::is_closed) {
            seat.seam = None;
        }
        if !self.has_written && !ready.iter().any(Output::is_answer) {
            seat.held.extend(ready);
            return Ok(());
        }
        seat.pieces += 1;
        self.open().await?;
        for output in ready {
            self.out.put(output).await?;
        }
        Ok(())
    }

    /// Takes the floor, and says what was held back. Who does not get it waits to be hung up.
    pub(crate) async fn open(&mut self) -> Result<&mut Writer, Stopped> {
        let is_first = !std::mem::replace(&mut self.has_written, true);
        if let Some(seat) = self.seat.as_mut().filter(|_| is_first) {
            if !seat.floor.take(seat.number) {
                std::future::pending::<()>().await;
            }
            seat.first_token = Some(seat.clock.instant() - seat.began);
            self.out.put(Output::Member(Arc::clone(&seat.member))).await?;
            for held in seat.held.drain(..) {
                self.out.put(held).await?;
            }
        }
        Ok(self.out)
    }

    /// Whether the writer itself was used.
    pub(crate) fn note_written(&mut self) {
        self.has_written = self.out.has_answered();
    }

    /// The answer is complete: what a seam still holds is said, and why it ends, if there is nothing else to say.
    pub(crate) async fn complete(&mut self) -> Result<(), Stopped> {
        let seam = self.seat.as_mut().and_then(|seat| seat.seam.take());
        for output in seam.map(|mut seam| seam.finish()).unwrap_or_default() {
            self.open().await?.put(output).await?;
        }
        if self.seat.as_ref().is_some_and(|seat| seat.has_reason) {
            self.open().await?;
        }
        Ok(())
    }

    /// What is known of the call, now that it is over.
    pub(crate) fn seen(self) -> Seen {
        let Some(seat) = self.seat else { return Seen::default() };
        let usage = seat.held.into_iter().rev().find_map(|held| match held {
            Output::Usage(usage) => Some(usage),
            _ => None,
        });
        let (first_token, took) = (seat.first_token, seat.clock.instant() - seat.began);
        Seen { first_token, took, pieces: seat.pieces, usage, has_reason: seat.has_reason }
    }
}

impl Seat {
    pub(crate) fn new(
        member: Arc<str>,
        floor: Arc<Floor>,
        number: usize,
        clock: Clock,
        seam: Option<Seam>,
    ) -> Self {
        let began = clock.instant();
        let (held, first_token, pieces, has_reason) = (Vec::new(), None, 0, false);
        Self { member, floor, number, clock, began, first_token, pieces, held, has_reason, seam }
    }
}

#[cfg(test)]
mod tests {
    use capstan_agent::channel;

    use super::*;

    #[tokio::test]
    async fn before_an_answer_nothing_is_said_and_only_one_gets_the_floor() {
        let (mut first, mut inbox) = channel(16);
        let mut second = first.beside();
        let floor = Arc::<Floor>::default();
        let seat =
            |name: &str, number| Seat::new(name.into(), Arc::clone(&floor), number, Clock::default(), None);
        let mut a = AttemptWriter::seated(&mut first, seat("a", 1));
        let mut b = AttemptWriter::seated(&mut second, seat("b", 2));
        a.say(&mut vec![Output::Model("m-a".into())]).await.unwrap();
        b.say(&mut vec![Output::Model("m-b".into()), Output::Delta("hi".into())]).await.unwrap();
        assert_eq!(floor.taken().await, 2);
        let mut late = vec![Output::Delta("late".into())];
        let late = tokio::time::timeout(Duration::from_millis(1), a.say(&mut late)).await;
        assert!(late.is_err(), "it waits to be hung up");
        let said = [Output::Member("b".into()), Output::Model("m-b".into()), Output::Delta("hi".into())];
        for output in said {
            assert_eq!(inbox.recv().await, Some(output));
        }
        assert!(inbox.try_recv().is_err());
    }
}
