//! How keys are laid out. Numbers are big-endian, so that the order of bytes is the order of things.

use capstan_protocol::Timestamp;
use uuid::Uuid;

use crate::{ErrorKind, JournalError};

/// The engine takes keys up to 64 KiB; three names must fit into one.
const MAX_NAME: usize = 16 * 1024;

/// `index`: streams that run or wait.
pub(crate) const OPEN: u8 = b'o';
/// `index`: closed streams by the time of their end.
pub(crate) const CLOSED: u8 = b'c';
/// `index`: a tenant's streams.
pub(crate) const LISTED: u8 = b'l';
/// `index`: claims by the time their stream was deleted.
pub(crate) const GONE: u8 = b'g';
/// `index`: deleted streams whose claims are kept, by tenant.
pub(crate) const LATE: u8 = b'x';
/// `index`: streams whose record is deleted and whose frames are about to be.
pub(crate) const DOOMED: u8 = b'd';
/// `index`: sessions, with when they were last used.
pub(crate) const SESSION: u8 = b's';

/// Refuses names that would not fit into a key.
pub(crate) fn check_names(names: &[&str]) -> Result<(), JournalError> {
    match names.iter().find(|name| name.len() > MAX_NAME) {
        None => Ok(()),
        Some(name) => {
            let message = format!("a name of {} bytes is too long; {MAX_NAME} is the limit", name.len());
            Err(JournalError::new(ErrorKind::Unsupported, message))
        }
    }
}

/// A stream's block of frames, by the seq of its last; seq 0 holds the request's body, which so lives and goes with its
/// stream.
pub(crate) fn frame(stream: Uuid, seq: u64) -> [u8; 24] {
    let mut key = [0; 24];
    let (id, place) = key.split_at_mut(16);
    id.copy_from_slice(stream.as_bytes());
    place.copy_from_slice(&seq.to_be_bytes());
    key
}

/// The seq of a frame's key.
pub(crate) fn seq(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.last_chunk::<8>()?))
}

/// The stream at the end of a key.
pub(crate) fn stream(key: &[u8]) -> Option<Uuid> {
    Some(Uuid::from_bytes(*key.last_chunk::<16>()?))
}

/// The time after the first byte of a key.
pub(crate) fn time_of(key: &[u8]) -> Option<Timestamp> {
    let (_, rest) = key.split_first()?;
    read_time(rest)
}

/// Names of any content, told apart by their lengths: no name is another one's prefix.
pub(crate) fn names(names: &[&str]) -> Vec<u8> {
    let mut key = Vec::new();
    for name in names {
        // Checked to fit when it was claimed; a longer one is simply not found.
        key.extend(u16::try_from(name.len()).unwrap_or(u16::MAX).to_be_bytes());
        key.extend(name.as_bytes());
    }
    key
}

/// An entry of the index.
pub(crate) fn index(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![kind];
    parts.iter().for_each(|part| key.extend(*part));
    key
}

/// The entry of a deleted stream whose claim is kept.
pub(crate) fn late(tenant: &str, stream: Uuid) -> Vec<u8> {
    index(LATE, &[&names(&[tenant]), stream.as_bytes()])
}

/// A turn of a session: what `names` makes of tenant and session is the prefix of them all.
pub(crate) fn turn(tenant: &str, session: &str, stream: Uuid) -> Vec<u8> {
    let mut key = names(&[tenant, session]);
    key.extend(stream.as_bytes());
    key
}

/// The first of the names in an entry of the index.
pub(crate) fn first_name(entry: &[u8]) -> Option<&str> {
    let (length, rest) = entry.get(1..)?.split_first_chunk::<2>()?;
    std::str::from_utf8(rest.get(..usize::from(u16::from_be_bytes(*length)))?).ok()
}

/// A time whose bytes are ordered as times are, also before 1970.
pub(crate) fn time(at: Timestamp) -> [u8; 8] {
    at.as_micros().wrapping_sub(i64::MIN).to_be_bytes()
}

/// The time that `time` wrote.
pub(crate) fn read_time(bytes: &[u8]) -> Option<Timestamp> {
    let micros = i64::from_be_bytes(*bytes.first_chunk::<8>()?).wrapping_add(i64::MIN);
    Some(Timestamp::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_ordered_as_bytes() {
        let times = [-5_000_000, -1, 0, 1, 1_800_000_000_000_000].map(Timestamp::from_micros);
        assert!(times.map(time).is_sorted());
        assert_eq!(times.map(|at| read_time(&time(at)).unwrap()), times);
    }

    #[test]
    fn no_name_is_another_ones_prefix() {
        assert_ne!(names(&["a", "bc"]), names(&["ab", "c"]));
        assert!(!names(&["ab"]).starts_with(&names(&["a"])));
        assert_eq!(first_name(&index(SESSION, &[&names(&["ab", "c"])])), Some("ab"));
    }
}
