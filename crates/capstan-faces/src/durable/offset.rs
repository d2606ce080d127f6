//! The offsets of this protocol.

use std::fmt;

use capstan_journal::Run;
use capstan_protocol::{Fault, FaultKind};

/// The seq of the last packet that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset(pub(super) u64);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}", self.0)
    }
}

impl Offset {
    /// Parses the query: `-1` or nothing is the start, and `now` the present end.
    pub(super) fn of(text: Option<&str>, run: &Run) -> Result<Self, Fault> {
        match text {
            None | Some("-1") => Ok(Self(0)),
            Some("now") => Ok(Self(run.last_seq)),
            Some(text) => Self::parse(text),
        }
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let is_one = text.len() == 20 && text.bytes().all(|digit| digit.is_ascii_digit());
        let number = text.parse().ok().filter(|_| is_one);
        number.map(Self).ok_or_else(|| {
            Fault::new(FaultKind::InvalidRequest)
                .with_message("offset: expected -1, now, or the value of Stream-Next-Offset")
        })
    }
}

#[cfg(test)]
mod tests {
    use capstan_journal::Claim;
    use capstan_protocol::Timestamp;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn an_offset_is_twenty_digits_and_nothing_else() {
        let run =
            Run { last_seq: 7, ..Claim::new("t", "k", Uuid::now_v7(), Timestamp::now()).to_run() };
        for (text, expected) in [
            (None, Some(0)),
            (Some("-1"), Some(0)),
            (Some("now"), Some(7)),
            (Some("00000000000000000003"), Some(3)),
            (Some("3"), None),
            (Some(""), None),
            (Some("+0000000000000000003"), None),
            (Some("99999999999999999999"), None),
        ] {
            assert_eq!(Offset::of(text, &run).ok().map(|offset| offset.0), expected, "{text:?}");
        }
        assert_eq!(Offset(3).to_string(), "00000000000000000003");
    }
}
