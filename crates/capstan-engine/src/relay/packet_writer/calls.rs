//! Tool calls on their way to viewers, in runs that may have several attempts.

use capstan_protocol::{Event, Fault, FaultKind, RawObject};

use super::super::call_diff::Next;
use super::super::call_event::Said;
use super::PacketWriter;

impl PacketWriter {
    /// A part of a tool call: sent as it comes, unless the call has to be compared first.
    pub(super) fn call_event(&mut self, payload: RawObject) -> Result<(), Fault> {
        let event = Event::of(&payload);
        let Some((id, said)) = Said::of(&event) else {
            self.show_call(payload);
            return Ok(());
        };
        if let Said::Start = said {
            self.drop_what_was_taken_back()?;
        }
        if let Said::Result = said {
            // Some tell no end of a call but its result.
            self.complete_calls(Some(&id))?;
            return self.call_result(&id, &payload);
        }
        if let Some(part) = self.sent.calls.take(&id, &said, &event, payload) {
            self.show_call(part);
            return Ok(());
        }
        self.settle_calls()
    }

    /// A new tool call stands where the attempt took text back: that text does not come again.
    fn drop_what_was_taken_back(&mut self) -> Result<(), Fault> {
        let is_void = self.attempt.is_rewound
            && self.sent.diff.is_behind()
            && self.sent.calls.first_missing().is_none();
        if is_void { self.diverge(None, u64::MAX) } else { Ok(()) }
    }

    fn show_call(&mut self, part: RawObject) {
        self.sent.count_event();
        self.show(part);
    }

    /// Nothing more comes of a call; of any, if none is named.
    pub(super) fn complete_calls(&mut self, id: Option<&str>) -> Result<(), Fault> {
        self.sent.calls.complete(id);
        self.settle_calls()
    }

    /// Sends what can be sent of the attempt's calls. One that differs waits, if those that are
    /// missing cannot be taken back: calls at once have no order, and they may still be made.
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
            // The agent has acted upon a call that viewers cannot be told of.
            return Err(Fault::new(FaultKind::AttemptDiverged));
        }
        let (result, told) = self.sent.calls.result(id, payload);
        if self.sent.diff.meet_event(&result) {
            return Ok(());
        }
        if let Some(before) = told {
            self.diverge(None, before.saturating_sub(1))?;
        }
        self.show_call(result);
        Ok(())
    }
}
