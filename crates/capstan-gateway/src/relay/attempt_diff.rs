//! Comparing a later attempt with what was already sent, as one text whatever the chunks.

use capstan_protocol::{Event, RawObject};
use serde_json::Value;

/// What was sent so far, and how far the present attempt agrees with it.
#[derive(Default)]
pub(super) struct AttemptDiff {
    text: String,
    /// For each packet with text: its seq and where its text ends.
    marks: Vec<(u64, usize)>,
    events: Vec<SentEvent>,
    /// How much of `text` the present attempt has said again.
    agreed: usize,
}

struct SentEvent {
    seq: u64,
    raw: RawObject,
    essence: (Option<String>, Value),
    /// The present attempt has sent it again.
    met: bool,
}

/// How a piece of text relates to what was sent.
pub(super) enum Met {
    /// It was sent before.
    Equal,
    /// It goes on from where everything sent has been said again.
    New(String),
    /// It differs; this is what it says from the difference on.
    Different(String),
}

/// What a reset drops and what must be said again.
pub(super) struct Cut {
    pub(super) after_seq: u64,
    /// The agreed text that the cut takes away.
    pub(super) text: String,
    /// The agreed events that it takes away.
    pub(super) events: Vec<RawObject>,
}

impl AttemptDiff {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.events.is_empty()
    }

    /// The text, when nothing more will be compared with it.
    pub(super) fn take_text(&mut self) -> String {
        std::mem::take(self).text
    }

    /// All that was sent and not taken back.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn sent_text(&mut self, seq: u64, text: &str) {
        self.text.push_str(text);
        self.marks.push((seq, self.text.len()));
        self.agreed = self.text.len();
    }

    pub(super) fn sent_event(&mut self, seq: u64, raw: &RawObject) {
        self.events.push(SentEvent { seq, raw: raw.clone(), essence: essence(raw), met: true });
    }

    /// A new attempt begins: nothing is agreed upon yet.
    pub(super) fn rewind(&mut self) {
        self.agreed = 0;
        self.events.iter_mut().for_each(|event| event.met = false);
    }

    /// The attempt goes back to an earlier place of its text; events that it sent after it may come again.
    pub(super) fn rewind_to(&mut self, text_len: usize) {
        let text_len = (0..=text_len.min(self.agreed)).rev().find(|at| self.text.is_char_boundary(*at));
        self.agreed = text_len.unwrap_or(0);
        let kept = self.marks.iter().rev().find(|(_, end)| *end <= self.agreed).map_or(0, |(seq, _)| *seq);
        let next = self.marks.iter().find(|(seq, _)| *seq > kept).map_or(u64::MAX, |(seq, _)| *seq);
        self.events.iter_mut().filter(|event| event.seq > next).for_each(|event| event.met = false);
    }

    /// The attempt has not said again all that was sent.
    pub(super) fn is_behind(&self) -> bool {
        self.agreed < self.text.len()
    }

    pub(super) fn meet_text(&mut self, text: &str) -> Met {
        let ahead = self.text.get(self.agreed..).unwrap_or_default();
        let common = common_prefix(ahead, text);
        let is_caught_up = common == ahead.len();
        self.agreed += common;
        let rest = text.get(common..).unwrap_or_default();
        match (rest.is_empty(), is_caught_up) {
            // An empty delta is a packet like any other once there is nothing left to compare.
            (true, _) if !text.is_empty() || !is_caught_up => Met::Equal,
            (_, true) => Met::New(rest.to_owned()),
            (_, false) => Met::Different(rest.to_owned()),
        }
    }

    /// True if an equal event was sent by an earlier attempt; it is then not repeated.
    pub(super) fn meet_event(&mut self, raw: &RawObject) -> bool {
        let wanted = essence(raw);
        let known = self.events.iter_mut().find(|event| !event.met && event.essence == wanted);
        known.map(|event| event.met = true).is_some()
    }

    /// Cuts back to the last packet that is agreed upon as a whole.
    pub(super) fn cut(&mut self) -> Cut {
        let kept = self.marks.iter().rev().find(|(_, end)| *end <= self.agreed).copied();
        let (after_seq, text_len) = kept.unwrap_or((0, 0));
        let text = self.text.get(text_len..self.agreed).unwrap_or_default().to_owned();
        let dropped = self.events.iter().filter(|event| event.seq > after_seq && event.met);
        let events = dropped.map(|event| event.raw.clone()).collect();
        self.reset(after_seq);
        Cut { after_seq, text, events }
    }

    /// Forgets everything after a packet.
    pub(super) fn reset(&mut self, after_seq: u64) {
        self.marks.retain(|(seq, _)| *seq <= after_seq);
        self.events.retain(|event| event.seq <= after_seq);
        self.text.truncate(self.marks.last().map_or(0, |(_, end)| *end));
        self.agreed = self.text.len();
    }
}

/// Ids and times differ between attempts; type and data are what an event says.
fn essence(raw: &RawObject) -> (Option<String>, Value) {
    let event = Event::of(raw);
    match event.kind {
        None => (None, Value::Object(raw.to_map())),
        kind => (kind, event.data),
    }
}

/// The length of the common beginning, ending between characters.
fn common_prefix(a: &str, b: &str) -> usize {
    a.char_indices().zip(b.chars()).find(|((_, x), y)| x != y).map_or(a.len().min(b.len()), |((at, _), _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(pieces: &[&str]) -> AttemptDiff {
        let mut diff = AttemptDiff::default();
        for (index, piece) in pieces.iter().enumerate() {
            diff.sent_text(index as u64 + 1, piece);
        }
        diff.rewind();
        diff
    }

    fn new(met: Met) -> Option<String> {
        if let Met::New(text) = met { Some(text) } else { None }
    }

    #[test]
    fn the_equal_part_is_swallowed_whatever_the_chunks() {
        let mut diff = sent(&["Hel", "lo wor"]);
        assert!(matches!(diff.meet_text("H"), Met::Equal));
        assert!(matches!(diff.meet_text("ello "), Met::Equal));
        assert_eq!(new(diff.meet_text("world")).as_deref(), Some("ld"));
        assert!(!diff.is_behind());
    }

    #[test]
    fn a_difference_cuts_back_to_the_last_packet_that_agrees() {
        let mut diff = sent(&["Hel", "lo wor", "ld"]);
        let Met::Different(rest) = diff.meet_text("Hello moon") else { panic!() };
        assert_eq!(rest, "moon");
        let cut = diff.cut();
        assert_eq!((cut.after_seq, diff.text(), cut.text.as_str()), (1, "Hel", "lo "));
    }

    #[test]
    fn a_difference_in_the_first_packet_cuts_everything() {
        let mut diff = sent(&["Hello"]);
        assert!(matches!(diff.meet_text("Help"), Met::Different(rest) if rest == "p"));
        let cut = diff.cut();
        assert_eq!((cut.after_seq, cut.text.as_str()), (0, "Hel"));
    }

    #[test]
    fn an_attempt_that_ends_early_is_behind() {
        let mut diff = sent(&["Hello"]);
        assert!(matches!(diff.meet_text("Hell"), Met::Equal));
        assert!(diff.is_behind());
    }

    #[test]
    fn an_attempt_that_goes_back_is_compared_from_there() {
        let event = |id: &str| RawObject::parse(&format!(r#"{{"type":"X","data":{{"a":"{id}"}}}}"#)).unwrap();
        let mut diff = AttemptDiff::default();
        diff.sent_text(1, "One. ");
        diff.sent_event(2, &event("kept"));
        diff.sent_text(3, "Hello the");
        diff.sent_event(4, &event("broken"));
        diff.rewind_to(5);
        assert!(matches!(diff.meet_text("Hello"), Met::Equal));
        assert!(!diff.meet_event(&event("kept")), "it stood before that place");
        assert!(diff.meet_event(&event("broken")), "this one is said again");
        assert_eq!(new(diff.meet_text(" there")).as_deref(), Some("re"));
    }

    #[test]
    fn characters_are_never_split() {
        let mut diff = sent(&["naïve"]);
        assert!(matches!(diff.meet_text("naî"), Met::Different(rest) if rest == "î"));
    }

    #[test]
    fn an_equal_event_is_not_repeated_but_a_second_one_is() {
        let event =
            |id: &str| RawObject::parse(&format!(r#"{{"id":"{id}","type":"X","data":{{"a":1}}}}"#)).unwrap();
        let mut diff = AttemptDiff::default();
        diff.sent_event(1, &event("1"));
        diff.rewind();
        assert!(diff.meet_event(&event("2")), "ids do not count");
        assert!(!diff.meet_event(&event("3")), "but each was sent once");
    }
}
