//! How values are laid out. Each begins with its format version.

use bytes::Bytes;
use capstan_protocol::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::keys;
use crate::{ErrorKind, Frame, JournalError, Run};

const VERSION: u8 = 2;

/// A run as it is stored. `last_seq` and `bytes` are right unless it runs: then its last frame knows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) run: Run,
    pub(crate) body_bytes: u64,
    /// During which uptime of which machine it was written; `None` if frames are synced or nobody can tell.
    #[serde(default)]
    pub(crate) boot: Option<String>,
}

impl Record {
    /// What the stream takes.
    pub(crate) fn size(&self) -> u64 {
        self.run.bytes.saturating_add(self.body_bytes)
    }
}

/// A claim as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) stream: Uuid,
    /// When retention deleted the stream.
    pub(crate) gone_at: Option<Timestamp>,
}

/// A block at most, by number and by bytes (a larger frame is a block of its own): what a resume reads in vain is less.
const BLOCK_FRAMES: usize = 64;
const BLOCK_BYTES: usize = 8 * 1024;

/// Splits frames that were appended together into blocks. The engine's cost is by the entry, so that a busy stream is
/// cheap; a lone token is a block of one.
pub(crate) fn blocks(frames: &[Frame]) -> impl Iterator<Item = &[Frame]> {
    let mut rest = frames;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(BLOCK_FRAMES).take_while(|frame| {
            bytes += frame.bytes.len();
            bytes <= BLOCK_BYTES
        });
        let (block, after) = rest.split_at_checked(fits.count().max(1))?;
        rest = after;
        Some(block)
    })
}

/// A block: version, length of all frames up to its end, how many are in it, the length of each, their bytes. It is
/// stored under its last seq. The running length makes a stream's size one seek.
pub(crate) fn block(total: u64, frames: &[Frame]) -> Vec<u8> {
    let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
    let mut value = Vec::with_capacity(13 + 4 * frames.len() + bytes);
    value.push(VERSION);
    value.extend(total.to_be_bytes());
    value.extend((frames.len() as u32).to_be_bytes());
    frames.iter().for_each(|frame| value.extend((frame.bytes.len() as u32).to_be_bytes()));
    frames.iter().for_each(|frame| value.extend(&frame.bytes));
    value
}

/// A block, and the length of all frames up to its end.
pub(crate) fn read_block(last: u64, value: &[u8]) -> Result<(u64, Vec<Frame>), JournalError> {
    let short = || corrupt("a block is too short");
    let (total, rest) = versioned(value)?.split_first_chunk::<8>().ok_or_else(short)?;
    let (count, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let count = u32::from_be_bytes(*count) as usize;
    let (lengths, bytes) = rest.split_at_checked(count.saturating_mul(4)).ok_or_else(short)?;
    // A copy, because the engine's slice would keep more alive for as long as a slow reader holds it.
    let mut bytes = Bytes::copy_from_slice(bytes);
    let first =
        (last + 1).checked_sub(count as u64).ok_or_else(|| corrupt("a block with too many frames"))?;
    let mut frames = Vec::with_capacity(count);
    for (seq, length) in (first..).zip(lengths.as_chunks::<4>().0) {
        let length = u32::from_be_bytes(*length) as usize;
        if length > bytes.len() {
            return Err(short());
        }
        frames.push(Frame { seq, bytes: bytes.split_to(length) });
    }
    Ok((u64::from_be_bytes(*total), frames))
}

pub(crate) fn held(held: Held) -> Vec<u8> {
    let mut value = vec![VERSION];
    value.extend(held.stream.as_bytes());
    value.extend(held.gone_at.map(keys::time).iter().flatten());
    value
}

pub(crate) fn read_held(value: &[u8]) -> Result<Held, JournalError> {
    let parts = versioned(value)?.split_first_chunk::<16>();
    let (stream, gone_at) = parts.ok_or_else(|| corrupt("a claim is too short"))?;
    Ok(Held { stream: Uuid::from_bytes(*stream), gone_at: keys::read_time(gone_at) })
}

/// Records and turns are JSON, so that members can be added.
pub(crate) fn json(value: &impl Serialize) -> Result<Vec<u8>, JournalError> {
    let mut bytes = vec![VERSION];
    serde_json::to_writer(&mut bytes, value)
        .map_err(|error| JournalError::new(ErrorKind::Unsupported, "cannot be stored").caused_by(error))?;
    Ok(bytes)
}

pub(crate) fn read_json<T: DeserializeOwned>(value: &[u8]) -> Result<T, JournalError> {
    serde_json::from_slice(versioned(value)?)
        .map_err(|error| corrupt("a record cannot be read").caused_by(error))
}

/// A closed stream's entry: its size and its tenant, so that retention need not look at records.
pub(crate) fn closed(size: u64, tenant: &str) -> Vec<u8> {
    [&size.to_be_bytes(), tenant.as_bytes()].concat()
}

/// The tenant of a closed stream's entry.
pub(crate) fn read_tenant(value: &[u8]) -> &str {
    value.get(8..).and_then(|tenant| std::str::from_utf8(tenant).ok()).unwrap_or_default()
}

pub(crate) fn read_number(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

pub(crate) fn corrupt(what: &str) -> JournalError {
    JournalError::new(ErrorKind::Corrupt, format!("the journal is damaged: {what}"))
}

fn versioned(value: &[u8]) -> Result<&[u8], JournalError> {
    match value.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((version, _)) => Err(corrupt(&format!("unknown format version {version}"))),
        None => Err(corrupt("an empty value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(sizes: &[usize]) -> Vec<Frame> {
        sizes.iter().zip(7..).map(|(size, seq)| Frame::new(seq, vec![b'x'; *size])).collect()
    }

    #[test]
    fn a_block_gives_back_its_frames_and_the_length_so_far() {
        let written = frames(&[3, 0, 5]);
        let value = block(100, &written);
        assert_eq!(read_block(9, &value).unwrap(), (100, written));
        for cut in 0..value.len() {
            assert!(read_block(9, value.get(..cut).unwrap()).is_err(), "cut at {cut}");
        }
        assert!(read_block(1, &value).is_err(), "three frames cannot end at seq 1");
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
                let bytes: usize = block.iter().map(|frame| frame.bytes.len()).sum();
                assert!(!block.is_empty() && block.len() <= BLOCK_FRAMES);
                assert!(bytes <= BLOCK_BYTES || block.len() == 1);
            }
        }
    }
}
