//! Sends tool calls to viewers, in runs that may have several attempts.

use capstan_protocol::{Event, Fault, FaultKind, RawObject};

use super::super::call_diff::Next;
use super::super::call_event::CallStep;
use super::PacketWriter;

impl PacketWriter {
    /// Handles an event of a tool call. It is sent at once, unless the call has to be compared
    /// first.
    pub(super) fn call_event(&mut self, payload: RawObject) -> Result<(), Fault> {
        let event = Event::of(&payload);
        let Some((id, step)) = CallStep::of(&event) else {
            self.settle_natives();
            self.show_call(payload);
            return Ok(());
        };
        if let CallStep::Start = step {
            self.drop_abandoned_text()?;
            let before = self.attempt.passed_natives.drain(..).map(|(_, raw)| raw).collect();
            self.sent.calls.start(&id, &event, payload, before);
            return self.settle_calls();
        }
        self.settle_natives();
        if let CallStep::Result = step {
            // Some agents send a result without an end.
            self.complete_calls(Some(&id))?;
            return self.call_result(&id, &payload);
        }
        if let Some(part) = self.sent.calls.take(&id, &step, payload) {
            self.show_call(part);
            return Ok(());
        }
        self.settle_calls()
    }

    /// Resets the old text if the attempt restarted and begins a tool call instead of it.
    fn drop_abandoned_text(&mut self) -> Result<(), Fault> {
        let is_void = self.attempt.is_rewound
            && self.sent.diff.is_behind()
            && self.sent.calls.first_missing().is_none();
        if is_void { self.diverge(None, u64::MAX) } else { Ok(()) }
    }

    fn show_call(&mut self, part: RawObject) {
        self.sent.count_event();
        self.show(part);
    }

    /// Marks a call as complete, or all calls if no id is given.
    pub(super) fn complete_calls(&mut self, id: Option<&str>) -> Result<(), Fault> {
        self.sent.calls.complete(id);
        self.settle_calls()
    }

    /// Sends the calls that can be sent. A different call waits if the missing ones cannot be taken
    /// back: parallel calls have no order, so the attempt may still make them.
    fn settle_calls(&mut self) -> Result<(), Fault> {
        loop {
            match self.sent.calls.next() {
                Next::Send(events) => events.into_iter().for_each(|event| self.show_call(event)),
                Next::Skip(length) => self.attempt.swallowed += length as u64,
                Next::Differs => {
                    let limit = self.sent.calls.first_missing().unwrap_or(u64::MAX);
                    let place = self.reset_place(limit, self.sent.diff.first_different());
                    let Some(place) = place else { return Ok(()) };
                    self.go_back(place, None)?;
                }
                Next::Wait => return Ok(()),
            }
        }
    }

    fn call_result(&mut self, id: &str, payload: &RawObject) -> Result<(), Fault> {
        if self.sent.calls.is_waiting(id) {
            // The agent acted on a call that viewers must not get.
            return Err(Fault::new(FaultKind::AttemptDiverged));
        }
        let (result, earlier) = self.sent.calls.result(id, payload);
        if self.sent.diff.compare_event(&result) {
            return Ok(());
        }
        if let Some(before) = earlier {
            self.diverge(None, before.saturating_sub(1))?;
        }
        self.show_call(result);
        Ok(())
    }
}
