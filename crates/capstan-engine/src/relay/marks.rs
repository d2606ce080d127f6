//! Where the text of each packet ends: two bytes for most packets, since a run may have millions of
//! them.

/// A packet with text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    pub(super) seq: u64,
    /// Where its text ends, counted from the start of the run's text.
    pub(super) end: usize,
}

/// Every so many marks the place of one is noted, so that a search decodes no more than that.
const STRIDE: usize = 64;

/// Marks in the order of their packets.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// For each mark how far it is from the one before: its seq, then its end.
    steps: Vec<u8>,
    /// Before every `STRIDE`th mark: the mark before it, and where its own step begins.
    posts: Vec<(Mark, usize)>,
    count: usize,
    last: Mark,
}

impl Marks {
    pub(super) fn push(&mut self, mark: Mark) {
        if self.count.is_multiple_of(STRIDE) {
            self.posts.push((self.last, self.steps.len()));
        }
        write(mark.seq.saturating_sub(self.last.seq), &mut self.steps);
        write(mark.end.saturating_sub(self.last.end) as u64, &mut self.steps);
        (self.count, self.last) = (self.count + 1, mark);
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// What they take.
    pub(super) fn bytes(&self) -> usize {
        self.steps.len() + self.posts.len() * size_of::<(Mark, usize)>()
    }

    /// The last one for which a condition holds that holds for a beginning of them, and the one
    /// after it.
    pub(super) fn around(&self, holds: impl Fn(&Mark) -> bool) -> Around {
        let post =
            self.posts.partition_point(|(before, _)| *before == Mark::default() || holds(before));
        let post = post.saturating_sub(1);
        let mut around = Around { index: post * STRIDE, ..Around::default() };
        let Some((mut mark, mut at)) = self.posts.get(post).copied() else { return around };
        around.before = (post > 0).then_some(mark);
        while let Some(next) = self.step(mark, &mut at) {
            if !holds(&next) {
                around.after = Some(next);
                break;
            }
            (around.before, around.index, mark) = (Some(next), around.index + 1, next);
        }
        around
    }

    /// Forgets all after the first so many.
    pub(super) fn truncate(&mut self, count: usize) {
        if count >= self.count {
            return;
        }
        self.posts.truncate(count.div_ceil(STRIDE).max(1));
        let (mut mark, mut at) = self.posts.last().copied().unwrap_or_default();
        for _ in 0..count - (self.posts.len() - 1) * STRIDE {
            mark = self.step(mark, &mut at).unwrap_or(mark);
        }
        self.steps.truncate(at);
        (self.count, self.last) = (count, mark);
        if count == 0 {
            self.posts.clear();
        }
    }

    pub(super) fn last(&self) -> Option<Mark> {
        (self.count > 0).then_some(self.last)
    }

    fn step(&self, from: Mark, at: &mut usize) -> Option<Mark> {
        let seq = read(&self.steps, at)?;
        let length = read(&self.steps, at)?;
        Some(Mark { seq: from.seq + seq, end: from.end + length as usize })
    }
}

/// The marks on both sides of a place.
#[derive(Debug, Default)]
pub(super) struct Around {
    pub(super) before: Option<Mark>,
    pub(super) after: Option<Mark>,
    /// How many there are before the place.
    pub(super) index: usize,
}

/// Seven bits a byte, the lowest first.
fn write(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let (mut number, mut shift) = (0, 0_u32);
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;

    use super::*;

    fn marks(steps: &[(u64, usize)]) -> (Marks, Vec<Mark>) {
        let (mut marks, mut plain, mut last) = (Marks::default(), Vec::new(), Mark::default());
        for (seq, length) in steps {
            last = Mark { seq: last.seq + 1 + seq, end: last.end + length };
            marks.push(last);
            plain.push(last);
        }
        (marks, plain)
    }

    #[test]
    fn a_million_packets_take_two_bytes_each() {
        let (marks, _) = marks(&vec![(0, 5); 1_000_000]);
        assert!(marks.bytes() < 2_500_000, "{}", marks.bytes());
    }

    proptest::proptest! {
        #[test]
        fn they_are_what_a_list_would_be(
            steps in vec((0_u64..300, 0_usize..20_000), 0..300),
            place in 0_usize..3_000_000,
            seq in 0_u64..50_000,
            kept in 0_usize..301,
        ) {
            let (mut marks, mut plain) = marks(&steps);
            for holds in [&(|mark: &Mark| mark.end <= place) as &dyn Fn(&Mark) -> bool,
            &|mark| mark.seq <= seq] {
                let index = plain.partition_point(holds);
                let around = marks.around(holds);
                proptest::prop_assert_eq!(around.index, index);
                proptest::prop_assert_eq!(around.after, plain.get(index).copied());
                proptest::prop_assert_eq!(around.before,
                index.checked_sub(1).and_then(|index| plain.get(index)).copied());
            }
            marks.truncate(kept);
            plain.truncate(kept);
            proptest::prop_assert_eq!((marks.len(), marks.last()), (plain.len(),
            plain.last().copied()));
            let next = Mark { seq: marks.last().unwrap_or_default().seq + 1,
            end: marks.last().unwrap_or_default().end };
            marks.push(next);
            plain.push(next);
            let around = marks.around(|_| true);
            proptest::prop_assert_eq!((around.before, around.index), (plain.last().copied(),
            plain.len()));
        }
    }
}
