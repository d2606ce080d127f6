//! The short cut for packets exactly as [`super::write_members`] writes them.
//!
//! Anything unexpected gives up (`None`) and leaves the verdict to the strict path: this file may
//! only ever say what the strict path would say, sooner. A property test holds it to that.

use uuid::Uuid;

use super::{Close, Payload, StreamPacket};
use crate::decode;
use crate::escape;
use crate::json::RawObject;
use crate::time::Timestamp;

pub(super) fn decode(text: &str) -> Option<StreamPacket> {
    let rest = skip(text.as_bytes(), b"{\"stream_id\":\"")?;
    let (id, rest) = rest.split_at_checked(36)?;
    let stream_id = Uuid::try_parse_ascii(id).ok()?;
    let (seq, rest) = take_seq(skip(rest, b"\",\"seq\":")?)?;
    let (op, rest) = skip(rest, b",\"op\":\"")?.split_first_chunk()?;
    let (t, rest) = Timestamp::take(skip(rest, b"\",\"t\":\"")?)?;
    let rest = skip(rest, b"\",\"p\":")?;
    let p = text.get(text.len() - rest.len()..)?.strip_suffix('}')?;
    // A DELTA is built in place: moving the large enum out of `payload` costs as much as reading a
    // token.
    let payload = if op == b"DELTA" { Payload::Delta(take_string(p)?) } else { payload(op, p)? };
    Some(StreamPacket { stream_id, seq, t, payload })
}

fn payload(op: &[u8; 5], p: &str) -> Option<Payload> {
    Some(match op {
        b"EVENT" => Payload::Event(RawObject::parse(p).ok()?),
        b"ERROR" => Payload::Error(decode::quick(p)?),
        b"CLOSE" => Payload::Close(match take_string(p) {
            Some(reason) => Close::Reason(reason),
            None => Close::Report(RawObject::parse(p).ok()?),
        }),
        _ => return None,
    })
}

/// `strip_prefix` of a length known to the compiler, which then compares words instead of calling
/// `memcmp`.
fn skip<'a, const N: usize>(bytes: &'a [u8], expected: &[u8; N]) -> Option<&'a [u8]> {
    let (found, rest) = bytes.split_first_chunk::<N>()?;
    (found == expected).then_some(rest)
}

/// Digits up to the comma, without a leading zero, short enough not to overflow.
fn take_seq(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = bytes.iter().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = bytes.split_at_checked(len)?;
    let has_leading_zero = len > 1 && digits.starts_with(b"0");
    if len == 0 || len > 18 || has_leading_zero {
        return None;
    }
    let seq = digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    Some((seq, rest))
}

/// Reads a JSON string and nothing after it.
fn take_string(json: &str) -> Option<String> {
    escape::read_string(json.strip_prefix('"')?.strip_suffix('"')?)
}
