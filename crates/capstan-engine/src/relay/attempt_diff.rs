//! Comparing a later attempt with what was already sent, as one text whatever the chunks.
//!
//! Long texts are kept up to a limit; beyond it each packet leaves a hash, and the attempt is
//! compared packet by packet.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash, Hasher};

use capstan_protocol::{Event, RawObject};
use serde_json::Value;

use super::marks::{Mark, Marks};

/// Text that is kept of a run, and as much of its events. Longer answers are rare, and many may be
/// under way at once.
const KEPT: usize = 16 * 1024 * 1024;

/// What was sent so far, and how far the present attempt agrees with it.
pub(super) struct AttemptDiff {
    /// Whether anything will be compared. If not, the text is kept for its own sake, as far as it
    /// is short.
    compares: bool,
    limit: usize,
    /// The beginning of what was sent: whole packets, up to the limit.
    text: String,
    /// The length of all that was sent.
    len: usize,
    /// For each packet with text, if there is comparing.
    marks: Marks,
    /// For each packet beyond the text that is kept.
    hashes: Vec<u32>,
    events: Vec<SentEvent>,
    /// The length of the events that are kept.
    event_bytes: usize,
    /// Events that the present attempt has not sent again, the first of equal ones last.
    unmet: HashMap<u64, Vec<usize>>,
    /// How much of what was sent the present attempt has said again.
    agreed: usize,
    /// What it has said beyond that: not yet enough to be compared by hash.
    held: String,
    hasher: RandomState,
}

struct SentEvent {
    seq: u64,
    /// Kept up to the limit.
    raw: Option<RawObject>,
    essence: u64,
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

/// What would have to be known is not kept any more.
#[derive(Debug)]
pub(super) struct Forgotten;

impl AttemptDiff {
    /// `compares` if another attempt may come.
    pub(super) fn new(compares: bool) -> Self {
        Self::with_limit(compares, KEPT)
    }

    pub(super) fn with_limit(compares: bool, limit: usize) -> Self {
        Self {
            compares,
            limit,
            text: String::new(),
            len: 0,
            marks: Marks::default(),
            hashes: Vec::new(),
            events: Vec::new(),
            event_bytes: 0,
            unmet: HashMap::new(),
            agreed: 0,
            held: String::new(),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0 && self.events.is_empty()
    }

    /// The length of all text that was sent and not taken back.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn compares(&self) -> bool {
        self.compares
    }

    /// The text, when nothing more will be compared with it; `None` if it was too long to be kept.
    pub(super) fn take_text(&mut self) -> Option<String> {
        let is_whole = self.text.len() == self.len;
        is_whole.then(|| std::mem::take(&mut self.text))
    }

    /// What was sent and not taken back; of a long one, the beginning.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn sent_text(&mut self, seq: u64, text: &str) {
        let is_kept = self.text.len() == self.len && self.len + text.len() <= self.limit;
        if is_kept {
            self.text.push_str(text);
        } else if !self.compares {
            // A beginning alone is of no use to anybody.
            self.text = String::new();
        }
        self.len += text.len();
        if self.compares {
            self.marks.push(Mark { seq, end: self.len });
            if !is_kept {
                self.hashes.push(self.hash(text));
            }
        }
        self.agreed = self.len;
    }

    /// Half of a hash is enough to tell one packet from another, and there may be millions of them.
    fn hash(&self, text: &str) -> u32 {
        self.hasher.hash_one(text) as u32
    }

    /// What is kept of text and its packets, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.marks.bytes() + self.hashes.len() * size_of::<u32>()
    }

    pub(super) fn sent_event(&mut self, seq: u64, raw: &RawObject) {
        if !self.compares {
            return;
        }
        let is_kept = self.event_bytes + raw.get().len() <= self.limit;
        let raw_kept = is_kept.then(|| raw.clone());
        self.event_bytes += raw_kept.as_ref().map_or(0, |raw| raw.get().len());
        let essence = self.essence(raw);
        self.events.push(SentEvent { seq, raw: raw_kept, essence, met: true });
    }

    /// A new attempt begins: nothing is agreed upon yet.
    pub(super) fn rewind(&mut self) {
        self.agreed = 0;
        self.held.clear();
        self.forget_events_from(0);
    }

    /// The attempt goes back to an earlier place of its text; events that it sent after it may come
    /// again. The packet after which that is.
    pub(super) fn rewind_to(&mut self, text_len: usize) -> Result<u64, Forgotten> {
        let to = text_len.min(self.agreed);
        if to > self.text.len() {
            return Err(Forgotten);
        }
        self.held.clear();
        self.agreed = (0..=to).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
        let next = self.first_different();
        self.forget_events_from(self.events.partition_point(|event| event.seq <= next));
        Ok(next)
    }

    /// Events from an index on are to be met again.
    fn forget_events_from(&mut self, first: usize) {
        for (index, event) in self.events.iter_mut().enumerate().skip(first).rev() {
            event.met = false;
            self.unmet.entry(event.essence).or_default().push(index);
        }
    }

    /// The attempt has not said again all that was sent.
    pub(super) fn is_behind(&self) -> bool {
        self.agreed < self.len
    }

    /// What is new is handed back as it came: usually all of it is, and nothing is copied.
    pub(super) fn meet_text(&mut self, text: String) -> Met {
        let ahead = self.text.get(self.agreed..).unwrap_or_default();
        let common = common_prefix(ahead, &text);
        let is_through = common == ahead.len();
        self.agreed += common;
        let (was_empty, mut rest) = (text.is_empty(), text);
        rest.drain(..common);
        match (rest.is_empty(), is_through) {
            (false, false) => Met::Different(rest),
            (_, true) if self.is_behind() => self.meet_hashed(&rest),
            // An empty delta is a packet like any other once there is nothing left to compare.
            (true, _) if !was_empty || self.is_behind() => Met::Equal,
            (_, _) => Met::New(rest),
        }
    }

    /// Text beyond what is kept, compared as soon as a whole packet of it is there.
    fn meet_hashed(&mut self, text: &str) -> Met {
        self.held.push_str(text);
        loop {
            let around = self.marks.around(|mark| mark.end <= self.agreed);
            let Some(mark) = around.after else { break };
            let length = mark.end - self.agreed;
            if self.held.len() < length {
                return Met::Equal;
            }
            let kept = self.marks.len() - self.hashes.len();
            let known = around.index.checked_sub(kept).and_then(|index| self.hashes.get(index));
            if self.held.get(..length).map(|piece| self.hash(piece)) != known.copied() {
                return Met::Different(std::mem::take(&mut self.held));
            }
            self.agreed = mark.end;
            self.held.drain(..length);
        }
        let rest = std::mem::take(&mut self.held);
        if rest.is_empty() { Met::Equal } else { Met::New(rest) }
    }

    /// True if an equal event was sent by an earlier attempt; it is then not repeated.
    pub(super) fn meet_event(&mut self, raw: &RawObject) -> bool {
        if self.unmet.is_empty() {
            return false;
        }
        let wanted = self.essence(raw);
        let Some(candidates) = self.unmet.get_mut(&wanted) else { return false };
        // A reset may have taken some of them away.
        let known = std::iter::from_fn(|| candidates.pop());
        let known = known.into_iter().find(|index| {
            self.events.get(*index).is_some_and(|event| !event.met && event.essence == wanted)
        });
        if candidates.is_empty() {
            self.unmet.remove(&wanted);
        }
        let event = known.and_then(|index| self.events.get_mut(index));
        event.map(|event| event.met = true).is_some()
    }

    /// The first packet whose text is not agreed upon.
    pub(super) fn first_different(&self) -> u64 {
        self.marks.around(|mark| mark.end <= self.agreed).after.map_or(u64::MAX, |mark| mark.seq)
    }

    /// Cuts back to the last packet that is agreed upon as a whole; `floor` is one that is, besides
    /// texts and events that are known here, and `limit` the last that may stay.
    pub(super) fn cut(&mut self, floor: u64, limit: u64) -> Result<Cut, Forgotten> {
        let kept =
            self.marks.around(|mark| mark.end <= self.agreed).before.map_or(0, |mark| mark.seq);
        let after_seq = kept.max(floor).min(limit);
        let text_len =
            self.marks.around(|mark| mark.seq <= after_seq).before.map_or(0, |mark| mark.end);
        let again = text_len..self.agreed.max(text_len);
        let text =
            self.text.get(again.clone()).or(again.is_empty().then_some("")).ok_or(Forgotten)?;
        let text = text.to_owned() + &self.held;
        let first = self.events.partition_point(|event| event.seq <= after_seq);
        let dropped = self.events.iter().skip(first).filter(|event| event.met);
        let events =
            dropped.map(|event| event.raw.clone().ok_or(Forgotten)).collect::<Result<_, _>>()?;
        self.reset(after_seq);
        Ok(Cut { after_seq, text, events })
    }

    /// Forgets everything after a packet.
    pub(super) fn reset(&mut self, after_seq: u64) {
        let kept = self.marks.len() - self.hashes.len();
        let left = self.marks.around(|mark| mark.seq <= after_seq).index;
        self.marks.truncate(left);
        self.hashes.truncate(left.saturating_sub(kept));
        self.events.truncate(self.events.partition_point(|event| event.seq <= after_seq));
        self.event_bytes =
            self.events.iter().filter_map(|event| Some(event.raw.as_ref()?.get().len())).sum();
        self.len = self.marks.last().unwrap_or_default().end;
        self.text.truncate(self.len);
        self.agreed = self.len;
        self.held.clear();
    }

    /// Ids and times differ between attempts; type and data are what an event says.
    fn essence(&self, raw: &RawObject) -> u64 {
        let event = Event::of(raw);
        let mut hasher = self.hasher.build_hasher();
        match event.kind {
            None => hash_value(&Value::Object(raw.to_map()), &mut hasher),
            kind => {
                kind.hash(&mut hasher);
                hash_value(&event.data, &mut hasher);
            }
        }
        hasher.finish()
    }
}

/// Equal values have equal hashes, whatever the order of their members.
fn hash_value(value: &Value, hasher: &mut impl Hasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Null => {}
        Value::Bool(value) => value.hash(hasher),
        Value::Number(number) => number.hash(hasher),
        Value::String(text) => text.hash(hasher),
        Value::Array(values) => {
            values.len().hash(hasher);
            values.iter().for_each(|value| hash_value(value, hasher));
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            members.len().hash(hasher);
            for (name, value) in members {
                name.hash(hasher);
                hash_value(value, hasher);
            }
        }
    }
}

/// The length of the common beginning, ending between characters.
fn common_prefix(a: &str, b: &str) -> usize {
    a.char_indices()
        .zip(b.chars())
        .find(|((_, x), y)| x != y)
        .map_or(a.len().min(b.len()), |((at, _), _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(pieces: &[&str]) -> AttemptDiff {
        let mut diff = AttemptDiff::new(true);
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
        assert!(matches!(diff.meet_text("H".into()), Met::Equal));
        assert!(matches!(diff.meet_text("ello ".into()), Met::Equal));
        assert_eq!(new(diff.meet_text("world".into())).as_deref(), Some("ld"));
        assert!(!diff.is_behind());
    }

    #[test]
    fn a_difference_cuts_back_to_the_last_packet_that_agrees() {
        let mut diff = sent(&["Hel", "lo wor", "ld"]);
        let Met::Different(rest) = diff.meet_text("Hello moon".into()) else { panic!() };
        assert_eq!(rest, "moon");
        let cut = diff.cut(0, u64::MAX).unwrap();
        assert_eq!((cut.after_seq, diff.text(), cut.text.as_str()), (1, "Hel", "lo "));
    }

    #[test]
    fn a_difference_in_the_first_packet_cuts_everything() {
        let mut diff = sent(&["Hello"]);
        assert!(matches!(diff.meet_text("Help".into()), Met::Different(rest) if rest == "p"));
        let cut = diff.cut(0, u64::MAX).unwrap();
        assert_eq!((cut.after_seq, cut.text.as_str()), (0, "Hel"));
    }

    #[test]
    fn an_attempt_that_ends_early_is_behind() {
        let mut diff = sent(&["Hello"]);
        assert!(matches!(diff.meet_text("Hell".into()), Met::Equal));
        assert!(diff.is_behind());
    }

    #[test]
    fn an_attempt_that_goes_back_is_compared_from_there() {
        let event = |id: &str| {
            RawObject::parse(&format!(r#"{{"type":"X","data":{{"a":"{id}"}}}}"#)).unwrap()
        };
        let mut diff = AttemptDiff::new(true);
        diff.sent_text(1, "One. ");
        diff.sent_event(2, &event("kept"));
        diff.sent_text(3, "Hello the");
        diff.sent_event(4, &event("broken"));
        diff.rewind_to(5).unwrap();
        assert!(matches!(diff.meet_text("Hello".into()), Met::Equal));
        assert!(!diff.meet_event(&event("kept")), "it stood before that place");
        assert!(diff.meet_event(&event("broken")), "this one is said again");
        assert_eq!(new(diff.meet_text(" there".into())).as_deref(), Some("re"));
    }

    #[test]
    fn characters_are_never_split() {
        let mut diff = sent(&["naïve"]);
        assert!(matches!(diff.meet_text("naî".into()), Met::Different(rest) if rest == "î"));
    }

    #[test]
    fn an_equal_event_is_not_repeated_but_a_second_one_is() {
        let event = |id: &str| {
            RawObject::parse(&format!(r#"{{"id":"{id}","type":"X","data":{{"a":1}}}}"#)).unwrap()
        };
        let mut diff = AttemptDiff::new(true);
        diff.sent_event(1, &event("1"));
        diff.rewind();
        assert!(diff.meet_event(&event("2")), "ids do not count");
        assert!(!diff.meet_event(&event("3")), "but each was sent once");
    }

    #[test]
    fn an_event_is_compared_with_its_equals_alone() {
        let event =
            |n: u64| RawObject::parse(&format!(r#"{{"type":"X","data":{{"n":{n}}}}}"#)).unwrap();
        let events: Vec<_> = (0..1000).map(event).collect();
        let mut diff = AttemptDiff::new(true);
        (1..).zip(&events).for_each(|(seq, event)| diff.sent_event(seq, event));
        diff.rewind();
        assert!(diff.unmet.values().all(|candidates| candidates.len() == 1));
        assert!(events.iter().rev().all(|event| diff.meet_event(event)));
        assert!(!diff.meet_event(&event(7)), "each was sent once");
    }

    #[test]
    fn a_run_without_another_attempt_keeps_its_text_only_and_only_if_it_is_short() {
        let mut diff = AttemptDiff::with_limit(false, 8);
        diff.sent_text(1, "Hello");
        diff.sent_event(2, &RawObject::parse(r#"{"type":"X","data":{}}"#).unwrap());
        assert_eq!((diff.marks.len(), diff.events.len(), diff.text()), (0, 0, "Hello"));
        diff.sent_text(3, " world");
        assert_eq!((diff.text.capacity(), diff.take_text()), (0, None));
    }

    /// A viewer of two attempts, the second of which may say anything: what the viewer holds in the
    /// end.
    fn viewed(limit: usize, first: &[String], second: &[String]) -> String {
        let mut diff = AttemptDiff::with_limit(true, limit);
        let mut packets: Vec<(u64, String)> = Vec::new();
        let mut seq = 0;
        let mut say = |diff: &mut AttemptDiff, packets: &mut Vec<(u64, String)>, text: String| {
            seq += 1;
            diff.sent_text(seq, &text);
            packets.push((seq, text));
        };
        first.iter().for_each(|piece| say(&mut diff, &mut packets, piece.clone()));
        diff.rewind();
        let mut pieces: Vec<Option<&String>> = second.iter().map(Some).collect();
        pieces.push(None);
        for piece in pieces {
            let rest = match piece.map(|piece| diff.meet_text(piece.to_owned())) {
                Some(Met::Equal) => continue,
                Some(Met::New(rest)) => {
                    say(&mut diff, &mut packets, rest);
                    continue;
                }
                Some(Met::Different(rest)) => rest,
                None if diff.is_behind() => String::new(),
                None => continue,
            };
            let cut = diff.cut(0, u64::MAX).unwrap();
            packets.retain(|(seq, _)| *seq <= cut.after_seq);
            say(&mut diff, &mut packets, cut.text + &rest);
        }
        assert!(diff.text.len() <= limit);
        packets.into_iter().map(|(_, text)| text).collect()
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_kept_a_viewer_ends_up_with_what_the_last_attempt_said(
            limit in 0_usize..20,
            first in proptest::collection::vec("[abï]{0,4}", 0..8),
            second in proptest::collection::vec("[abï]{0,4}", 0..8),
            repeats in proptest::bool::ANY,
            cut in 0_usize..9,
        ) {
            // Half of the time the second attempt begins as the first did, in other chunks.
            let second = if repeats {
                let whole: Vec<char> = first.concat().chars().collect();
                let again = whole.chunks(3).map(String::from_iter).take(cut);
                again.chain(second).collect()
            } else {
                second
            };
            proptest::prop_assert_eq!(viewed(limit, &first, &second), second.concat());
        }
    }
}
