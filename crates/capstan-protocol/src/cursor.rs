//! Cursors: a reader's place in a stream, and the values of `Last-Event-ID`.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

/// A place in a stream: the holder of `<stream_id>:<seq>` has received all packets up to `seq`
/// (`:0` is before the first).
///
/// In the AG-UI face one packet becomes several events: the holder of `<stream_id>:<seq>.<k>` has
/// received the first `k` events of packet `seq`, and everything before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    /// The stream.
    pub stream_id: Uuid,
    /// The last packet received; 0 before the first.
    pub seq: u64,
    /// The AG-UI face's `k`: the last event received of those derived from packet `seq`. `None` in
    /// CAP.
    pub part: Option<u32>,
}

impl Cursor {
    /// After packet `seq`.
    pub fn new(stream_id: Uuid, seq: u64) -> Self {
        Self { stream_id, seq, part: None }
    }

    /// Before the first packet.
    pub fn start(stream_id: Uuid) -> Self {
        Self::new(stream_id, 0)
    }

    /// After the `part`-th event (counted from 1) that a face derived from packet `seq`.
    pub fn with_part(stream_id: Uuid, seq: u64, part: u32) -> Self {
        Self { stream_id, seq, part: Some(part) }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.stream_id, self.seq)?;
        self.part.map_or(Ok(()), |part| write!(f, ".{part}"))
    }
}

/// The gap in seq before the end of a stream whose last packets may be missing. It is the only gap
/// in a stream, and larger than any seq that a client may have seen.
pub const LOST_TAIL_GAP: u64 = 1 << 20;

/// Text that is not a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorError;

impl fmt::Display for CursorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a cursor: expected <stream_id>:<seq>, <stream_id>:<seq>.<k> or a bare <stream_id>",
        )
    }
}

impl std::error::Error for CursorError {}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        match LastEventId::from_str(text)? {
            LastEventId::At(cursor) => Ok(cursor),
            LastEventId::Whole(_) => Err(CursorError),
        }
    }
}

/// The values that a client may send as `Last-Event-ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastEventId {
    /// A full cursor: continue strictly after it.
    At(Cursor),
    /// A bare stream id, as RFC 004's literal client sends: replay all, the client drops repeats by
    /// seq.
    Whole(Uuid),
}

impl LastEventId {
    /// The stream that is named.
    pub fn stream_id(self) -> Uuid {
        match self {
            Self::At(cursor) => cursor.stream_id,
            Self::Whole(stream_id) => stream_id,
        }
    }

    /// The cursor after which the stream continues.
    pub fn cursor(self) -> Cursor {
        match self {
            Self::At(cursor) => cursor,
            Self::Whole(stream_id) => Cursor::start(stream_id),
        }
    }
}

impl FromStr for LastEventId {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let (id, place) = match text.split_once(':') {
            Some((id, place)) => (id, Some(place)),
            None => (text, None),
        };
        // We only write the hyphenated form, and one spelling per stream makes ids comparable.
        let stream_id = Uuid::try_parse(id).ok().filter(|_| id.len() == 36).ok_or(CursorError)?;
        let Some(place) = place else { return Ok(Self::Whole(stream_id)) };
        let (seq, part) = match place.split_once('.') {
            Some((seq, part)) => (seq, Some(number(part)?)),
            None => (place, None),
        };
        Ok(Self::At(Cursor { stream_id, seq: number(seq)?, part }))
    }
}

/// Plain digits; `from_str` alone would also take a plus sign.
fn number<T: FromStr>(text: &str) -> Result<T, CursorError> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten().ok_or(CursorError)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

    #[test]
    fn cursors_print_and_parse() {
        for place in ["0", "1", "18446744073709551615", "12.3"] {
            let text = format!("{ID}:{place}");
            assert_eq!(text.parse::<Cursor>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_bare_stream_id_means_replay_from_the_start() {
        let id: LastEventId = ID.parse().unwrap();
        assert_eq!(id, LastEventId::Whole(ID.parse().unwrap()));
        assert_eq!(id.cursor().seq, 0);
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in [
            "",
            ":1",
            "x:1",
            "sess_abc",
            &format!("{ID}:"),
            &format!("{ID}:-1"),
            &format!("{ID}:+1"),
            &format!("{ID}:1."),
            &format!("{ID}:1.x"),
            &format!("{ID}:1:2"),
            "7c9e6679742540de944be07fc1f90ae7:1",
        ] {
            assert!(wrong.parse::<LastEventId>().is_err(), "{wrong}");
        }
    }
}
