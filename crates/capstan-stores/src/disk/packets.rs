//! Packets in blocks: what one frame of kind `Packets` holds. At most 28 KiB, before they are packed; a larger packet is a
//! block of its own.

use bytes::Bytes;
use capstan_journal::Frame;

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
pub(crate) fn read(last: u64, payload: &Bytes) -> Option<(u64, Vec<Frame>)> {
    let head = Head::read(payload)?;
    let packets = payload.slice(payload.len() - head.rest.len()..);
    let packets = match head.packed {
        Some(size) => packing::unpack(&packets, size)?.into(),
        None => packets,
    };
    let lengths = packets.get(..head.count.checked_mul(4)?)?;
    let mut at = lengths.len();
    let first = (last + 1).checked_sub(head.count as u64)?;
    let mut frames = Vec::with_capacity(head.count);
    for (seq, length) in (first..).zip(lengths.as_chunks::<4>().0) {
        let end = at.checked_add(u32::from_le_bytes(*length) as usize).filter(|end| *end <= packets.len())?;
        frames.push(Frame { seq, bytes: packets.slice(at..end) });
        at = end;
    }
    Some((head.total, frames))
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
        assert_eq!(read(9, &payload).unwrap(), (100, written));
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
        assert_eq!(read(106, &payload).unwrap(), (100, written));
        for cut in 0..payload.len() {
            assert!(read(106, &payload.slice(..cut)).is_none(), "cut at {cut}");
        }
        assert!(read(98, &payload).is_none(), "a hundred packets cannot end at seq 98");
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
