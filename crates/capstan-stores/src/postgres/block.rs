//! Encodes the packets of an append as blocks that fit a page of the database.
//!
//! A block has a version, the number of packets, their lengths and their bytes. Compressed blocks
//! also save most of the server's time.

use bytes::{BufMut as _, Bytes, BytesMut};
use capstan_journal::{ErrorKind, Frame, JournalError};

use crate::packing;

/// The most bytes of a block, so that it stays in its page. A longer packet is a block of its own.
const BLOCK_BYTES: usize = 7 * 1024;
/// The most bytes of a block before compression.
const UNCOMPRESSED_BYTES: usize = 4 * BLOCK_BYTES;
/// The version byte of an uncompressed block.
const PLAIN: u8 = 1;
/// The version byte of a compressed block: the uncompressed size follows, then LZ4.
const PACKED: u8 = 2;

/// Consecutive packets of a stream, up to `last_seq`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) last_seq: u64,
    /// The size of all packets of the stream up to here.
    pub(super) total: u64,
    pub(super) data: Bytes,
}

/// Encodes frames as blocks. `total` is the size of the stream before them.
pub(super) fn encode(frames: &[Frame], mut total: u64) -> Vec<Block> {
    let block = |(some, data): (&[Frame], Bytes)| {
        total += size(some) as u64;
        Block { last_seq: some.last().map_or(0, |frame| frame.seq), total, data }
    };
    cut(frames, UNCOMPRESSED_BYTES).flat_map(packed).map(block).collect()
}

/// Splits frames into consecutive groups of at most this size. A longer frame is a group of its
/// own.
fn cut(mut rest: &[Frame], most: usize) -> impl Iterator<Item = &[Frame]> {
    std::iter::from_fn(move || {
        let first = rest.first()?.seq;
        let mut size = 0;
        let is_within = |(frame, seq): &(&Frame, u64)| {
            size += frame.bytes.len();
            frame.seq == *seq && (*seq == first || size <= most)
        };
        let count = rest.iter().zip(first..).take_while(is_within).count();
        let (some, others) = rest.split_at(count);
        rest = others;
        Some(some)
    })
}

fn size(frames: &[Frame]) -> usize {
    frames.iter().map(|frame| frame.bytes.len()).sum()
}

/// Encodes frames as one block if it fits a page, and as several otherwise.
fn packed(frames: &[Frame]) -> Vec<(&[Frame], Bytes)> {
    let data = pack_or_not(frames);
    if data.len() <= BLOCK_BYTES || frames.len() == 1 {
        return vec![(frames, data)];
    }
    cut(frames, BLOCK_BYTES).map(|some| (some, pack_or_not(some))).collect()
}

fn pack_or_not(frames: &[Frame]) -> Bytes {
    let data = plain(frames);
    pack(&data).unwrap_or(data)
}

/// Encodes frames without compression.
fn plain(frames: &[Frame]) -> Bytes {
    let mut data = BytesMut::with_capacity(size(frames) + 8 + 3 * frames.len());
    data.put_u8(PLAIN);
    put_number(&mut data, frames.len());
    frames.iter().for_each(|frame| put_number(&mut data, frame.bytes.len()));
    frames.iter().for_each(|frame| data.put_slice(&frame.bytes));
    data.freeze()
}

/// Compresses a block, if that makes it shorter.
fn pack(plain: &[u8]) -> Option<Bytes> {
    let packed = packing::pack(plain)?;
    let mut data = BytesMut::with_capacity(packed.len() + 8);
    data.put_u8(PACKED);
    put_number(&mut data, plain.len());
    data.put_slice(&packed);
    Some(data.freeze())
}

fn unpack(data: &[u8]) -> Option<Bytes> {
    let mut at = 1;
    let size = take_number(data, &mut at)?;
    packing::unpack(data.get(at..)?, size).map(Bytes::from)
}

/// Decodes the frames of a block.
pub(super) fn decode(last_seq: u64, data: Bytes) -> Result<Vec<Frame>, JournalError> {
    let plain = if data.first() == Some(&PACKED) { unpack(&data) } else { Some(data) };
    plain.and_then(|plain| split(last_seq, plain)).ok_or_else(|| {
        JournalError::new(
            ErrorKind::Corrupt,
            format!("the block of packets up to {last_seq} is damaged"),
        )
    })
}

fn split(last_seq: u64, data: Bytes) -> Option<Vec<Frame>> {
    let mut at = 1;
    if *data.first()? != PLAIN {
        return None;
    }
    let count = take_number(&data, &mut at)?;
    // Each packet's length takes at least one byte.
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

    /// Packets of realistic form and different lengths.
    fn packets(count: u64) -> Vec<Frame> {
        let text = |seq: u64| {
            format!(
                "id: 01a1ebfd-bd72-74cb-8017-2c062bbf031b:{seq}\ndata: \
                 {{\"op\":\"DELTA\",\"p\":\"tok{}\"}}\n\n",
                seq * seq
            )
        };
        (5..5 + count).map(|seq| Frame::new(seq, text(seq))).collect()
    }

    /// Bytes that cannot be compressed.
    fn noise(length: usize) -> Vec<u8> {
        let next =
            |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        std::iter::successors(Some(7_u64), next)
            .map(|state| (state >> 56) as u8)
            .take(length)
            .collect()
    }

    fn read(blocks: &[Block]) -> Vec<Frame> {
        blocks
            .iter()
            .flat_map(|block| decode(block.last_seq, block.data.clone()).unwrap())
            .collect()
    }

    #[test]
    fn frames_of_any_length_survive_the_round_trip() {
        for lengths in [
            &[][..],
            &[0],
            &[1, 0, 127, 128, 300],
            &[7168, 1],
            &[20_000, 3, 7000, 7000],
            &[40; 1000],
        ] {
            let all = frames(lengths);
            let total: usize = 100 + lengths.iter().sum::<usize>();
            let blocks = encode(&all, 100);
            assert_eq!(read(&blocks), all);
            assert_eq!(blocks.last().map_or(100, |block| block.total), total as u64);
            assert!(
                blocks.iter().all(|block| block.data.len() <= 8100 || block.data.len() > 20_000)
            );
        }
    }

    #[test]
    fn blocks_are_compressed() {
        let all = packets(1000);
        let blocks = encode(&all, 0);
        let stored: usize = blocks.iter().map(|block| block.data.len()).sum();
        assert!(stored * 5 < size(&all), "{stored} of {}", size(&all));
        assert!(blocks.len() * 3 < size(&all) / BLOCK_BYTES);
        assert!(blocks.iter().all(|block| block.data.len() <= BLOCK_BYTES));
        assert_eq!(read(&blocks), all);
        assert_eq!(blocks.last().map(|block| block.total), Some(size(&all) as u64));
    }

    #[test]
    fn incompressible_packets_stay_plain_and_in_their_page() {
        let all: Vec<_> = (5..45)
            .zip(noise(40_000).chunks(1000))
            .map(|(seq, some)| Frame::new(seq, some.to_vec()))
            .collect();
        for all in [all, packets(1)] {
            let blocks = encode(&all, 0);
            assert!(
                blocks.iter().all(|block| {
                    block.data[0] == PLAIN && block.data.len() <= BLOCK_BYTES + 64
                })
            );
            assert_eq!(read(&blocks), all);
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
    fn damaged_blocks_are_errors() {
        let whole = encode(&frames(&[3, 4]), 0).remove(0).data;
        let packed = encode(&packets(20), 0).remove(0);
        assert_eq!(packed.data[0], PACKED);
        for length in 0..packed.data.len() {
            assert!(
                decode(packed.last_seq, packed.data.slice(..length)).is_err(),
                "{length} bytes of it"
            );
        }
        for length in 0..whole.len() {
            assert!(decode(6, whole.slice(..length)).is_err(), "{length} bytes of it");
        }
        let longer = Bytes::from([&whole[..], b"x"].concat());
        // An unknown version, more packets than bytes, and an impossible uncompressed size.
        for wrong in [
            longer,
            Bytes::from_static(&[3, 0]),
            Bytes::from_static(&[1, 255, 255, 255, 255, 255, 255]),
            Bytes::from_static(&[2, 255, 255, 255, 255, 7, 0]),
        ] {
            assert_eq!(decode(6, wrong).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert!(decode(1, whole).is_err(), "a block of two packets cannot end at seq 1");
    }
}
