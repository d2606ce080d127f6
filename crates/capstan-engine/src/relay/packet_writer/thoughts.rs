//! Sends thoughts to viewers, in runs that may have several attempts. They are compared in order,
//! as one text.

use capstan_protocol::{
    Event, EventView, Fault, NativeEvent, Payload, PresentationEventType, RawJson, RawObject,
    ThoughtTrace, event,
};

use super::super::attempt_diff::{Again, AttemptDiff};
use super::super::text_diff::Comparison;
use super::{Attempt, PacketWriter};

/// Whether an event type is a thought.
pub(super) fn is_thought(kind: &str) -> bool {
    kind.eq_ignore_ascii_case(PresentationEventType::ThoughtTrace.as_str())
}

impl Attempt {
    /// Handles a native part that was left out because viewers have it: it ends a block of
    /// reasoning.
    pub(super) fn passed_part(&mut self, diff: &AttemptDiff, payload: &RawObject) {
        if native_part(payload).is_some() {
            (self.thoughts_done, self.own_thoughts) = (diff.thoughts().agreed(), None);
        }
    }
}

impl PacketWriter {
    /// Handles a thought. If it differs, viewers are reset if possible. Otherwise it follows the
    /// earlier thoughts, because a different thought is no reason to fail.
    pub(super) fn thought(&mut self, payload: RawObject) -> Result<(), Fault> {
        let EventView::Thought(ThoughtTrace { thought }) = Event::of(&payload).view() else {
            self.show(payload);
            return Ok(());
        };
        let (length, whole) = (thought.len(), thought.clone());
        let (rest, differs) = match self.sent.diff.compare_thought(thought) {
            Comparison::Equal => {
                self.attempt.swallowed += length as u64;
                return Ok(());
            }
            // The earlier attempt answered here, but this one goes on thinking.
            Comparison::New(rest) => (rest, self.sent.diff.is_behind()),
            Comparison::Different(rest) => (rest, true),
        };
        let first_different = self.sent.diff.first_different_thought();
        if let Some(place) = self.reset_place(u64::MAX, first_different).filter(|_| differs) {
            return self.go_back(place, Some(Again::Thought(rest, None)));
        }
        let known = length.saturating_sub(rest.len());
        // Send the whole thought: its end makes no sense without its own beginning.
        let is_behind = self.sent.diff.thoughts().is_behind();
        let is_all = is_behind && rest.len() <= length;
        let (said, known) = if is_all { (whole, known) } else { (rest, 0) };
        self.attempt.swallowed += length.saturating_sub(said.len()) as u64;
        self.record_own_thought(&said, known);
        self.attempt.has_shown_thought = true;
        self.sent.count_event();
        let is_whole = said.len() == length;
        self.write_thought(&said, Some(payload).filter(|_| is_whole));
        Ok(())
    }

    /// Writes a thought, with its original event if the whole thought is sent.
    pub(super) fn write_thought(&mut self, thought: &str, payload: Option<RawObject>) {
        let kind = PresentationEventType::ThoughtTrace.as_str();
        let make = || event::envelope(kind, &ThoughtTrace { thought: thought.to_owned() }).ok();
        let Some(payload) = payload.or_else(make) else { return };
        self.sent.diff.sent_thought(self.seq() + 1, thought, &payload);
        self.write(Payload::Event(payload));
    }

    /// Stores the attempt's own thoughts from its first different one up to the next native part.
    /// `agreed` is the length of the thought's beginning that agrees with the sent ones.
    fn record_own_thought(&mut self, thought: &str, agreed: usize) {
        let thoughts = self.sent.diff.thoughts();
        if self.attempt.own_thoughts.is_none() && thoughts.is_behind() {
            let own = self.attempt.thoughts_done..thoughts.agreed().saturating_sub(agreed);
            self.attempt.own_thoughts = thoughts.as_str().get(own).map(str::to_owned);
        }
        if let Some(own) = &mut self.attempt.own_thoughts {
            own.push_str(thought);
        }
    }

    /// Completes a native part of reasoning. Its text is normally the thoughts before it. If
    /// viewers have other thoughts there, the part gets its own text, because its provider cannot
    /// use it without.
    pub(super) fn with_its_thoughts(&mut self, payload: RawObject) -> RawObject {
        let Some(native) = native_part(&payload) else { return payload };
        let thoughts = self.sent.diff.thoughts();
        let end = thoughts.len();
        let seen = thoughts.as_str().get(self.sent.thoughts_done()..);
        let agreed = thoughts.as_str().get(self.attempt.thoughts_done..thoughts.agreed());
        let own = self.attempt.own_thoughts.as_deref().or(agreed);
        let is_told = own == seen || own.is_none();
        let whole = own.filter(|_| !is_told).and_then(|own| with_text(&payload, native, own));
        (self.attempt.thoughts_done, self.attempt.own_thoughts) = (end, None);
        whole.unwrap_or(payload)
    }
}

/// Reads a native part. Any part ends the thoughts before it.
pub(super) fn native_part(payload: &RawObject) -> Option<NativeEvent> {
    let native: NativeEvent = serde_json::from_value(Event::of(payload).data).ok()?;
    native.part.is_some().then_some(native)
}

/// The part with its text in its place, if it has one.
fn with_text(payload: &RawObject, native: NativeEvent, text: &str) -> Option<RawObject> {
    let mut part = native.part.as_ref()?.to_value();
    *part.pointer_mut(native.text_at.as_deref()?)? = text.into();
    let part = RawJson::from_serialize(&part).ok();
    let data = serde_json::to_value(NativeEvent { part, text_at: None, ..native }).ok()?;
    let mut envelope = payload.to_map();
    envelope.insert("data".into(), data);
    RawObject::from_serialize(&envelope).ok()
}
