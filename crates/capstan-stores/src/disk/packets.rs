//! Encodes packets as blocks, the payload of frames of kind `Packets`. A block has at most 28 KiB
//! before compression. A larger packet is a block of its own.

use bytes::Bytes;
use capstan_journal::{Frame, Frames};
use uuid::Uuid;

use super::footer::Entry;
use super::format::In;
use super::wrapping::Wrapping;
use crate::packing;

const BLOCK_FRAMES: usize = 256;
pub(crate) const BLOCK_BYTES: usize = 28 * 1024;
/// The length of a block's head: the size of the stream up to the block's end, and the number of
/// its packets.
const FIXED: usize = 12;
/// A bit of the count: the packets are compressed, after their uncompressed size.
const PACKED: u32 = 1 << 31;
/// A bit of the count: the packets are bare, without the text that all packets of a stream share.
const BARE: u32 = 1 << 30;

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

/// Encodes a block: the size of the stream up to its end, the number of packets, their lengths and
/// their bytes. A short block is bare, and others are compressed.
pub(crate) fn encode(stream: Uuid, total: u64, frames: &[Frame], out: &mut Vec<u8>) {
    out.extend(total.to_le_bytes());
    let (at, count) = (out.len(), frames.len() as u32);
    if let Some(bare) = bare(stream, frames) {
        return put(count | BARE, &bare, out);
    }
    let packets: Vec<_> = frames.iter().map(|frame| &frame.bytes[..]).collect();
    put(count, &packets, out);
    let plain = out.get(at + 4..).unwrap_or_default();
    if let Some(packed) = packing::pack(plain) {
        let size = plain.len() as u32;
        out.truncate(at);
        out.extend((count | PACKED).to_le_bytes());
        out.extend(size.to_le_bytes());
        out.extend(packed);
    }
}

/// The packets without their common text, if there are few and all have it. Many packets are
/// shorter with compression.
fn bare(stream: Uuid, frames: &[Frame]) -> Option<Vec<&[u8]>> {
    let size: usize = frames.iter().map(|frame| 4 + frame.bytes.len()).sum();
    if size >= packing::LEAST {
        return None;
    }
    // The numbers that a reader of the block will give them.
    let first = frames.last()?.seq.checked_add(1)?.checked_sub(frames.len() as u64)?;
    let wrapping = Wrapping::of(stream);
    frames.iter().zip(first..).map(|(frame, seq)| wrapping.strip(seq, &frame.bytes)).collect()
}

fn put(count: u32, packets: &[&[u8]], out: &mut Vec<u8>) {
    out.extend(count.to_le_bytes());
    packets.iter().for_each(|packet| out.extend((packet.len() as u32).to_le_bytes()));
    packets.iter().for_each(|packet| out.extend_from_slice(packet));
}

/// Decodes a block: its packets, and the size of the stream up to its end. `None` if it is invalid.
pub(crate) fn read(entry: &Entry, payload: &Bytes) -> Option<(u64, Block)> {
    let head = Head::read(payload)?;
    let packets = payload.slice(payload.len() - head.rest.len()..);
    let packets = match head.packed {
        Some(size) => packing::unpack(&packets, size)?.into(),
        None => packets,
    };
    // The block has a length for each packet, which bounds the memory for their common text.
    let (lengths, rest) = packets.split_at_checked(head.count.checked_mul(4)?)?;
    let (mut ends, mut end) = (Vec::with_capacity(head.count), 0_u32);
    for length in lengths.as_chunks::<4>().0 {
        end = end
            .checked_add(u32::from_le_bytes(*length))
            .filter(|end| *end as usize <= rest.len())?;
        ends.push(end);
    }
    let first = entry.seq.checked_add(1)?.checked_sub(head.count as u64)?;
    let bytes = packets.slice(lengths.len()..lengths.len() + end as usize);
    let block = Block { first, ends, bytes, is_part: false };
    Some((head.total, if head.is_bare { block.wrapped(&Wrapping::of(entry.owner)) } else { block }))
}

/// Consecutive packets in one buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    first: u64,
    /// The end of each packet.
    ends: Vec<u32>,
    bytes: Bytes,
    /// It is a part of a buffer with more packets.
    is_part: bool,
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

    /// The `seq` of the last packet.
    pub(crate) fn last(&self) -> Option<u64> {
        (self.first + self.len() as u64).checked_sub(1).filter(|_| !self.is_empty())
    }

    /// The packets after a `seq`.
    pub(crate) fn after(mut self, seq: u64) -> Self {
        let gone = usize::try_from(seq.saturating_add(1).saturating_sub(self.first))
            .unwrap_or(usize::MAX)
            .min(self.len());
        if gone > 0 {
            let from = self.ends.drain(..gone).next_back().unwrap_or(0);
            self.ends.iter_mut().for_each(|end| *end -= from);
            self.bytes = self.bytes.slice(from as usize..);
            self.first += gone as u64;
            self.is_part = true;
        }
        self
    }

    /// The packets up to a `seq`.
    pub(crate) fn upto(self, seq: u64) -> Self {
        let kept = seq.saturating_add(1).saturating_sub(self.first);
        self.keep(usize::try_from(kept).unwrap_or(usize::MAX))
    }

    /// How many of the first packets fit.
    pub(crate) fn fitting(&self, packets: usize, bytes: usize) -> usize {
        self.ends.partition_point(|end| *end as usize <= bytes).min(packets)
    }

    /// The first packets, this many.
    pub(crate) fn keep(mut self, count: usize) -> Self {
        if count < self.len() {
            self.is_part = true;
            self.ends.truncate(count);
            self.bytes.truncate(self.ends.last().map_or(0, |end| *end as usize));
        }
        self
    }

    /// Adds the common text to each packet.
    fn wrapped(self, wrapping: &Wrapping) -> Self {
        let (mut ends, mut bytes) = (Vec::with_capacity(self.len()), Vec::new());
        for bare in self.frames() {
            wrapping.wrap(bare.seq, &bare.bytes, &mut bytes);
            ends.push(bytes.len() as u32);
        }
        Self { first: self.first, ends, bytes: bytes.into(), is_part: false }
    }

    /// The packets as single frames.
    pub(crate) fn frames(&self) -> impl Iterator<Item = Frame> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let places = starts.zip(&self.ends);
        (self.first..).zip(places).map(|(seq, (start, end))| Frame {
            seq,
            bytes: self.bytes.slice(start as usize..*end as usize),
        })
    }
}

/// Collects blocks for a reader. A single block is returned as it is, and several are copied into
/// one buffer. A part of a block is copied too, because a slow reader would otherwise keep all of
/// it in memory.
#[derive(Default)]
pub(crate) struct Joined {
    last: u64,
    ends: Vec<u32>,
    only: Bytes,
    whole: Vec<u8>,
}

impl Joined {
    /// Adds a block. If there are several, reserves this many bytes.
    pub(crate) fn push(&mut self, block: Block, room: usize) {
        let Some(last) = block.last() else { return };
        self.last = last;
        if self.ends.is_empty() {
            let copied = || Bytes::copy_from_slice(&block.bytes);
            self.only = if block.is_part { copied() } else { block.bytes };
            self.ends = block.ends;
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

    /// The packets and the `seq` of the last one, if there are any.
    pub(crate) fn done(self) -> Option<(Frames, u64)> {
        let bytes = if self.whole.is_empty() { self.only } else { self.whole.into() };
        let frames = Frames::joined(bytes, self.ends).filter(|frames| !frames.is_empty())?;
        Some((frames, self.last))
    }
}

/// The number of packets in a block.
pub(crate) fn count(payload: &[u8]) -> u64 {
    Head::read(payload).map_or(0, |head| head.count as u64)
}

/// The size of a block before compression; approximate if it is bare.
pub(crate) fn size(entry: &Entry, payload: &[u8]) -> usize {
    let Some(head) = Head::read(payload) else { return payload.len() };
    let packets = head.packed.unwrap_or(head.rest.len());
    let around = if head.is_bare { Wrapping::of(entry.owner).length(entry.seq) } else { 0 };
    FIXED.saturating_add(packets).saturating_add(head.count.saturating_mul(around))
}

struct Head<'a> {
    total: u64,
    count: usize,
    is_bare: bool,
    /// The size before compression.
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
        let is_bare = count & BARE != 0;
        Some(Self {
            total,
            count: (count & !(PACKED | BARE)) as usize,
            is_bare,
            packed,
            rest: from.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{Payload, StreamPacket, Timestamp, sse};

    use super::super::format::Kind;
    use super::*;

    const STREAM: Uuid = Uuid::from_u128(0x01a1_ed67_7987_7645_aeb4_4175_6635_32e0);

    fn frames(sizes: &[usize]) -> Vec<Frame> {
        sizes.iter().zip(7..).map(|(size, seq)| Frame::new(seq, vec![b'x'; *size])).collect()
    }

    /// Packets in the gateway's form.
    fn packets(seqs: std::ops::Range<u64>, text: &str) -> Vec<Frame> {
        let frame = |seq| {
            let (t, payload) =
                (Timestamp::from_micros(1_795_000_000_000_001), Payload::Delta(text.to_owned()));
            let mut bytes = Vec::new();
            sse::encode_packet(&StreamPacket { stream_id: STREAM, seq, t, payload }, &mut bytes);
            Frame::new(seq, bytes)
        };
        seqs.map(frame).collect()
    }

    fn block(total: u64, frames: &[Frame]) -> Bytes {
        let mut payload = Vec::new();
        encode(STREAM, total, frames, &mut payload);
        payload.into()
    }

    fn at(seq: u64) -> Entry {
        Entry { owner: STREAM, kind: Kind::Packets, seq, offset: 0, length: 0 }
    }

    /// Checks that a block decodes completely or not at all.
    fn assert_read(payload: &Bytes, total: u64, written: &[Frame]) {
        let last = written.last().unwrap().seq;
        let (so_far, block) = read(&at(last), payload).unwrap();
        assert_eq!((so_far, block.frames().collect::<Vec<_>>()), (total, written.to_vec()));
        for cut in 0..payload.len() {
            assert!(read(&at(last), &payload.slice(..cut)).is_none(), "cut at {cut}");
        }
        if let Some(too_soon) = (written.len() as u64).checked_sub(2) {
            assert!(
                read(&at(too_soon), payload).is_none(),
                "so many packets cannot end at seq {too_soon}"
            );
        }
        assert!(read(&at(u64::MAX), payload).is_none(), "no packet has the last of all numbers");
    }

    #[test]
    fn block_returns_its_packets_and_their_length() {
        let written = frames(&[3, 0, 5]);
        let payload = block(100, &written);
        assert!(count(&payload) == 3 && size(&at(9), &payload) == payload.len());
        assert_read(&payload, 100, &written);
    }

    #[test]
    fn similar_packets_are_compressed() {
        let written = frames(&[150; 100]);
        let payload = block(100, &written);
        assert!(payload.len() < 1000 && count(&payload) == 100);
        assert_eq!(size(&at(106), &payload), FIXED + 100 * 154);
        assert_read(&payload, 100, &written);
    }

    #[test]
    fn few_packets_are_stored_without_common_text() {
        for (seqs, most) in [(7..9, 150), (1234..1236, 150)] {
            let written = packets(seqs.clone(), "word ");
            let plain: usize = written.iter().map(|frame| 4 + frame.bytes.len()).sum();
            let payload = block(100, &written);
            assert!(payload.len() < most && count(&payload) == 2, "{} of {plain}", payload.len());
            assert_eq!(size(&at(seqs.end - 1), &payload), FIXED + plain);
            assert_read(&payload, 100, &written);
        }
    }

    /// The format of a block is fixed: journals on disk are read by these rules forever.
    #[test]
    fn bare_packet_block_has_known_bytes() {
        let bare = br#"DELTA","t":"2026-11-18T11:06:40.000001Z","p":"word ""#;
        let head =
            [&300_u64.to_le_bytes()[..], &[1, 0, 0, 0x40], &[bare.len() as u8, 0, 0, 0]].concat();
        assert_eq!(block(300, &packets(7..8, "word ")), [&head[..], bare].concat());
    }

    #[test]
    fn packets_of_another_form_are_stored_unchanged() {
        let [ours] = &packets(7..8, "word ")[..] else { panic!("one") };
        let text = std::str::from_utf8(&ours.bytes).unwrap();
        for other in [
            text.replace("seq\":7", "seq\":8"),
            text.replace("\"op\"", " \"op\""),
            text.replace("01a1", "01a2"),
            text.to_uppercase(),
            text.trim_end().to_owned(),
            format!("{text} "),
            String::new(),
        ] {
            let other = [Frame::new(7, other)];
            let payload = block(100, &other);
            assert_eq!(payload.len(), FIXED + 4 + other[0].bytes.len());
            assert_read(&payload, 100, &other);
            let mixed = [packets(6..7, "word ").remove(0), other[0].clone()];
            assert_read(&block(100, &mixed), 100, &mixed);
        }
    }

    #[test]
    fn packet_header_form_never_changes() {
        let gap = [packets(7..8, "word ").remove(0), packets(70..71, "word ").remove(0)];
        let (_, found) = read(&at(70), &block(100, &gap)).unwrap();
        assert!(found.frames().zip(&gap).all(|(found, written)| found.bytes == written.bytes));
    }

    /// Every number in a damaged block may be wrong.
    #[test]
    fn block_with_wrong_lengths_is_refused() {
        let payload = block(100, &packets(7..9, "word "));
        for lie in [3_u32, 1 << 20, (1 << 30) - 1] {
            for bits in [BARE, PACKED, BARE | PACKED, 0] {
                let mut bytes = payload.to_vec();
                bytes[8..12].copy_from_slice(&(lie | bits).to_le_bytes());
                assert_eq!(read(&at(u64::MAX - 1), &bytes.into()), None, "{lie} {bits}");
            }
        }
    }

    #[test]
    fn block_is_cut_at_a_cursor() {
        let written = frames(&[3, 0, 5, 2]);
        let (_, block) = read(&at(10), &block(100, &written)).unwrap();
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
    fn joined_blocks_return_all_packets() {
        let written = frames(&[3, 0, 5, 2, 8]);
        let mut joined = Joined::default();
        assert!(Joined::default().done().is_none());
        for some in [&written[..2], &written[2..2], &written[2..4], &written[4..]] {
            let last = some.last().map_or(99, |frame| frame.seq);
            joined.push(read(&at(last), &block(0, some)).unwrap().1, 1);
        }
        let (frames, last) = joined.done().unwrap();
        assert_eq!(last, 11);
        assert_eq!(frames, written.into_iter().collect());
    }

    #[test]
    fn part_of_a_block_does_not_keep_the_rest_in_memory() {
        let (_, whole) = read(&at(10), &block(100, &frames(&[3, 0, 5, 2]))).unwrap();
        let held = whole.bytes.as_ptr_range();
        for (part, is_held) in
            [(whole.clone(), true), (whole.clone().after(7), false), (whole.keep(2), false)]
        {
            let mut joined = Joined::default();
            joined.push(part, 99);
            let bytes = joined.done().unwrap().0.into_bytes();
            assert_eq!(held.contains(&bytes.as_ptr()), is_held);
        }
    }

    #[test]
    fn blocks_are_bounded_and_complete() {
        for sizes in [
            vec![],
            vec![BLOCK_BYTES * 3],
            vec![1; 1000],
            vec![BLOCK_BYTES / 2; 5],
            vec![1, BLOCK_BYTES, 1],
        ] {
            let written = frames(&sizes);
            let split: Vec<_> = blocks(&written).collect();
            assert_eq!(split.concat(), written);
            for some in split {
                let payload = block(0, some);
                assert!(!some.is_empty() && some.len() <= BLOCK_FRAMES);
                assert!(size(&at(some[0].seq), &payload) <= BLOCK_BYTES || some.len() == 1);
            }
        }
    }
}
