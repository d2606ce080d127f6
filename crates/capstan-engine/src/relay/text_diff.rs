//! Compares one text over several attempts, independent of its chunks.
//!
//! Texts are stored up to a limit. Beyond it only a hash of each packet is stored, and the attempt
//! is compared packet by packet.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::ops::Range;

use super::marks::{Mark, Marks};

/// The comparison needs text that is no longer stored.
#[derive(Debug)]
pub(super) struct Forgotten;

/// The sent text, and how far the present attempt agrees with it.
pub(super) struct TextDiff {
    /// Whether a later attempt may be compared. If not, the text is stored only for the session,
    /// while it is short.
    compares: bool,
    limit: usize,
    /// The beginning of the sent text: whole packets, up to the limit.
    text: String,
    /// The total length of the sent text.
    len: usize,
    /// A mark for each packet with text, if a comparison is possible.
    marks: Marks,
    /// A hash for each packet beyond the stored text.
    hashes: Vec<u32>,
    /// The length of the sent text that the present attempt has repeated.
    agreed: usize,
    /// The attempt's text beyond that: too short so far for a comparison by hash.
    pending: String,
    hasher: RandomState,
}

/// The result of comparing a piece of text with the sent text.
pub(super) enum Comparison {
    /// Viewers have it already.
    Equal,
    /// The attempt has repeated all of the sent text, and this is new.
    New(String),
    /// It differs. This is its text from the difference on.
    Different(String),
}

impl TextDiff {
    pub(super) fn new(compares: bool, limit: usize) -> Self {
        Self {
            compares,
            limit,
            text: String::new(),
            len: 0,
            marks: Marks::default(),
            hashes: Vec::new(),
            agreed: 0,
            pending: String::new(),
            hasher: RandomState::new(),
        }
    }

    /// The length of the sent text, after resets.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Takes the text after the last comparison; `None` if it exceeded the limit.
    pub(super) fn take(&mut self) -> Option<String> {
        let is_whole = self.text.len() == self.len;
        is_whole.then(|| std::mem::take(&mut self.text))
    }

    /// The sent text after resets; only the beginning if it exceeds the limit.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn sent(&mut self, seq: u64, text: &str) {
        let is_kept = self.text.len() == self.len && self.len + text.len() <= self.limit;
        if is_kept {
            self.text.push_str(text);
        } else if !self.compares {
            // An incomplete text is useless without a comparison.
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

    /// Half of a hash suffices to tell packets apart, and there may be millions of them.
    fn hash(&self, text: &str) -> u32 {
        self.hasher.hash_one(text) as u32
    }

    /// Memory of the text and its marks, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.marks.bytes() + self.hashes.len() * size_of::<u32>()
    }

    /// Begins a new attempt, in which nothing is repeated yet.
    pub(super) fn rewind(&mut self) {
        self.agreed = 0;
        self.pending.clear();
    }

    /// The attempt restarts at an earlier position. Returns the first packet after it.
    pub(super) fn rewind_to(&mut self, len: usize) -> Result<u64, Forgotten> {
        let to = len.min(self.agreed);
        if to > self.text.len() {
            return Err(Forgotten);
        }
        self.pending.clear();
        self.agreed = (0..=to).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
        Ok(self.first_different())
    }

    /// The length of the sent text that the present attempt has repeated.
    pub(super) fn agreed(&self) -> usize {
        self.agreed
    }

    /// Whether the attempt has not repeated all of the sent text.
    pub(super) fn is_behind(&self) -> bool {
        self.agreed < self.len
    }

    /// Compares a piece of text. New text is returned as it came, usually without a copy.
    pub(super) fn compare(&mut self, text: String) -> Comparison {
        let ahead = self.text.get(self.agreed..).unwrap_or_default();
        let common = common_prefix(ahead, &text);
        let is_through = common == ahead.len();
        self.agreed += common;
        let (was_empty, mut rest) = (text.is_empty(), text);
        rest.drain(..common);
        match (rest.is_empty(), is_through) {
            (false, false) => Comparison::Different(rest),
            (_, true) if self.is_behind() => self.compare_hashed(&rest),
            // If there is nothing left to compare, an empty delta is a packet like any other.
            (true, _) if !was_empty || self.is_behind() => Comparison::Equal,
            (_, _) => Comparison::New(rest),
        }
    }

    /// Compares text beyond the stored part, as soon as a whole packet of it has arrived.
    fn compare_hashed(&mut self, text: &str) -> Comparison {
        self.pending.push_str(text);
        loop {
            let around = self.marks.around(|mark| mark.end <= self.agreed);
            let Some(mark) = around.after else { break };
            let length = mark.end - self.agreed;
            if self.pending.len() < length {
                return Comparison::Equal;
            }
            let kept = self.marks.len() - self.hashes.len();
            let known = around.index.checked_sub(kept).and_then(|index| self.hashes.get(index));
            if self.pending.get(..length).map(|piece| self.hash(piece)) != known.copied() {
                return Comparison::Different(std::mem::take(&mut self.pending));
            }
            self.agreed = mark.end;
            self.pending.drain(..length);
        }
        let rest = std::mem::take(&mut self.pending);
        if rest.is_empty() { Comparison::Equal } else { Comparison::New(rest) }
    }

    /// The first packet whose text the attempt has not repeated.
    pub(super) fn first_different(&self) -> u64 {
        self.marks.around(|mark| mark.end <= self.agreed).after.map_or(u64::MAX, |mark| mark.seq)
    }

    /// The last packet before `before` whose text the attempt has repeated.
    pub(super) fn last_agreed(&self, before: u64) -> u64 {
        let is_agreed = |mark: &Mark| mark.end <= self.agreed && mark.seq < before;
        self.marks.around(is_agreed).before.map_or(0, |mark| mark.seq)
    }

    /// The length of the repeated text up to a packet.
    pub(super) fn agreed_up_to(&self, seq: u64) -> usize {
        let before = self.marks.around(|mark| mark.seq <= seq).before;
        before.map_or(0, |mark| mark.end).min(self.agreed)
    }

    /// A range of the repeated text.
    pub(super) fn agreed_text(&self, place: Range<usize>) -> Result<&str, Forgotten> {
        if place.is_empty() { Ok("") } else { self.text.get(place).ok_or(Forgotten) }
    }

    /// The packet that contains a position of the text, and the end of its text.
    pub(super) fn packet_at(&self, place: usize) -> Option<(u64, usize)> {
        let mark = self.marks.around(|mark| mark.end <= place).after?;
        Some((mark.seq, mark.end.min(self.agreed)))
    }

    /// Takes the text that could not be compared yet.
    pub(super) fn take_pending(&mut self) -> String {
        std::mem::take(&mut self.pending)
    }

    /// Removes everything after a packet. The rest counts as repeated.
    pub(super) fn reset(&mut self, after_seq: u64) {
        let kept = self.marks.len() - self.hashes.len();
        let left = self.marks.around(|mark| mark.seq <= after_seq).index;
        self.marks.truncate(left);
        self.hashes.truncate(left.saturating_sub(kept));
        self.len = self.marks.last().unwrap_or_default().end;
        self.text.truncate(self.len);
        self.agreed = self.len;
        self.pending.clear();
    }
}

/// The length of the common prefix, up to a character boundary.
fn common_prefix(a: &str, b: &str) -> usize {
    a.char_indices()
        .zip(b.chars())
        .find(|((_, x), y)| x != y)
        .map_or(a.len().min(b.len()), |((at, _), _)| at)
}
