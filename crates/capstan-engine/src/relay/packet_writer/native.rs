//! Sends native events to viewers, in runs that may have several attempts. Each belongs to its
//! place in the text and among the calls. A later attempt fills no place that viewers have passed.

use std::ops::Range;

use capstan_protocol::RawObject;

use super::PacketWriter;
use super::thoughts::native_part;

/// Why a native event was not sent.
pub(super) enum Passed {
    /// Viewers have one like it at its place.
    Known,
    /// Viewers have passed its place, which is behind this packet.
    Late(u64),
    /// It may begin a call that viewers have: a call before it is undecided.
    Waiting,
}

impl PacketWriter {
    /// Handles a native event. It is sent if viewers have none like it at its place, and nothing
    /// that follows this place. A part follows its thoughts, wherever they were sent.
    pub(super) fn native(&mut self, payload: RawObject) {
        let is_part = native_part(&payload).is_some();
        let ends_shown_thought = is_part && std::mem::take(&mut self.attempt.has_shown_thought);
        let place = self.place();
        if !ends_shown_thought && let Some(passed) = self.passes(&payload, &place, is_part) {
            self.attempt.passed_part(&self.sent.diff, &payload);
            let is_new = !matches!(passed, Passed::Known);
            // It may have been the beginning of another call, which is missing.
            if is_new || !is_part && place.end != u64::MAX {
                self.attempt.passed_natives.push((passed, payload));
            }
            return;
        }
        self.settle_natives();
        let payload = self.with_its_thoughts(payload);
        self.sent.count_event();
        self.show(payload);
    }

    fn passes(&mut self, payload: &RawObject, place: &Range<u64>, is_part: bool) -> Option<Passed> {
        let passed = if self.sent.diff.compare_native(payload, place) {
            Passed::Known
        } else if place.end != u64::MAX {
            Passed::Late(place.start - 1)
        } else if self.sent.calls.has_undecided() && !is_part {
            return Some(Passed::Waiting);
        } else {
            return None;
        };
        self.attempt.swallowed += payload.get().len() as u64;
        Some(passed)
    }

    /// The packets that viewers have between the last text or call that the attempt has repeated
    /// and the next one that it has yet to repeat.
    fn place(&self) -> Range<u64> {
        let (diff, calls) = (&self.sent.diff, &self.sent.calls);
        let end = diff.first_different().min(calls.next_missing().unwrap_or(u64::MAX));
        let start = diff.last_agreed_text(end).max(calls.last_repeated_before(end));
        start + 1..end
    }

    /// Decides on the passed native events: something else than the beginning of a call followed.
    pub(super) fn settle_natives(&mut self) {
        for (passed, payload) in std::mem::take(&mut self.attempt.passed_natives) {
            match passed {
                Passed::Known => {}
                Passed::Late(after) => self.sent.diff.leave_out(after, &payload),
                Passed::Waiting => {
                    self.sent.count_event();
                    self.show(payload);
                }
            }
        }
    }
}
