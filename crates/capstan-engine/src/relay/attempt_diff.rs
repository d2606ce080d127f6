//! Compares a later attempt with the packets that earlier attempts sent: text, thoughts and events.
//! `call_diff` compares tool calls.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash, Hasher};
use std::ops::Range;

use capstan_protocol::{Event, NATIVE, RawObject};
use serde_json::Value;

use super::text_diff::{Comparison, Forgotten, TextDiff};

/// The most text that is stored of a run, and the same for its events. Longer answers are rare, and
/// many runs may be open at once.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The sent packets, and how far the present attempt agrees with them.
pub(super) struct AttemptDiff {
    /// Whether a later attempt may be compared.
    compares: bool,
    limit: usize,
    text: TextDiff,
    /// All thoughts, joined.
    thoughts: TextDiff,
    /// The events of the thoughts, so that they can be repeated unchanged.
    thought_events: Vec<(u64, RawObject)>,
    events: Vec<SentEvent>,
    /// The length of the stored events.
    event_bytes: usize,
    /// Events that the present attempt has not repeated. Of equal ones, the first is last.
    unrepeated: HashMap<u64, Vec<usize>>,
    /// Native events of the present attempt for a place at which viewers have none of their shape:
    /// each with the packet before this place. Stored up to the limit.
    left_out: Vec<(u64, Option<RawObject>)>,
    hasher: RandomState,
}

struct SentEvent {
    seq: u64,
    /// Stored up to the limit.
    raw: Option<RawObject>,
    /// A hash of its type and data; of a native event, of its shape.
    essence: u64,
    /// The present attempt has repeated it.
    is_repeated: bool,
}

/// An output of the present attempt that a reset removes although both attempts agree on it.
#[derive(Debug, PartialEq)]
pub(super) enum Again {
    Text(String),
    /// With its event, if the whole thought is repeated.
    Thought(String, Option<RawObject>),
    Event(RawObject),
}

impl AttemptDiff {
    /// `compares` says whether another attempt is possible.
    pub(super) fn new(compares: bool) -> Self {
        Self::with_limit(compares, MOST_BYTES)
    }

    pub(super) fn with_limit(compares: bool, limit: usize) -> Self {
        Self {
            compares,
            limit,
            text: TextDiff::new(compares, limit),
            thoughts: TextDiff::new(compares, limit),
            thought_events: Vec::new(),
            events: Vec::new(),
            event_bytes: 0,
            unrepeated: HashMap::new(),
            left_out: Vec::new(),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.len() == 0 && self.thoughts.len() == 0 && self.events.is_empty()
    }

    /// The length of the sent text, after resets.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn compares(&self) -> bool {
        self.compares
    }

    /// Takes the text after the last comparison; `None` if it exceeded the limit.
    pub(super) fn take_text(&mut self) -> Option<String> {
        self.text.take()
    }

    /// The sent text after resets; only the beginning if it exceeds the limit.
    pub(super) fn text(&self) -> &str {
        self.text.as_str()
    }

    pub(super) fn thoughts(&self) -> &TextDiff {
        &self.thoughts
    }

    pub(super) fn sent_text(&mut self, seq: u64, text: &str) {
        self.text.sent(seq, text);
    }

    pub(super) fn sent_thought(&mut self, seq: u64, thought: &str, raw: &RawObject) {
        if self.compares {
            self.thoughts.sent(seq, thought);
            if let Some(raw) = self.keep(raw) {
                self.thought_events.push((seq, raw));
            }
        }
    }

    /// Copies an event, up to the limit.
    fn keep(&mut self, raw: &RawObject) -> Option<RawObject> {
        let length = raw.get().len();
        let is_kept = self.event_bytes + length <= self.limit;
        self.event_bytes += if is_kept { length } else { 0 };
        is_kept.then(|| raw.clone())
    }

    pub(super) fn sent_event(&mut self, seq: u64, raw: &RawObject) {
        if !self.compares {
            return;
        }
        let (kept, essence) = (self.keep(raw), self.essence(raw));
        self.events.push(SentEvent { seq, raw: kept, essence, is_repeated: true });
    }

    /// Memory of the stored texts and of their packet marks, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.bytes() + self.thoughts.bytes()
    }

    /// Begins a new attempt, in which nothing is repeated yet.
    pub(super) fn rewind(&mut self) {
        self.text.rewind();
        self.thoughts.rewind();
        self.left_out.clear();
        self.mark_unrepeated_from(0);
    }

    /// The attempt restarts at an earlier place of its text. It may repeat the events that it sent
    /// after that place. Returns the first packet after the place.
    pub(super) fn rewind_to(&mut self, text_len: usize) -> Result<u64, Forgotten> {
        let next = self.text.rewind_to(text_len)?;
        self.mark_unrepeated_from(self.events.partition_point(|event| event.seq <= next));
        Ok(next)
    }

    /// Marks the events from this index on as not repeated.
    fn mark_unrepeated_from(&mut self, first: usize) {
        for (index, event) in self.events.iter_mut().enumerate().skip(first).rev() {
            event.is_repeated = false;
            self.unrepeated.entry(event.essence).or_default().push(index);
        }
    }

    /// Whether the attempt has not repeated all of the sent text.
    pub(super) fn is_behind(&self) -> bool {
        self.text.is_behind()
    }

    pub(super) fn compare_text(&mut self, text: String) -> Comparison {
        self.text.compare(text)
    }

    pub(super) fn compare_thought(&mut self, thought: String) -> Comparison {
        self.thoughts.compare(thought)
    }

    /// Returns true if an earlier attempt sent an equal event. Then the event is not sent again.
    pub(super) fn compare_event(&mut self, raw: &RawObject) -> bool {
        if self.unrepeated.is_empty() {
            return false;
        }
        let wanted = self.essence(raw);
        let Some(candidates) = self.unrepeated.get_mut(&wanted) else { return false };
        // A reset may have removed some candidates.
        let known = std::iter::from_fn(|| candidates.pop());
        let known = known.into_iter().find(|index| {
            self.events
                .get(*index)
                .is_some_and(|event| !event.is_repeated && event.essence == wanted)
        });
        if candidates.is_empty() {
            self.unrepeated.remove(&wanted);
        }
        let event = known.and_then(|index| self.events.get_mut(index));
        event.map(|event| event.is_repeated = true).is_some()
    }

    /// Returns true if viewers have a native event of this shape in this range of packets. Then it
    /// is not sent again. Its values may differ: each attempt signs its thoughts anew. The range is
    /// the place of the attempt, which only moves forward.
    pub(super) fn compare_native(&mut self, raw: &RawObject, place: &Range<u64>) -> bool {
        let shape = self.essence(raw);
        let Some(candidates) = self.unrepeated.get_mut(&shape) else { return false };
        while let Some(index) = candidates.last() {
            let event = self.events.get_mut(*index);
            let event = event.filter(|event| !event.is_repeated && event.essence == shape);
            match event {
                Some(event) if event.seq >= place.end => return false,
                Some(event) if place.contains(&event.seq) => {
                    // After a reset, viewers get what this attempt wrote.
                    event.is_repeated = true;
                    event.raw.iter_mut().for_each(|sent| sent.clone_from(raw));
                    candidates.pop();
                    return true;
                }
                Some(_) | None => candidates.pop(),
            };
        }
        false
    }

    /// Leaves out a native event whose place, behind this packet, viewers have passed. They get it
    /// after a reset to a packet before it.
    pub(super) fn leave_out(&mut self, after: u64, raw: &RawObject) {
        let kept = self.keep(raw);
        self.left_out.push((after, kept));
    }

    /// The last packet before `before` whose text the attempt has repeated.
    pub(super) fn last_agreed_text(&self, before: u64) -> u64 {
        self.text.last_agreed(before)
    }

    /// The first packet whose text the attempt has not repeated.
    pub(super) fn first_different(&self) -> u64 {
        self.text.first_different()
    }

    /// The first packet whose text or thoughts the attempt has not repeated. Missing thoughts alone
    /// are no difference, because an agent that continues a text does not think again.
    pub(super) fn first_different_thought(&self) -> u64 {
        self.text.first_different().min(self.thoughts.first_different())
    }

    /// The last packet before `before` that the attempt has repeated completely.
    pub(super) fn last_agreed(&self, before: u64) -> u64 {
        self.text.last_agreed(before).max(self.thoughts.last_agreed(before))
    }

    /// Removes everything after a packet, and returns the repeated part of it in order. `calls` are
    /// the repeated events of tool calls.
    pub(super) fn cut(
        &mut self,
        after_seq: u64,
        calls: Vec<(u64, RawObject)>,
    ) -> Result<Vec<Again>, Forgotten> {
        let mut pieces = self.agreed_after(after_seq, calls)?;
        pieces.sort_by_key(|(seq, _)| *seq);
        let mut again: Vec<Again> = Vec::new();
        for (_, piece) in pieces {
            match (again.last_mut(), piece) {
                (Some(Again::Text(text)), Again::Text(more)) => text.push_str(&more),
                (_, piece) => again.push(piece),
            }
        }
        let pending = self.text.take_pending();
        match again.last_mut() {
            Some(Again::Text(text)) => text.push_str(&pending),
            _ if pending.is_empty() => {}
            _ => again.push(Again::Text(pending)),
        }
        self.reset(after_seq);
        Ok(again)
    }

    fn agreed_after(
        &self,
        after_seq: u64,
        calls: Vec<(u64, RawObject)>,
    ) -> Result<Vec<(u64, Again)>, Forgotten> {
        let mut pieces = Vec::new();
        pieces_of(&self.text, after_seq, |_, text| Again::Text(text), &mut pieces)?;
        let event = |seq: u64| {
            let at = self.thought_events.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
            self.thought_events.get(at).map(|(_, raw)| raw.clone())
        };
        let cut_off = self.thoughts.first_different();
        let thought = |seq, text| Again::Thought(text, event(seq).filter(|_| seq < cut_off));
        pieces_of(&self.thoughts, after_seq, thought, &mut pieces)?;
        let first = self.events.partition_point(|event| event.seq <= after_seq);
        for event in self.events.iter().skip(first).filter(|event| event.is_repeated) {
            pieces.push((event.seq, Again::Event(event.raw.clone().ok_or(Forgotten)?)));
        }
        for (seq, event) in self.left_out.iter().filter(|(seq, _)| *seq >= after_seq) {
            pieces.push((*seq, Again::Event(event.clone().ok_or(Forgotten)?)));
        }
        pieces.extend(calls.into_iter().map(|(seq, event)| (seq, Again::Event(event))));
        Ok(pieces)
    }

    /// Removes everything after a packet.
    pub(super) fn reset(&mut self, after_seq: u64) {
        self.text.reset(after_seq);
        self.thoughts.reset(after_seq);
        self.events.truncate(self.events.partition_point(|event| event.seq <= after_seq));
        self.thought_events.retain(|(seq, _)| *seq <= after_seq);
        self.left_out.retain(|(seq, _)| *seq < after_seq);
        let events = self.events.iter().filter_map(|event| event.raw.as_ref());
        let kept = events.chain(self.thought_events.iter().map(|(_, raw)| raw));
        let kept = kept.chain(self.left_out.iter().filter_map(|(_, raw)| raw.as_ref()));
        self.event_bytes = kept.map(|raw| raw.get().len()).sum();
    }

    /// A hash of an event's type and data. Ids and times differ between attempts, and in a native
    /// event all values may.
    fn essence(&self, raw: &RawObject) -> u64 {
        let event = Event::of(raw);
        let mut hasher = self.hasher.build_hasher();
        match event.kind {
            None => hash_value(&Value::Object(raw.to_map()), &mut hasher),
            Some(kind) if kind == NATIVE => {
                kind.hash(&mut hasher);
                for name in ["event", "part"] {
                    event.data.get(name).is_some().hash(&mut hasher);
                    hash_shape(event.data.get(name).unwrap_or_default(), &mut hasher);
                }
            }
            kind => {
                kind.hash(&mut hasher);
                hash_value(&event.data, &mut hasher);
            }
        }
        hasher.finish()
    }
}

/// The repeated pieces of a text after a packet, packet by packet.
fn pieces_of(
    text: &TextDiff,
    after_seq: u64,
    make: impl Fn(u64, String) -> Again,
    out: &mut Vec<(u64, Again)>,
) -> Result<(), Forgotten> {
    let Range { mut start, end } = text.agreed_up_to(after_seq)..text.agreed();
    while start < end
        && let Some((seq, next)) = text.packet_at(start)
    {
        out.push((seq, make(seq, text.agreed_text(start..next)?.to_owned())));
        start = next;
    }
    Ok(())
}

/// Hashes the names of all members, and the types. Lists count as one value.
fn hash_shape(value: &Value, hasher: &mut impl Hasher) {
    let Value::Object(members) = value else { return };
    let mut members: Vec<_> = members.iter().collect();
    members.sort_unstable_by_key(|(name, _)| *name);
    members.len().hash(hasher);
    for (name, value) in members {
        name.hash(hasher);
        match value.as_str().filter(|_| name == "type") {
            Some(kind) => kind.hash(hasher),
            None => hash_shape(value, hasher),
        }
    }
}

/// Hashes a value so that the order of its members does not matter.
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

    /// The packet to which a reset goes back, and the text that follows it.
    fn cut(diff: &mut AttemptDiff) -> (u64, String) {
        let after = diff.last_agreed(diff.first_different());
        let again = diff.cut(after, Vec::new()).unwrap();
        let text = again.into_iter().map(|piece| {
            let Again::Text(text) = piece else { panic!("{piece:?}") };
            text
        });
        (after, text.collect())
    }

    fn new(met: Comparison) -> Option<String> {
        if let Comparison::New(text) = met { Some(text) } else { None }
    }

    #[test]
    fn the_equal_part_is_swallowed_whatever_the_chunks() {
        let mut diff = sent(&["Hel", "lo wor"]);
        assert!(matches!(diff.compare_text("H".into()), Comparison::Equal));
        assert!(matches!(diff.compare_text("ello ".into()), Comparison::Equal));
        assert_eq!(new(diff.compare_text("world".into())).as_deref(), Some("ld"));
        assert!(!diff.is_behind());
    }

    #[test]
    fn a_difference_cuts_back_to_the_last_packet_that_agrees() {
        let mut diff = sent(&["Hel", "lo wor", "ld"]);
        let Comparison::Different(rest) = diff.compare_text("Hello moon".into()) else { panic!() };
        assert_eq!(rest, "moon");
        let (after, text) = cut(&mut diff);
        assert_eq!((after, diff.text(), text.as_str()), (1, "Hel", "lo "));
    }

    #[test]
    fn a_difference_in_the_first_packet_cuts_everything() {
        let mut diff = sent(&["Hello"]);
        assert!(
            matches!(diff.compare_text("Help".into()), Comparison::Different(rest) if rest == "p")
        );
        assert_eq!(cut(&mut diff), (0, "Hel".to_owned()));
    }

    #[test]
    fn an_attempt_that_ends_early_is_behind() {
        let mut diff = sent(&["Hello"]);
        assert!(matches!(diff.compare_text("Hell".into()), Comparison::Equal));
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
        assert!(matches!(diff.compare_text("Hello".into()), Comparison::Equal));
        assert!(!diff.compare_event(&event("kept")), "it stood before that place");
        assert!(diff.compare_event(&event("broken")), "this one is said again");
        assert_eq!(new(diff.compare_text(" there".into())).as_deref(), Some("re"));
    }

    #[test]
    fn characters_are_never_split() {
        let mut diff = sent(&["naïve"]);
        assert!(
            matches!(diff.compare_text("naî".into()), Comparison::Different(rest) if rest == "î")
        );
    }

    #[test]
    fn an_equal_event_is_not_repeated_but_a_second_one_is() {
        let event = |id: &str| {
            RawObject::parse(&format!(r#"{{"id":"{id}","type":"X","data":{{"a":1}}}}"#)).unwrap()
        };
        let mut diff = AttemptDiff::new(true);
        diff.sent_event(1, &event("1"));
        diff.rewind();
        assert!(diff.compare_event(&event("2")), "ids do not count");
        assert!(!diff.compare_event(&event("3")), "but each was sent once");
    }

    #[test]
    fn an_event_is_compared_with_its_equals_alone() {
        let event =
            |n: u64| RawObject::parse(&format!(r#"{{"type":"X","data":{{"n":{n}}}}}"#)).unwrap();
        let events: Vec<_> = (0..1000).map(event).collect();
        let mut diff = AttemptDiff::new(true);
        (1..).zip(&events).for_each(|(seq, event)| diff.sent_event(seq, event));
        diff.rewind();
        assert!(diff.unrepeated.values().all(|candidates| candidates.len() == 1));
        assert!(events.iter().rev().all(|event| diff.compare_event(event)));
        assert!(!diff.compare_event(&event(7)), "each was sent once");
    }

    #[test]
    fn a_run_without_another_attempt_keeps_its_text_only_and_only_if_it_is_short() {
        let mut diff = AttemptDiff::with_limit(false, 8);
        diff.sent_text(1, "Hello");
        diff.sent_event(2, &RawObject::parse(r#"{"type":"X","data":{}}"#).unwrap());
        assert_eq!((diff.bytes(), diff.events.len(), diff.text()), (5, 0, "Hello"));
        diff.sent_text(3, " world");
        assert_eq!((diff.bytes(), diff.take_text()), (0, None));
    }

    /// What a viewer of two attempts has in the end. The second attempt may write anything.
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
            let rest = match piece.map(|piece| diff.compare_text(piece.to_owned())) {
                Some(Comparison::Equal) => continue,
                Some(Comparison::New(rest)) => {
                    say(&mut diff, &mut packets, rest);
                    continue;
                }
                Some(Comparison::Different(rest)) => rest,
                None if diff.is_behind() => String::new(),
                None => continue,
            };
            let (after, text) = cut(&mut diff);
            packets.retain(|(seq, _)| *seq <= after);
            say(&mut diff, &mut packets, text + &rest);
        }
        assert!(diff.text().len() <= limit);
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
            // Half of the time the second attempt begins like the first, in other chunks.
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
