//! Packets of one append as pieces that fit a page of the database.

use bytes::{BufMut as _, Bytes, BytesMut};
use capstan_journal::{ErrorKind, Frame, JournalError};

/// What a block may hold so that it stays in its page. A longer packet is a block of its own.
const BLOCK_BYTES: usize = 7 * 1024;
const VERSION: u8 = 1;

/// Neighbours in a stream: their seqs follow each other, up to `last_seq`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) last_seq: u64,
    /// The bytes of all packets of the stream up to here.
    pub(super) total: u64,
    pub(super) data: Bytes,
}

/// Cuts frames into blocks. `total` is what the stream held before them.
pub(super) fn encode(frames: &[Frame], mut total: u64) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut rest = frames;
    while let Some(first) = rest.first() {
        let (mut count, mut size) = (0, 0);
        for (frame, seq) in rest.iter().zip(first.seq..) {
            if count > 0 && (size + frame.bytes.len() > BLOCK_BYTES || frame.seq != seq) {
                break;
            }
            count += 1;
            size += frame.bytes.len();
        }
        let (some, others) = rest.split_at(count);
        rest = others;
        total += size as u64;
        let last_seq = some.last().map_or(first.seq, |frame| frame.seq);
        blocks.push(Block { last_seq, total, data: pack(some, size) });
    }
    blocks
}

/// Version, count, lengths, bytes.
fn pack(frames: &[Frame], size: usize) -> Bytes {
    let mut data = BytesMut::with_capacity(size + 8 + 3 * frames.len());
    data.put_u8(VERSION);
    put_number(&mut data, frames.len());
    frames.iter().for_each(|frame| put_number(&mut data, frame.bytes.len()));
    frames.iter().for_each(|frame| data.put_slice(&frame.bytes));
    data.freeze()
}

/// The frames of a block.
pub(super) fn decode(last_seq: u64, data: Bytes) -> Result<Vec<Frame>, JournalError> {
    unpack(last_seq, data).ok_or_else(|| {
        JournalError::new(ErrorKind::Corrupt, format!("a block of packets up to {last_seq} cannot be read"))
    })
}

fn unpack(last_seq: u64, data: Bytes) -> Option<Vec<Frame>> {
    let mut at = 1;
    if *data.first()? != VERSION {
        return None;
    }
    let count = take_number(&data, &mut at)?;
    // Each has a length of a byte at least.
    if count > data.len() {
        return None;
    }
    let lengths: Option<Vec<usize>> = (0..count).map(|_| take_number(&data, &mut at)).collect();
    let mut seq = last_seq.checked_sub(count as u64)?;
    let frames: Option<Vec<Frame>> = lengths?
        .into_iter()
        .map(|length| {
            let end = at.checked_add(length).filter(|end| *end <= data.len())?;
            seq += 1;
            let frame = Frame::new(seq, data.slice(at..end));
            at = end;
            Some(frame)
        })
        .collect();
    frames.filter(|_| at == data.len())
}

fn put_number(data: &mut BytesMut, mut number: usize) {
    while number >= 0x80 {
        data.put_u8((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    data.put_u8(number as u8);
}

fn take_number(data: &[u8], at: &mut usize) -> Option<usize> {
    let mut number = 0_usize;
    for shift in (0..35).step_by(7) {
        let byte = *data.get(*at)?;
        *at += 1;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(lengths: &[usize]) -> Vec<Frame> {
        let frame = |(seq, length): (u64, &usize)| Frame::new(seq, vec![b'x'; *length]);
        (5..).zip(lengths).map(frame).collect()
    }

    #[test]
    fn frames_survive_the_round_trip_whatever_their_lengths() {
        for lengths in
            [&[][..], &[0], &[1, 0, 127, 128, 300], &[7168, 1], &[20_000, 3, 7000, 7000], &[40; 1000]]
        {
            let all = frames(lengths);
            let blocks = encode(&all, 100);
            let read: Vec<_> =
                blocks.iter().flat_map(|block| decode(block.last_seq, block.data.clone()).unwrap()).collect();
            assert_eq!(read, all);
            let size: usize = lengths.iter().sum();
            assert_eq!(blocks.last().map_or(100, |block| block.total), 100 + size as u64);
            assert!(blocks.iter().all(|block| block.data.len() <= 8100 || block.data.len() > 20_000));
        }
    }

    #[test]
    fn a_gap_begins_a_block() {
        let mut all = frames(&[1, 1]);
        all[1].seq = 1 << 20;
        let blocks = encode(&all, 0);
        assert_eq!(blocks.iter().map(|block| block.last_seq).collect::<Vec<_>>(), [5, 1 << 20]);
    }

    #[test]
    fn what_is_no_block_is_said_to_be_damaged() {
        let whole = encode(&frames(&[3, 4]), 0).remove(0).data;
        for length in 0..whole.len() {
            assert!(decode(6, whole.slice(..length)).is_err(), "{length} bytes of it");
        }
        let longer = Bytes::from([&whole[..], b"x"].concat());
        for wrong in
            [longer, Bytes::from_static(&[2, 0]), Bytes::from_static(&[1, 255, 255, 255, 255, 255, 255])]
        {
            assert_eq!(decode(6, wrong).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert!(decode(1, whole).is_err(), "two packets do not fit before the second");
    }
}
