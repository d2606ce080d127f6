//! The footer of a sealed segment: a sorted list of its frames, and the summaries of those that
//! have one.
//!
//! ```text
//! entry    36  owner 16, kind 1, 0 3, seq 8, offset 4, length 4
//! summary      number of its entry 4, length 2, bytes
//! tail     40  magic 8, entries 4, bytes of summaries 4, offset 8, last group 8,
//!              sum of the above 4, sum 4
//! ```

use uuid::Uuid;

use super::format::{In, Kind, sum};

pub(crate) const ENTRY: usize = 36;
pub(crate) const TAIL: usize = 40;
const MAGIC: [u8; 8] = *b"CAPFOOT\x01";

/// The place of a frame: its head is at `offset`, and its payload follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    pub(crate) owner: Uuid,
    pub(crate) kind: Kind,
    pub(crate) seq: u64,
    pub(crate) offset: u32,
    /// The length of the payload.
    pub(crate) length: u32,
}

impl Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.owner.as_bytes());
        out.extend([self.kind as u8, 0, 0, 0]);
        out.extend(self.seq.to_le_bytes());
        out.extend(self.offset.to_le_bytes());
        out.extend(self.length.to_le_bytes());
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let mut from = In(bytes);
        let owner = Uuid::from_bytes(from.take()?);
        let [kind, ..] = from.take::<4>()?;
        Some(Self {
            owner,
            kind: Kind::read(kind)?,
            seq: u64::from_le_bytes(from.take()?),
            offset: u32::from_le_bytes(from.take()?),
            length: u32::from_le_bytes(from.take()?),
        })
    }
}

/// The contents of a segment, as its footer lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// All frames, sorted.
    pub(crate) entries: Vec<Entry>,
    /// Summaries by the number of their entry, in order.
    pub(crate) summaries: Vec<(u32, Vec<u8>)>,
    /// The number of its last group; 0 for a compacted segment.
    pub(crate) last_group: u64,
}

/// The end of a footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) count: u32,
    summaries: u32,
    pub(crate) offset: u64,
    pub(crate) last_group: u64,
    sum: u32,
}

impl Tail {
    /// Reads the tail of a file of this length.
    pub(crate) fn read(bytes: &[u8], file_length: u64) -> Option<Self> {
        let mut from = In::summed(bytes.get(..TAIL)?)?;
        let is_ours = from.take::<8>()? == MAGIC;
        let tail = Self {
            count: u32::from_le_bytes(from.take()?),
            summaries: u32::from_le_bytes(from.take()?),
            offset: u64::from_le_bytes(from.take()?),
            last_group: u64::from_le_bytes(from.take()?),
            sum: u32::from_le_bytes(from.take()?),
        };
        let end = tail.offset.checked_add(tail.length())?.checked_add(TAIL as u64)?;
        (is_ours && end == file_length).then_some(tail)
    }

    /// The length of entries and summaries together.
    pub(crate) fn length(&self) -> u64 {
        u64::from(self.count) * ENTRY as u64 + u64::from(self.summaries)
    }

    /// Reads the entries and summaries before the tail.
    pub(crate) fn contents(&self, body: &[u8]) -> Option<Contents> {
        if sum(body) != self.sum {
            return None;
        }
        let mut from = In(body);
        let entries = from.take_slice(self.count as usize * ENTRY)?;
        let entries = entries.as_chunks::<ENTRY>().0.iter().map(|entry| Entry::read(entry));
        let mut contents = Contents {
            entries: entries.collect::<Option<_>>()?,
            summaries: Vec::new(),
            last_group: self.last_group,
        };
        while !from.0.is_empty() {
            let number = u32::from_le_bytes(from.take()?);
            let length = u16::from_le_bytes(from.take()?);
            contents.summaries.push((number, from.take_slice(length.into())?.to_vec()));
        }
        Some(contents)
    }
}

impl Contents {
    /// Encodes the footer of a segment whose frames end at `offset`.
    pub(crate) fn encode(&self, offset: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.entries.len() * ENTRY + TAIL);
        self.entries.iter().for_each(|entry| entry.encode(&mut bytes));
        let before = bytes.len();
        for (number, summary) in &self.summaries {
            bytes.extend(number.to_le_bytes());
            bytes.extend((summary.len() as u16).to_le_bytes());
            bytes.extend(summary);
        }
        let summaries = (bytes.len() - before) as u32;
        let body = sum(&bytes);
        let start = bytes.len();
        bytes.extend(MAGIC);
        bytes.extend((self.entries.len() as u32).to_le_bytes());
        bytes.extend(summaries.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend(self.last_group.to_le_bytes());
        bytes.extend(body.to_le_bytes());
        let sum = sum(bytes.get(start..).unwrap_or_default());
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// All entries with their summaries, which may be empty.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&Entry, &[u8])> {
        let mut summaries = self.summaries.iter().peekable();
        self.entries.iter().zip(0u32..).map(move |(entry, number)| {
            let own = summaries.next_if(|(of, _)| *of == number);
            (entry, own.map_or(&[][..], |(_, summary)| summary))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn footer_round_trips_and_every_bit_flip_is_noticed() {
        let entry = |n: u8| Entry {
            owner: Uuid::from_bytes([n; 16]),
            kind: Kind::Record,
            seq: n.into(),
            offset: 64,
            length: 9,
        };
        let contents = Contents {
            entries: (0..5).map(entry).collect(),
            summaries: vec![(1, vec![1, 2]), (4, vec![])],
            last_group: 9,
        };
        let bytes = contents.encode(1000);
        let read = |bytes: &[u8]| {
            let tail = Tail::read(&bytes[bytes.len() - TAIL..], 1000 + bytes.len() as u64)?;
            tail.contents(&bytes[..bytes.len() - TAIL])
        };
        assert_eq!(read(&bytes), Some(contents.clone()));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&flipped), None, "bit {bit}");
        }
        let with: Vec<_> =
            contents.each().map(|(entry, summary)| (entry.seq, summary.len())).collect();
        assert_eq!(with, [(0, 0), (1, 2), (2, 0), (3, 0), (4, 0)]);
    }
}
