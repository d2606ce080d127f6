//! Packets in blocks: what one frame of kind `Packets` holds. At most 7 KiB, so that a block also fits into a page of a
//! database; a larger packet is a block of its own.

use bytes::Bytes;
use capstan_journal::Frame;

use super::format::In;

const BLOCK_FRAMES: usize = 64;
pub(crate) const BLOCK_BYTES: usize = 7 * 1024;
/// Before the lengths: how many bytes the stream has up to the block's end, and how many packets are in it.
const FIXED: usize = 12;

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
    out.extend((frames.len() as u32).to_le_bytes());
    frames.iter().for_each(|frame| out.extend((frame.bytes.len() as u32).to_le_bytes()));
    frames.iter().for_each(|frame| out.extend_from_slice(&frame.bytes));
}

/// A block's packets and the length of all packets up to its end. `None` if it is none.
pub(crate) fn read(last: u64, payload: &Bytes) -> Option<(u64, Vec<Frame>)> {
    let mut from = In(payload);
    let total = u64::from_le_bytes(from.take()?);
    let count = u32::from_le_bytes(from.take()?) as usize;
    let lengths = from.take_slice(count.checked_mul(4)?)?;
    let mut at = payload.len() - from.0.len();
    let first = (last + 1).checked_sub(count as u64)?;
    let mut frames = Vec::with_capacity(count);
    for (seq, length) in (first..).zip(lengths.as_chunks::<4>().0) {
        let end = at.checked_add(u32::from_le_bytes(*length) as usize).filter(|end| *end <= payload.len())?;
        frames.push(Frame { seq, bytes: payload.slice(at..end) });
        at = end;
    }
    Some((total, frames))
}

/// How many packets a block holds.
pub(crate) fn count(payload: &[u8]) -> u64 {
    payload
        .get(8..FIXED)
        .and_then(|bytes| bytes.first_chunk::<4>())
        .map_or(0, |n| u32::from_le_bytes(*n).into())
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
    fn blocks_are_bounded_and_together_are_what_was_appended() {
        for sizes in
            [vec![], vec![BLOCK_BYTES * 3], vec![1; 200], vec![BLOCK_BYTES / 2; 5], vec![1, BLOCK_BYTES, 1]]
        {
            let written = frames(&sizes);
            let split: Vec<_> = blocks(&written).collect();
            assert_eq!(split.concat(), written);
            for block in split {
                let mut payload = Vec::new();
                encode(0, block, &mut payload);
                assert!(!block.is_empty() && block.len() <= BLOCK_FRAMES);
                assert!(payload.len() <= BLOCK_BYTES || block.len() == 1);
            }
        }
    }
}
