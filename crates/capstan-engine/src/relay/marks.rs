//! Stores where the text of each packet ends. A run may have millions of packets, so most of them
//! take two bytes.

/// A packet with text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    pub(super) seq: u64,
    /// The end of its text, as an offset into the run's text.
    pub(super) end: usize,
}

/// Every so many marks there is a checkpoint, so that a search decodes at most this many marks.
const STRIDE: usize = 64;

/// The marks in packet order.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The difference of each mark to the one before: its `seq`, then its `end`.
    steps: Vec<u8>,
    /// Before each `STRIDE`th mark: the mark before it, and the offset of its own entry in `steps`.
    checkpoints: Vec<(Mark, usize)>,
    count: usize,
    last: Mark,
}

impl Marks {
    pub(super) fn push(&mut self, mark: Mark) {
        if self.count.is_multiple_of(STRIDE) {
            self.checkpoints.push((self.last, self.steps.len()));
        }
        write(mark.seq.saturating_sub(self.last.seq), &mut self.steps);
        write(mark.end.saturating_sub(self.last.end) as u64, &mut self.steps);
        (self.count, self.last) = (self.count + 1, mark);
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Their size in memory.
    pub(super) fn bytes(&self) -> usize {
        self.steps.len() + self.checkpoints.len() * size_of::<(Mark, usize)>()
    }

    /// Finds the last mark for which a condition holds, and the mark after it. The condition must
    /// hold for all marks up to some mark, and for none after it.
    pub(super) fn around(&self, holds: impl Fn(&Mark) -> bool) -> Around {
        let checkpoint = self
            .checkpoints
            .partition_point(|(before, _)| *before == Mark::default() || holds(before));
        let checkpoint = checkpoint.saturating_sub(1);
        let mut around = Around { index: checkpoint * STRIDE, ..Around::default() };
        let Some((mut mark, mut at)) = self.checkpoints.get(checkpoint).copied() else {
            return around;
        };
        around.before = (checkpoint > 0).then_some(mark);
        while let Some(next) = self.step(mark, &mut at) {
            if !holds(&next) {
                around.after = Some(next);
                break;
            }
            (around.before, around.index, mark) = (Some(next), around.index + 1, next);
        }
        around
    }

    /// Keeps only the first `count` marks.
    pub(super) fn truncate(&mut self, count: usize) {
        if count >= self.count {
            return;
        }
        self.checkpoints.truncate(count.div_ceil(STRIDE).max(1));
        let (mut mark, mut at) = self.checkpoints.last().copied().unwrap_or_default();
        for _ in 0..count - (self.checkpoints.len() - 1) * STRIDE {
            mark = self.step(mark, &mut at).unwrap_or(mark);
        }
        self.steps.truncate(at);
        (self.count, self.last) = (count, mark);
        if count == 0 {
            self.checkpoints.clear();
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

/// The marks before and after a position.
#[derive(Debug, Default)]
pub(super) struct Around {
    pub(super) before: Option<Mark>,
    pub(super) after: Option<Mark>,
    /// The number of marks before the position.
    pub(super) index: usize,
}

/// Writes a variable-length integer: seven bits per byte, the lowest first.
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
