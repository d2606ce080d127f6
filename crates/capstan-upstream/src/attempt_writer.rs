//! The writer of an attempt or of one call, which knows whether anything was said: after that,
//! nobody else may be asked.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capstan_agent::{Clock, Output, Stopped, Writer};
use capstan_protocol::NATIVE;
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::seam::Seam;

pub(crate) struct AttemptWriter<'a> {
    out: Out<'a>,
    has_written: bool,
    /// `NATIVE` events of a call that has not answered yet. They go if another call follows.
    held: Vec<Output>,
    /// What the calls before this one took, and what this one has taken so far.
    earlier: Counts,
    present: Counts,
    seat: Option<Seat>,
}

type Counts = Map<String, Value>;

/// Where it goes.
enum Out<'a> {
    Lent(&'a mut Writer),
    /// To whoever has the floor, which is somebody else or nobody yet.
    Waiting,
    Taken(Box<Writer>),
}

/// A call of a route: what is said before its answer is held back, since another may answer in its
/// place.
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

/// Who of several may speak: the first who wants to gets the writer.
pub(crate) struct Floor {
    /// 0 while nobody has it.
    taken_by: AtomicUsize,
    taken: Notify,
    writer: Mutex<Option<Box<Writer>>>,
}

impl Floor {
    pub(crate) fn new(writer: Writer) -> Arc<Self> {
        let (taken_by, taken) = (AtomicUsize::new(0), Notify::new());
        Arc::new(Self { taken_by, taken, writer: Mutex::new(Some(Box::new(writer))) })
    }

    fn take(&self, number: usize) -> Option<Box<Writer>> {
        self.taken_by.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire).ok()?;
        self.taken.notify_one();
        self.borrow()
    }

    /// The writer, while nobody has it.
    pub(crate) fn borrow(&self) -> Option<Box<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn give_back(&self, writer: Box<Writer>) {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
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
    pub(crate) usage: Option<Counts>,
    /// It gave a reason for its end.
    pub(crate) has_reason: bool,
}

impl<'a> AttemptWriter<'a> {
    pub(crate) fn new(out: &'a mut Writer) -> Self {
        let (earlier, present) = (Counts::new(), Counts::new());
        Self { out: Out::Lent(out), has_written: false, held: vec![], earlier, present, seat: None }
    }

    /// For one call of a route.
    pub(crate) fn seated(seat: Seat) -> Self {
        let (earlier, present) = (Counts::new(), Counts::new());
        let (held, seat) = (Vec::new(), Some(seat));
        Self { out: Out::Waiting, has_written: false, held, earlier, present, seat }
    }

    pub(crate) fn has_written(&self) -> bool {
        self.has_written
    }

    /// The next call begins; what the one before took is paid for all the same.
    pub(crate) fn begin_call(&mut self) {
        add(&mut self.earlier, mem::take(&mut self.present));
        self.held.clear();
    }

    /// No other call follows: what was held is said.
    pub(crate) async fn end_calls(&mut self) -> Result<(), Stopped> {
        let mut held = mem::take(&mut self.held);
        match self.writer() {
            Some(writer) => writer.put_all(&mut held).await,
            None => Ok(()),
        }
    }

    /// Holds what only a client of the provider's protocol understands, until there is an answer.
    fn hold(&mut self, outputs: &mut Vec<Output>) {
        if self.has_written {
            if !self.held.is_empty() {
                outputs.splice(0..0, self.held.drain(..));
            }
            return;
        }
        self.held.extend(outputs.extract_if(.., |output| is_native(output)));
    }

    /// Where it goes, if it is ours to write.
    pub(crate) fn writer(&mut self) -> Option<&mut Writer> {
        match &mut self.out {
            Out::Lent(writer) => Some(writer),
            Out::Taken(writer) => Some(writer),
            Out::Waiting => None,
        }
    }

    /// Writes what a decoder made, in one go; waits while the journal is slow.
    pub(crate) async fn say(&mut self, outputs: &mut Vec<Output>) -> Result<(), Stopped> {
        match &mut self.seat {
            None => {
                self.has_written |= outputs.iter().any(Output::is_answer);
                outputs.iter_mut().for_each(|output| self.count(output));
                self.hold(outputs);
            }
            // Nothing is in the way of what follows the first token.
            Some(seat) if self.has_written && seat.seam.is_none() => {
                seat.pieces += outputs.len() as u64
            }
            Some(_) => {
                for output in mem::take(outputs) {
                    self.say_seated(output).await?;
                }
                return Ok(());
            }
        }
        match self.writer() {
            Some(writer) => writer.put_all(outputs).await,
            None => Ok(()),
        }
    }

    /// The answer has begun: a client of the provider's protocol gets what was held for it.
    pub(crate) async fn begin_answer(&mut self) -> Result<(), Stopped> {
        let seated = self.seat.iter().flat_map(|seat| &seat.held);
        if self.has_written || !self.held.iter().chain(seated).any(is_native) {
            return Ok(());
        }
        let mut held = mem::take(&mut self.held);
        self.open().await?.put_all(&mut held).await
    }

    /// A piece of the answer came that cannot be written yet: part of a call, or of a thought.
    pub(crate) fn alive(&mut self) -> Result<(), Stopped> {
        self.writer().map_or(Ok(()), Writer::alive)
    }

    /// Usage is that of all calls of the attempt.
    fn count(&mut self, output: &mut Output) {
        if let Output::Usage(counts) = output {
            self.present.clone_from(counts);
            let mut total = self.earlier.clone();
            add(&mut total, mem::take(counts));
            *counts = total;
        }
    }

    async fn say_seated(&mut self, output: Output) -> Result<(), Stopped> {
        let Some(seat) = &mut self.seat else { return Ok(()) };
        seat.has_reason |= matches!(output, Output::Reason(_));
        let ready = match (output, &mut seat.seam) {
            (Output::FarId(id), _) => return self.say_far_id(&id).await,
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
        let mut ready = ready;
        self.open().await?.put_all(&mut ready).await
    }

    /// A stop must find what was started elsewhere, whoever answers; by whom it was started is in
    /// the id.
    async fn say_far_id(&mut self, id: &str) -> Result<(), Stopped> {
        let Some(seat) = &self.seat else { return Ok(()) };
        let (id, floor) = (Output::FarId(format!("{}/{id}", seat.member)), Arc::clone(&seat.floor));
        if let Some(writer) = self.writer() {
            return writer.put(id).await;
        }
        // Who starts something elsewhere is called alone.
        let Some(mut writer) = floor.borrow() else { return Ok(()) };
        let said = writer.put(id).await;
        floor.give_back(writer);
        said
    }

    /// Takes the floor, and says what was held back. Who does not get it waits to be hung up.
    pub(crate) async fn open(&mut self) -> Result<&mut Writer, Stopped> {
        self.has_written = true;
        if let (Out::Waiting, Some(seat)) = (&self.out, &mut self.seat) {
            let Some(mut writer) = seat.floor.take(seat.number) else {
                return std::future::pending().await;
            };
            seat.first_token = Some(seat.clock.instant() - seat.began);
            seat.held.insert(0, Output::Member(Arc::clone(&seat.member)));
            let said = writer.put_all(&mut seat.held).await;
            self.out = Out::Taken(writer);
            said?;
        }
        self.writer().ok_or(Stopped)
    }

    /// Whether the writer itself was used.
    pub(crate) fn note_written(&mut self) {
        self.has_written = self.writer().is_some_and(|writer| writer.has_answered());
    }

    /// The answer is complete: what a seam still holds is said, and why it ends, if there is
    /// nothing else to say.
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

    /// What is known of the call, now that it is over. The floor has its writer back.
    pub(crate) fn seen(self) -> Seen {
        let Some(seat) = self.seat else { return Seen::default() };
        if let Out::Taken(writer) = self.out {
            seat.floor.give_back(writer);
        }
        let usage = seat.held.into_iter().rev().find_map(usage_of);
        let (first_token, took) = (seat.first_token, seat.clock.instant() - seat.began);
        Seen { first_token, took, pieces: seat.pieces, usage, has_reason: seat.has_reason }
    }
}

fn is_native(output: &Output) -> bool {
    matches!(output, Output::Event { kind, .. } if kind == NATIVE)
}

fn usage_of(output: Output) -> Option<Counts> {
    if let Output::Usage(usage) = output { Some(usage) } else { None }
}

/// Adds counts up; of what is no count the later word holds.
fn add(total: &mut Counts, more: Counts) {
    for (name, value) in more {
        let sum = total.get(&name).and_then(Value::as_u64).zip(value.as_u64());
        let value = sum.and_then(|(a, b)| a.checked_add(b)).map_or(value, Value::from);
        total.insert(name, value);
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
        let (writer, mut inbox) = channel(16);
        let floor = Floor::new(writer);
        let seat = |name: &str, number| {
            Seat::new(name.into(), Arc::clone(&floor), number, Clock::default(), None)
        };
        let mut a = AttemptWriter::seated(seat("a", 1));
        let mut b = AttemptWriter::seated(seat("b", 2));
        a.say(&mut vec![Output::Model("m-a".into())]).await.unwrap();
        b.say(&mut vec![Output::Model("m-b".into()), Output::Delta("hi".into())]).await.unwrap();
        assert_eq!(floor.taken().await, 2);
        let mut late = vec![Output::Delta("late".into())];
        let late = tokio::time::timeout(Duration::from_millis(1), a.say(&mut late)).await;
        assert!(late.is_err(), "it waits to be hung up");
        let said =
            [Output::Member("b".into()), Output::Model("m-b".into()), Output::Delta("hi".into())];
        for output in said {
            assert_eq!(inbox.recv().await, Some(output));
        }
        assert_eq!(b.seen().pieces, 1);
        assert!(floor.borrow().is_some(), "the writer is back");
        assert_eq!(inbox.recv().await, None, "and was the only one");
    }
}
