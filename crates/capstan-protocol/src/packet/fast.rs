//! The short cut for packets exactly as [`super::write_members`] writes them.
//!
//! Anything unexpected gives up (`None`) and leaves the verdict to the strict path: this file may only ever say
//! what the strict path would say, sooner. A property test holds it to that.

use uuid::Uuid;

use super::{Close, Payload, StreamError, StreamPacket};
use crate::decode;
use crate::json::RawObject;
use crate::time::Timestamp;

pub(super) fn decode(text: &str) -> Option<StreamPacket> {
    let rest = text.strip_prefix("{\"stream_id\":\"")?;
    let (id, rest) = rest.split_at_checked(36)?;
    let rest = rest.strip_prefix("\",\"seq\":")?;
    let (seq, rest) = take_seq(rest)?;
    let rest = rest.strip_prefix(",\"op\":\"")?;
    let (op, rest) = rest.split_at_checked(5)?;
    let rest = rest.strip_prefix("\",\"t\":\"")?;
    let end = memchr::memchr(b'"', rest.as_bytes())?;
    let t = Timestamp::from_bytes(rest.as_bytes().get(..end)?)?;
    let p = rest.get(end..)?.strip_prefix("\",\"p\":")?.strip_suffix('}')?;
    let payload = match op {
        "DELTA" => Payload::Delta(take_string(p)?),
        "EVENT" => Payload::Event(RawObject::parse(p).ok()?),
        "ERROR" => Payload::Error(decode::quick::<StreamError>(p)?),
        "CLOSE" => Payload::Close(match take_string(p) {
            Some(reason) => Close::Reason(reason),
            None => Close::Report(RawObject::parse(p).ok()?),
        }),
        _ => return None,
    };
    let stream_id = Uuid::try_parse_ascii(id.as_bytes()).ok()?;
    Some(StreamPacket { stream_id, seq, t, payload })
}

/// Digits up to the comma, without a leading zero, short enough not to overflow.
fn take_seq(text: &str) -> Option<(u64, &str)> {
    let len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(len)?;
    let has_leading_zero = len > 1 && digits.starts_with('0');
    if len == 0 || len > 18 || has_leading_zero {
        return None;
    }
    let seq = digits.bytes().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    Some((seq, rest))
}

/// A whole JSON string. Without escapes it is copied; the short ones, such as a line break, are undone here, the
/// rest is serde_json's.
fn take_string(json: &str) -> Option<String> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    let is_plain = |b: u8| b >= 0x20 && b != b'"' && b != b'\\';
    if inner.bytes().all(is_plain) {
        return Some(inner.to_owned());
    }
    unescape(inner).or_else(|| serde_json::from_str(json).ok())
}

/// Undoes short escapes; anything else in the way gives up.
fn unescape(inner: &str) -> Option<String> {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.bytes().position(|b| b < 0x20 || b == b'"' || b == b'\\') {
        let (plain, escape) = rest.split_at_checked(at)?;
        let (escape, after) = escape.split_at_checked(2)?;
        out.push_str(plain);
        out.push(match escape {
            "\\n" => '\n',
            "\\\"" => '"',
            "\\\\" => '\\',
            "\\t" => '\t',
            "\\r" => '\r',
            _ => return None,
        });
        rest = after;
    }
    out.push_str(rest);
    Some(out)
}
