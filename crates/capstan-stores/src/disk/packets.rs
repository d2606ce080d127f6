//! Packets in blocks: what one frame of kind `Packets` holds. At most 28 KiB, before they are packed; a larger packet is a
//! block of its own.

use bytes::Bytes;
use capstan_journal::{Frame, Frames};

use super::format::In;
use crate::packing;

const BLOCK_FRAMES: usize = 256;
pub(crate) const BLOCK_BYTES: usize = 28 * 1024;
/// Before the packets: how many bytes the stream has up to the block's end, and how many packets are in it.
const FIXED: usize = 12;
/// Of the count: the packets are packed, and their size comes first.
const PACKED: u32 = 1 << 31;

/// Splits packets that were appended together into blocks.
pub(crate) fn blocks(frames: &[Frame]) -> impl Iterator<Item = &[Frame]> {
    let mut rest = frames;
    std::iter::from_fn(move || {
        let mut bytes = FIXED;
        let fits = rest.iter().take(BLOCK_FRAMES).take_while(|frame| {
            bytes += 4 + frame.bytes.len();
            bytes <= BLOCK_BYTES
        });
        let (block, after) = rest.split_at_checked(fits.count().max(1))?;
        rest = after;
        Some(block)
    })
}

/// A block: length of all packets up to its end, how many are in it, the length of each, their bytes.
pub(crate) fn encode(total: u64, frames: &[Frame], out: &mut Vec<u8>) {
    out.extend(total.to_le_bytes());
    let (at, count) = (out.len(), frames.len() as u32);
    out.extend(count.to_le_bytes());
    let start = out.len();
    frames.iter().for_each(|frame| out.extend((frame.bytes.len() as u32).to_le_bytes()));
    frames.iter().for_each(|frame| out.extend_from_slice(&frame.bytes));
    let plain = out.get(start..).unwrap_or_default();
    if let Some(packed) = packing::pack(plain) {
        let size = plain.len() as u32;
        out.truncate(at);
        out.extend((count | PACKED).to_le_bytes());
        out.extend(size.to_le_bytes());
        out.extend(packed);
    }
}

/// A block's packets and the length of all packets up to its end. `None` if it is none.
pub(crate) fn read(last: u64, payload: &Bytes) -> Option<(u64, Block)> {
    let head = Head::read(payload)?;
    let packets = payload.slice(payload.len() - head.rest.len()..);
    let packets = match head.packed {
        Some(size) => packing::unpack(&packets, size)?.into(),
        None => packets,
    };
    let (lengths, bytes) = packets.split_at_checked(head.count.checked_mul(4)?)?;
    let first = (last + 1).checked_sub(head.count as u64)?;
    let (mut ends, mut end) = (Vec::with_capacity(head.count), 0_u32);
    for length in lengths.as_chunks::<4>().0 {
        end = end.checked_add(u32::from_le_bytes(*length)).filter(|end| *end as usize <= bytes.len())?;
        ends.push(end);
    }
    let bytes = packets.slice(lengths.len()..lengths.len() + end as usize);
    Some((head.total, Block { first, ends, bytes }))
}

/// Packets that follow each other, in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    first: u64,
    /// Where each of them ends.
    ends: Vec<u32>,
    bytes: Bytes,
}

impl Block {
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The last packet's seq, if there is one.
    pub(crate) fn last(&self) -> Option<u64> {
        (self.first + self.len() as u64).checked_sub(1).filter(|_| !self.is_empty())
    }

    /// Those after a seq.
    pub(crate) fn after(mut self, seq: u64) -> Self {
        let gone = usize::try_from(seq.saturating_add(1).saturating_sub(self.first))
            .unwrap_or(usize::MAX)
            .min(self.len());
        if gone > 0 {
            let from = self.ends.drain(..gone).next_back().unwrap_or(0);
            self.ends.iter_mut().for_each(|end| *end -= from);
            self.bytes = self.bytes.slice(from as usize..);
            self.first += gone as u64;
        }
        self
    }

    /// Those up to a seq.
    pub(crate) fn upto(self, seq: u64) -> Self {
        let kept = seq.saturating_add(1).saturating_sub(self.first);
        self.keep(usize::try_from(kept).unwrap_or(usize::MAX))
    }

    /// How many of the first ones there is room for.
    pub(crate) fn fitting(&self, packets: usize, bytes: usize) -> usize {
        self.ends.partition_point(|end| *end as usize <= bytes).min(packets)
    }

    /// The first so many of them.
    pub(crate) fn keep(mut self, count: usize) -> Self {
        if count < self.len() {
            self.ends.truncate(count);
            self.bytes.truncate(self.ends.last().map_or(0, |end| *end as usize));
        }
        self
    }

    /// Each packet by itself.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let places = starts.zip(&self.ends);
        (self.first..)
            .zip(places)
            .map(|(seq, (start, end))| Frame { seq, bytes: self.bytes.slice(start as usize..*end as usize) })
    }
}

/// Blocks one behind the other, as they are handed on: the first one as it is, several of them copied into one piece.
#[derive(Default)]
pub(crate) struct Joined {
    last: u64,
    ends: Vec<u32>,
    only: Bytes,
    whole: Vec<u8>,
}

impl Joined {
    /// With more than one, there is to be room for so many bytes.
    pub(crate) fn push(&mut self, block: Block, room: usize) {
        let Some(last) = block.last() else { return };
        self.last = last;
        if self.ends.is_empty() {
            (self.ends, self.only) = (block.ends, block.bytes);
            return;
        }
        if self.whole.is_empty() {
            self.whole.reserve(self.only.len() + room.max(block.bytes.len()));
            self.whole.extend_from_slice(&std::mem::take(&mut self.only));
        }
        let from = self.whole.len() as u32;
        self.whole.extend_from_slice(&block.bytes);
        self.ends.extend(block.ends.iter().map(|end| from + end));
    }

    /// The packets and the last one's seq, if there are any.
    pub(crate) fn done(self) -> Option<(Frames, u64)> {
        let bytes = if self.whole.is_empty() { self.only } else { self.whole.into() };
        let frames = Frames::joined(bytes, self.ends).filter(|frames| !frames.is_empty())?;
        Some((frames, self.last))
    }
}

/// How many packets a block holds.
pub(crate) fn count(payload: &[u8]) -> u64 {
    Head::read(payload).map_or(0, |head| head.count as u64)
}

/// How long a block is, or was before it was packed.
pub(crate) fn size(payload: &[u8]) -> usize {
    Head::read(payload).and_then(|head| head.packed).map_or(payload.len(), |packets| FIXED + packets)
}

struct Head<'a> {
    total: u64,
    count: usize,
    /// The size that the rest had before.
    packed: Option<usize>,
    rest: &'a [u8],
}

impl<'a> Head<'a> {
    fn read(payload: &'a [u8]) -> Option<Self> {
        let mut from = In(payload);
        let total = u64::from_le_bytes(from.take()?);
        let count = u32::from_le_bytes(from.take()?);
        let packed = match count & PACKED {
            0 => None,
            _ => Some(u32::from_le_bytes(from.take()?) as usize),
        };
        Some(Self { total, count: (count & !PACKED) as usize, packed, rest: from.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(sizes: &[usize]) -> Vec<Frame> {
        sizes.iter().zip(7..).map(|(size, seq)| Frame::new(seq, vec![b'x'; *size])).collect()
    }

    #[test]
    fn a_block_gives_back_its_packets_and_the_length_so_far() {
        let written = frames(&[3, 0, 5]);
        let mut payload = Vec::new();
        encode(100, &written, &mut payload);
        assert_eq!(count(&payload), 3);
        let payload = Bytes::from(payload);
        let (total, block) = read(9, &payload).unwrap();
        assert_eq!((total, block.frames().collect()), (100, written));
        for cut in 0..payload.len() {
            assert!(read(9, &payload.slice(..cut)).is_none(), "cut at {cut}");
        }
        assert!(read(1, &payload).is_none(), "three packets cannot end at seq 1");
    }

    #[test]
    fn packets_that_resemble_each_other_are_packed() {
        let written = frames(&[150; 100]);
        let mut payload = Vec::new();
        encode(100, &written, &mut payload);
        assert!(payload.len() < 1000 && size(&payload) == FIXED + 100 * 154 && count(&payload) == 100);
        let payload = Bytes::from(payload);
        let (total, block) = read(106, &payload).unwrap();
        assert_eq!((total, block.frames().collect()), (100, written));
        for cut in 0..payload.len() {
            assert!(read(106, &payload.slice(..cut)).is_none(), "cut at {cut}");
        }
        assert!(read(98, &payload).is_none(), "a hundred packets cannot end at seq 98");
    }

    #[test]
    fn a_block_is_cut_where_it_is_asked_to_be() {
        let written = frames(&[3, 0, 5, 2]);
        let mut payload = Vec::new();
        encode(100, &written, &mut payload);
        let (_, block) = read(10, &payload.into()).unwrap();
        for from in 0..12 {
            for upto in 0..12 {
                let cut: Vec<_> = block.clone().after(from).upto(upto).frames().collect();
                let kept = written.iter().filter(|frame| frame.seq > from && frame.seq <= upto);
                assert_eq!(cut, kept.cloned().collect::<Vec<_>>(), "{from}..={upto}");
            }
        }
        assert!(block.clone().after(u64::MAX).is_empty() && block.clone().upto(u64::MAX) == block);
        for (packets, bytes, fit) in
            [(9, 99, 4), (2, 99, 2), (9, 3, 2), (9, 7, 2), (9, 8, 3), (9, 2, 0), (0, 99, 0)]
        {
            assert_eq!(block.fitting(packets, bytes), fit, "{packets}, {bytes}");
        }
    }

    #[test]
    fn blocks_that_are_joined_are_their_packets_in_one_piece() {
        let written = frames(&[3, 0, 5, 2, 8]);
        let mut joined = Joined::default();
        assert!(Joined::default().done().is_none());
        for some in [&written[..2], &written[2..2], &written[2..4], &written[4..]] {
            let mut payload = Vec::new();
            encode(0, some, &mut payload);
            let last = some.last().map_or(99, |frame| frame.seq);
            joined.push(read(last, &payload.into()).unwrap().1, 1);
        }
        let (frames, last) = joined.done().unwrap();
        assert_eq!(last, 11);
        assert_eq!(frames, written.into_iter().collect());
    }

    #[test]
    fn blocks_are_bounded_and_together_are_what_was_appended() {
        for sizes in
            [vec![], vec![BLOCK_BYTES * 3], vec![1; 1000], vec![BLOCK_BYTES / 2; 5], vec![1, BLOCK_BYTES, 1]]
        {
            let written = frames(&sizes);
            let split: Vec<_> = blocks(&written).collect();
            assert_eq!(split.concat(), written);
            for block in split {
                let mut payload = Vec::new();
                encode(0, block, &mut payload);
                assert!(!block.is_empty() && block.len() <= BLOCK_FRAMES);
                assert!(size(&payload) <= BLOCK_BYTES || block.len() == 1);
            }
        }
    }
}
