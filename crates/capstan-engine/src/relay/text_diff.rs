//! One text over several attempts, compared as one whatever the chunks it comes in.
//!
//! Long texts are kept up to a limit; beyond it each packet leaves a hash, and the attempt is
//! compared packet by packet.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::ops::Range;

use super::marks::{Mark, Marks};

/// What would have to be known is not kept any more.
#[derive(Debug)]
pub(super) struct Forgotten;

/// What was sent of a text so far, and how far the present attempt agrees with it.
pub(super) struct TextDiff {
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
    /// How much of what was sent the present attempt has said again.
    agreed: usize,
    /// What it has said beyond that: not yet enough to be compared by hash.
    held: String,
    hasher: RandomState,
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
            held: String::new(),
            hasher: RandomState::new(),
        }
    }

    /// The length of all text that was sent and not taken back.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The text, when nothing more will be compared with it; `None` if it was too long to be kept.
    pub(super) fn take(&mut self) -> Option<String> {
        let is_whole = self.text.len() == self.len;
        is_whole.then(|| std::mem::take(&mut self.text))
    }

    /// What was sent and not taken back; of a long one, the beginning.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn sent(&mut self, seq: u64, text: &str) {
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

    /// What is kept of it and its packets, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.marks.bytes() + self.hashes.len() * size_of::<u32>()
    }

    /// A new attempt begins: nothing is agreed upon yet.
    pub(super) fn rewind(&mut self) {
        self.agreed = 0;
        self.held.clear();
    }

    /// The attempt goes back to an earlier place of its text. The packet after which that is.
    pub(super) fn rewind_to(&mut self, len: usize) -> Result<u64, Forgotten> {
        let to = len.min(self.agreed);
        if to > self.text.len() {
            return Err(Forgotten);
        }
        self.held.clear();
        self.agreed = (0..=to).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0);
        Ok(self.first_different())
    }

    /// How much of what was sent the present attempt has said again.
    pub(super) fn agreed(&self) -> usize {
        self.agreed
    }

    /// The attempt has not said again all that was sent.
    pub(super) fn is_behind(&self) -> bool {
        self.agreed < self.len
    }

    /// What is new is handed back as it came: usually all of it is, and nothing is copied.
    pub(super) fn meet(&mut self, text: String) -> Met {
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

    /// The first packet whose text is not agreed upon.
    pub(super) fn first_different(&self) -> u64 {
        self.marks.around(|mark| mark.end <= self.agreed).after.map_or(u64::MAX, |mark| mark.seq)
    }

    /// The last packet before another whose text is agreed upon.
    pub(super) fn last_agreed(&self, before: u64) -> u64 {
        let is_agreed = |mark: &Mark| mark.end <= self.agreed && mark.seq < before;
        self.marks.around(is_agreed).before.map_or(0, |mark| mark.seq)
    }

    /// How much of the agreed text stands up to a packet.
    pub(super) fn agreed_up_to(&self, seq: u64) -> usize {
        let before = self.marks.around(|mark| mark.seq <= seq).before;
        before.map_or(0, |mark| mark.end).min(self.agreed)
    }

    /// The agreed text between two places.
    pub(super) fn agreed_text(&self, place: Range<usize>) -> Result<&str, Forgotten> {
        if place.is_empty() { Ok("") } else { self.text.get(place).ok_or(Forgotten) }
    }

    /// The packet in which a place of the text stands, and where its text ends.
    pub(super) fn packet_at(&self, place: usize) -> Option<(u64, usize)> {
        let mark = self.marks.around(|mark| mark.end <= place).after?;
        Some((mark.seq, mark.end.min(self.agreed)))
    }

    /// What the attempt has said and could not be compared yet.
    pub(super) fn take_held(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Forgets everything after a packet. What is left is agreed upon.
    pub(super) fn reset(&mut self, after_seq: u64) {
        let kept = self.marks.len() - self.hashes.len();
        let left = self.marks.around(|mark| mark.seq <= after_seq).index;
        self.marks.truncate(left);
        self.hashes.truncate(left.saturating_sub(kept));
        self.len = self.marks.last().unwrap_or_default().end;
        self.text.truncate(self.len);
        self.agreed = self.len;
        self.held.clear();
    }
}

/// The length of the common beginning, ending between characters.
fn common_prefix(a: &str, b: &str) -> usize {
    a.char_indices()
        .zip(b.chars())
        .find(|((_, x), y)| x != y)
        .map_or(a.len().min(b.len()), |((at, _), _)| at)
}
