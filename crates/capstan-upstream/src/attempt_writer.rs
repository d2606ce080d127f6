//! The writer of an attempt, or of one call of a route. It knows whether the attempt has output:
//! after the first output, no other upstream may be called.

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
    /// `NATIVE` events of a call that has not answered yet. Dropped if another call follows.
    held: Vec<Output>,
    /// The usage of earlier calls, and of this one so far.
    earlier: Counts,
    present: Counts,
    route_call: Option<RouteCall>,
}

type Counts = Map<String, Value>;

/// The destination of the output.
enum Out<'a> {
    Lent(&'a mut Writer),
    /// Another call has the writer, or no call has it yet.
    Waiting,
    Taken(Box<Writer>),
}

/// A call of a route. Its output is held back until its answer begins, because another call may
/// answer instead.
pub(crate) struct RouteCall {
    member: Arc<str>,
    slot: Arc<WriterSlot>,
    number: usize,
    clock: Clock,
    began: Instant,
    first_token: Option<Duration>,
    pieces: u64,
    held: Vec<Output>,
    has_reason: bool,
    seam: Option<Seam>,
}

/// Gives the writer to one of several calls: to the first one that has an answer.
pub(crate) struct WriterSlot {
    /// The number of the call that has the writer; 0 if none has it.
    taken_by: AtomicUsize,
    taken: Notify,
    writer: Mutex<Option<Box<Writer>>>,
}

impl WriterSlot {
    pub(crate) fn new(writer: Writer) -> Arc<Self> {
        let (taken_by, taken) = (AtomicUsize::new(0), Notify::new());
        Arc::new(Self { taken_by, taken, writer: Mutex::new(Some(Box::new(writer))) })
    }

    fn take(&self, number: usize) -> Option<Box<Writer>> {
        self.taken_by.compare_exchange(0, number, Ordering::AcqRel, Ordering::Acquire).ok()?;
        self.taken.notify_one();
        self.borrow()
    }

    /// The writer, if no call has it.
    pub(crate) fn borrow(&self) -> Option<Box<Writer>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn give_back(&self, writer: Box<Writer>) {
        *self.writer.lock().unwrap_or_else(PoisonError::into_inner) = Some(writer);
    }

    /// Waits until a call has the writer. Returns its number.
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

/// The facts about a finished call of a route.
#[derive(Default)]
pub(crate) struct CallFacts {
    pub(crate) first_token: Option<Duration>,
    pub(crate) took: Duration,
    pub(crate) pieces: u64,
    /// Its usage, if it had no other output.
    pub(crate) usage: Option<Counts>,
    /// It reported why it ended.
    pub(crate) has_reason: bool,
}

impl<'a> AttemptWriter<'a> {
    pub(crate) fn new(out: &'a mut Writer) -> Self {
        let (earlier, present) = (Counts::new(), Counts::new());
        Self {
            out: Out::Lent(out),
            has_written: false,
            held: vec![],
            earlier,
            present,
            route_call: None,
        }
    }

    /// Creates the writer of one call of a route.
    pub(crate) fn of_route(route_call: RouteCall) -> Self {
        let (earlier, present) = (Counts::new(), Counts::new());
        let (held, route_call) = (Vec::new(), Some(route_call));
        Self { out: Out::Waiting, has_written: false, held, earlier, present, route_call }
    }

    pub(crate) fn has_written(&self) -> bool {
        self.has_written
    }

    /// Begins the next call. The usage of the previous one still counts.
    pub(crate) fn begin_call(&mut self) {
        add(&mut self.earlier, mem::take(&mut self.present));
        self.held.clear();
    }

    /// Ends the calls of the attempt: writes what was held back.
    pub(crate) async fn end_calls(&mut self) -> Result<(), Stopped> {
        let mut held = mem::take(&mut self.held);
        match self.writer() {
            Some(writer) => writer.put_all(&mut held).await,
            None => Ok(()),
        }
    }

    /// Holds back output that only clients of the provider's protocol can read, until the answer
    /// begins.
    fn hold(&mut self, outputs: &mut Vec<Output>) {
        if self.has_written {
            if !self.held.is_empty() {
                outputs.splice(0..0, self.held.drain(..));
            }
            return;
        }
        self.held.extend(outputs.extract_if(.., |output| is_native(output)));
    }

    /// The writer, if this call has it.
    pub(crate) fn writer(&mut self) -> Option<&mut Writer> {
        match &mut self.out {
            Out::Lent(writer) => Some(writer),
            Out::Taken(writer) => Some(writer),
            Out::Waiting => None,
        }
    }

    /// Writes the outputs of a decoder in one step. Waits while the journal is slow.
    pub(crate) async fn write(&mut self, outputs: &mut Vec<Output>) -> Result<(), Stopped> {
        match &mut self.route_call {
            None => {
                self.has_written |= outputs.iter().any(Output::is_answer);
                outputs.iter_mut().for_each(|output| self.count(output));
                self.hold(outputs);
            }
            // After the first token nothing is held back.
            Some(route_call) if self.has_written && route_call.seam.is_none() => {
                route_call.pieces += outputs.len() as u64
            }
            Some(_) => {
                for output in mem::take(outputs) {
                    self.write_in_route(output).await?;
                }
                return Ok(());
            }
        }
        match self.writer() {
            Some(writer) => writer.put_all(outputs).await,
            None => Ok(()),
        }
    }

    /// The answer begins: writes what was held back for clients of the provider's protocol.
    pub(crate) async fn begin_answer(&mut self) -> Result<(), Stopped> {
        let of_route = self.route_call.iter().flat_map(|route_call| &route_call.held);
        if self.has_written || !self.held.iter().chain(of_route).any(is_native) {
            return Ok(());
        }
        let mut held = mem::take(&mut self.held);
        self.open().await?.put_all(&mut held).await
    }

    /// A piece of the answer came that cannot be written yet: a part of a call or of a thought.
    pub(crate) fn alive(&mut self) -> Result<(), Stopped> {
        self.writer().map_or(Ok(()), Writer::alive)
    }

    /// Adds the usage of earlier calls of the attempt.
    fn count(&mut self, output: &mut Output) {
        if let Output::Usage(counts) = output {
            self.present.clone_from(counts);
            let mut total = self.earlier.clone();
            add(&mut total, mem::take(counts));
            *counts = total;
        }
    }

    async fn write_in_route(&mut self, output: Output) -> Result<(), Stopped> {
        let Some(route_call) = &mut self.route_call else { return Ok(()) };
        route_call.has_reason |= matches!(output, Output::Reason(_));
        let ready = match (output, &mut route_call.seam) {
            (Output::FarId(id), _) => return self.write_far_id(&id).await,
            (Output::Delta(piece), Some(seam)) => seam.take(&piece),
            (output, Some(seam)) if output.is_answer() => {
                let mut before = seam.finish();
                before.push(output);
                before
            }
            (output, _) => vec![output],
        };
        if route_call.seam.as_ref().is_some_and(Seam::is_closed) {
            route_call.seam = None;
        }
        if !self.has_written && !ready.iter().any(Output::is_answer) {
            route_call.held.extend(ready);
            return Ok(());
        }
        route_call.pieces += 1;
        let mut ready = ready;
        self.open().await?.put_all(&mut ready).await
    }

    /// Stores the id of a remote run at once, so that a stop can find it. The id contains the
    /// member that started the run.
    async fn write_far_id(&mut self, id: &str) -> Result<(), Stopped> {
        let Some(route_call) = &self.route_call else { return Ok(()) };
        let (id, slot) =
            (Output::FarId(format!("{}/{id}", route_call.member)), Arc::clone(&route_call.slot));
        if let Some(writer) = self.writer() {
            return writer.put(id).await;
        }
        // Members that start remote runs are never called in parallel.
        let Some(mut writer) = slot.borrow() else { return Ok(()) };
        let result = writer.put(id).await;
        slot.give_back(writer);
        result
    }

    /// Takes the writer, and writes what was held back. A call that does not get it waits until it
    /// is dropped.
    pub(crate) async fn open(&mut self) -> Result<&mut Writer, Stopped> {
        self.has_written = true;
        if let (Out::Waiting, Some(route_call)) = (&self.out, &mut self.route_call) {
            let Some(mut writer) = route_call.slot.take(route_call.number) else {
                return std::future::pending().await;
            };
            route_call.first_token = Some(route_call.clock.instant() - route_call.began);
            route_call.held.insert(0, Output::Member(Arc::clone(&route_call.member)));
            let result = writer.put_all(&mut route_call.held).await;
            self.out = Out::Taken(writer);
            result?;
        }
        self.writer().ok_or(Stopped)
    }

    /// Records that the caller has used the writer itself.
    pub(crate) fn note_written(&mut self) {
        self.has_written = self.writer().is_some_and(|writer| writer.has_answered());
    }

    /// Completes the answer: writes what the seam still holds. If the call only gave a reason for
    /// its end, writes that.
    pub(crate) async fn complete(&mut self) -> Result<(), Stopped> {
        let seam = self.route_call.as_mut().and_then(|route_call| route_call.seam.take());
        for output in seam.map(|mut seam| seam.finish()).unwrap_or_default() {
            self.open().await?.put(output).await?;
        }
        if self.route_call.as_ref().is_some_and(|route_call| route_call.has_reason) {
            self.open().await?;
        }
        Ok(())
    }

    /// Ends the call: returns the facts about it, and gives the writer back.
    pub(crate) fn facts(self) -> CallFacts {
        let Some(route_call) = self.route_call else { return CallFacts::default() };
        if let Out::Taken(writer) = self.out {
            route_call.slot.give_back(writer);
        }
        let usage = route_call.held.into_iter().rev().find_map(usage_of);
        let (first_token, took) =
            (route_call.first_token, route_call.clock.instant() - route_call.began);
        CallFacts {
            first_token,
            took,
            pieces: route_call.pieces,
            usage,
            has_reason: route_call.has_reason,
        }
    }
}

fn is_native(output: &Output) -> bool {
    matches!(output, Output::Event { kind, .. } if kind == NATIVE)
}

fn usage_of(output: Output) -> Option<Counts> {
    if let Output::Usage(usage) = output { Some(usage) } else { None }
}

/// Adds counts. Of values that are not numbers, the later one wins.
fn add(total: &mut Counts, more: Counts) {
    for (name, value) in more {
        let sum = total.get(&name).and_then(Value::as_u64).zip(value.as_u64());
        let value = sum.and_then(|(a, b)| a.checked_add(b)).map_or(value, Value::from);
        total.insert(name, value);
    }
}

impl RouteCall {
    pub(crate) fn new(
        member: Arc<str>,
        slot: Arc<WriterSlot>,
        number: usize,
        clock: Clock,
        seam: Option<Seam>,
    ) -> Self {
        let began = clock.instant();
        let (held, first_token, pieces, has_reason) = (Vec::new(), None, 0, false);
        Self { member, slot, number, clock, began, first_token, pieces, held, has_reason, seam }
    }
}

#[cfg(test)]
mod tests {
    use capstan_agent::channel;

    use super::*;

    #[tokio::test]
    async fn nothing_is_written_before_an_answer_and_one_call_wins() {
        let (writer, mut inbox) = channel(16);
        let slot = WriterSlot::new(writer);
        let route_call = |name: &str, number| {
            RouteCall::new(name.into(), Arc::clone(&slot), number, Clock::default(), None)
        };
        let mut a = AttemptWriter::of_route(route_call("a", 1));
        let mut b = AttemptWriter::of_route(route_call("b", 2));
        a.write(&mut vec![Output::Model("m-a".into())]).await.unwrap();
        b.write(&mut vec![Output::Model("m-b".into()), Output::Delta("hi".into())]).await.unwrap();
        assert_eq!(slot.taken().await, 2);
        let mut late = vec![Output::Delta("late".into())];
        let late = tokio::time::timeout(Duration::from_millis(1), a.write(&mut late)).await;
        assert!(late.is_err(), "it waits to be hung up");
        let outputs =
            [Output::Member("b".into()), Output::Model("m-b".into()), Output::Delta("hi".into())];
        for output in outputs {
            assert_eq!(inbox.recv().await, Some(output));
        }
        assert_eq!(b.facts().pieces, 1);
        assert!(slot.borrow().is_some(), "the writer is back");
        assert_eq!(inbox.recv().await, None, "and was the only one");
    }
}
