//! The layout of a segment file. All integers are little-endian, and each sum is the low half of
//! xxh3.
//!
//! ```text
//! header   64  magic 8, format 2, kind 1, 0, boot 16, salt 16, id 8, first group 8, sum 4
//! group    40  magic 4, count of frames 4, number 8, synced 8, length 8, 0 4, sum 4
//! frame    40  length 4, kind 1, version 1, flags 1, 0, owner 16, seq 8, sum of payload 4,
//!              sum of head 4
//! payload
//! ```
//!
//! A group is one commit, written completely or not at all. Groups have consecutive numbers across
//! segments. Each frame is a fact of its own: the journal is the set of all frames, in any order.

/// Compacted segments have ids from here on. The ids of written segments are consecutive, so a
/// segment that is newer than the manifest differs from one that was removed. A compacted segment
/// counts only if the manifest lists it.
pub(crate) const COMPACTED: u32 = 1 << 31;

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const HEADER: usize = 64;
pub(crate) const GROUP_HEAD: usize = 40;
pub(crate) const FRAME_HEAD: usize = 40;
pub(crate) const GROUP_MAGIC: [u8; 4] = *b"GRP\x01";

const HEADER_MAGIC: [u8; 8] = *b"CAPSTAN\x01";
/// The version of segments and payloads. A higher one needs a higher version of the folder too.
const FORMAT: u16 = 1;
const VERSION: u8 = 1;

/// The kind of a frame. The order is that of a footer's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The body of a stream's request.
    Body = 1,
    /// Packets of a stream. The number is the `seq` of the last one.
    Packets = 2,
    /// A run's record. The number is its revision, and the highest counts.
    Record = 3,
    /// A turn of a session, with its number.
    Turn = 4,
    /// A session.
    Session = 5,
    /// The owner and all of its frames are deleted.
    Gone = 6,
    /// One turn of the session is deleted.
    TurnGone = 7,
    /// The owner's data is overwritten.
    Erased = 8,
    /// A tenant's used tokens. The owner is the tenant's name, the number is the revision, and the
    /// highest counts.
    Tokens = 9,
}

impl Kind {
    pub(crate) fn read(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Body,
            2 => Self::Packets,
            3 => Self::Record,
            4 => Self::Turn,
            5 => Self::Session,
            6 => Self::Gone,
            7 => Self::TurnGone,
            8 => Self::Erased,
            9 => Self::Tokens,
            _ => return None,
        })
    }
}

/// Whether the writer wrote the segment, or compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Written,
    Compacted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: u32,
    pub(crate) origin: Origin,
    /// The number of its first group; for a written segment.
    pub(crate) first_group: u64,
    /// The id of the boot in which it was begun; zeros if it is unknown.
    pub(crate) boot: [u8; 16],
    /// The salt of hashed names, the same in every segment of a folder.
    pub(crate) salt: [u8; 16],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupHead {
    pub(crate) count: u32,
    pub(crate) number: u64,
    /// The last group that was synced when this one was written, so it was acknowledged.
    pub(crate) synced: u64,
    /// The length of all frames together.
    pub(crate) length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHead {
    pub(crate) length: u32,
    pub(crate) kind: Kind,
    pub(crate) owner: Uuid,
    pub(crate) seq: u64,
    pub(crate) sum: u32,
}

pub(crate) fn sum(bytes: &[u8]) -> u32 {
    xxh3_64(bytes) as u32
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let origin = match self.origin {
            Origin::Written => 0,
            Origin::Compacted => 1,
        };
        let mut out = Out::<HEADER>::new();
        out.put(&HEADER_MAGIC)
            .put(&FORMAT.to_le_bytes())
            .put(&[origin, 0])
            .put(&self.boot)
            .put(&self.salt);
        out.put(&u64::from(self.id).to_le_bytes()).put(&self.first_group.to_le_bytes());
        out.summed()
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = In::summed(bytes.get(..HEADER)?)?;
        let is_ours =
            from.take::<8>()? == HEADER_MAGIC && u16::from_le_bytes(from.take()?) == FORMAT;
        let [origin, _] = from.take::<2>().filter(|_| is_ours)?;
        Some(Self {
            boot: from.take()?,
            salt: from.take()?,
            id: u32::try_from(u64::from_le_bytes(from.take()?)).ok()?,
            first_group: u64::from_le_bytes(from.take()?),
            origin: if origin == 0 { Origin::Written } else { Origin::Compacted },
        })
    }
}

impl GroupHead {
    pub(crate) fn encode(&self) -> [u8; GROUP_HEAD] {
        let mut out = Out::<GROUP_HEAD>::new();
        out.put(&GROUP_MAGIC).put(&self.count.to_le_bytes()).put(&self.number.to_le_bytes());
        out.put(&self.synced.to_le_bytes()).put(&self.length.to_le_bytes());
        out.summed()
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..GROUP_HEAD)?;
        let mut from = In::summed(head).filter(|_| head.starts_with(&GROUP_MAGIC))?;
        from.take::<4>()?;
        Some(Self {
            count: u32::from_le_bytes(from.take()?),
            number: u64::from_le_bytes(from.take()?),
            synced: u64::from_le_bytes(from.take()?),
            length: u64::from_le_bytes(from.take()?),
        })
    }
}

impl FrameHead {
    pub(crate) fn encode(&self) -> [u8; FRAME_HEAD] {
        let mut out = Out::<FRAME_HEAD>::new();
        out.put(&self.length.to_le_bytes()).put(&[self.kind as u8, VERSION, 0, 0]);
        out.put(self.owner.as_bytes()).put(&self.seq.to_le_bytes()).put(&self.sum.to_le_bytes());
        out.summed()
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = In::summed(bytes.get(..FRAME_HEAD)?)?;
        let length = u32::from_le_bytes(from.take()?);
        let [kind, version, flags, _] = from.take::<4>()?;
        // A later version or a flag changes the meaning of the payload, so it must not be read.
        let kind = Kind::read(kind).filter(|_| version == VERSION && flags == 0)?;
        Some(Self {
            length,
            kind,
            owner: Uuid::from_bytes(from.take()?),
            seq: u64::from_le_bytes(from.take()?),
            sum: u32::from_le_bytes(from.take()?),
        })
    }
}

/// Bytes of a fixed length. The last four are their sum.
struct Out<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Out<N> {
    fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    fn put(&mut self, part: &[u8]) -> &mut Self {
        if let Some(place) = self.bytes.get_mut(self.at..self.at + part.len()) {
            place.copy_from_slice(part);
        }
        self.at += part.len();
        self
    }

    fn summed(&mut self) -> [u8; N] {
        let (head, tail) = self.bytes.split_at_mut(N - 4);
        tail.copy_from_slice(&sum(head).to_le_bytes());
        self.bytes
    }
}

/// Reads fields from bytes.
pub(crate) struct In<'a>(pub(crate) &'a [u8]);

impl<'a> In<'a> {
    /// The bytes without their sum, if the sum is right.
    pub(crate) fn summed(bytes: &'a [u8]) -> Option<Self> {
        let (head, tail) = bytes.split_last_chunk::<4>()?;
        (sum(head) == u32::from_le_bytes(*tail)).then_some(Self(head))
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*part)
    }

    pub(crate) fn take_slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that every flipped bit of a head is noticed.
    fn assert_summed<const N: usize>(bytes: [u8; N], is_read: impl Fn(&[u8]) -> bool) {
        assert!(is_read(&bytes));
        for bit in 0..N * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_read(&flipped), "bit {bit}");
        }
        assert!(!is_read(&bytes[..N - 1]));
    }

    #[test]
    fn heads_round_trip_and_every_bit_flip_is_noticed() {
        let header = Header {
            id: 17,
            origin: Origin::Compacted,
            first_group: 9,
            boot: [3; 16],
            salt: [4; 16],
        };
        assert_eq!(Header::read(&header.encode()), Some(header));
        assert_summed(header.encode(), |bytes| Header::read(bytes).is_some());
        let group = GroupHead { count: 3, number: 77, synced: 70, length: 1 << 33 };
        assert_eq!(GroupHead::read(&group.encode()), Some(group));
        assert_summed(group.encode(), |bytes| GroupHead::read(bytes).is_some());
        let frame = FrameHead { length: 5, kind: Kind::Turn, owner: Uuid::max(), seq: 8, sum: 1 };
        assert_eq!(FrameHead::read(&frame.encode()), Some(frame));
        assert_summed(frame.encode(), |bytes| FrameHead::read(bytes).is_some());
    }
}
