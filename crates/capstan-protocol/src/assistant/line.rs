//! One line of stream-json output: a frame, noise, or something broken.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::decode::{DecodeError, DecodeErrorKind, check};

/// The deepest nesting of a frame. Results of tools may be deep, so the limit is higher than for
/// packets.
const MAX_DEPTH: usize = 512;

/// The content of a line.
#[derive(Debug, Clone, PartialEq)]
pub enum Line {
    /// A JSON object; [`Frame::from_object`](super::Frame::from_object) reads it.
    Object(Map<String, Value>),
    /// Blank, or a log line that got between the frames.
    Noise,
}

impl Line {
    /// Decodes a line. Only a line that begins like an object can be wrong; any other line is
    /// noise.
    ///
    /// It accepts what other JSON writers produce: `NaN` and `Infinity` become null, lone
    /// surrogates U+FFFD, and of duplicate members the last one wins.
    pub fn decode(line: &str) -> Result<Self, DecodeError> {
        let line = line.trim();
        if !line.starts_with('{') {
            return Ok(Self::Noise);
        }
        parse(line).or_else(|strict| parse(&relax(line)).map_err(|_| strict)).map(Self::Object)
    }
}

fn parse(text: &str) -> Result<Map<String, Value>, DecodeError> {
    check(text, MAX_DEPTH)?;
    let mut reader = serde_json::Deserializer::from_str(text);
    reader.disable_recursion_limit();
    let map = Map::deserialize(&mut reader).and_then(|map| reader.end().map(|()| map));
    map.map_err(|e| DecodeError::new(DecodeErrorKind::Syntax, "", format!("not valid JSON: {e}")))
}

/// Rewrites what strict JSON refuses and Python's writer emits.
fn relax(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (taken, written) = match c {
            '"' => relax_string(rest),
            '-' | '0'..='9' | 'N' | 'I' => relax_token(rest),
            _ => (c.len_utf8(), String::from(c)),
        };
        out.push_str(&written);
        rest = rest.get(taken..).unwrap_or_default();
    }
    out
}

/// A string with its quotes; lone surrogates become U+FFFD.
fn relax_string(text: &str) -> (usize, String) {
    let mut out = String::from('"');
    let mut at = 1;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let unit = |at: usize| {
            let hex = rest.get(at..at + 6)?.strip_prefix("\\u")?;
            u16::from_str_radix(hex, 16).ok()
        };
        let (len, written): (usize, &str) = match (unit(0), unit(6)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => {
                (12, rest.get(..12).unwrap_or_default())
            }
            (Some(0xD800..=0xDFFF), _) => (6, "\\ufffd"),
            _ if rest.starts_with('\\') => {
                let len = 1 + rest.chars().nth(1).map_or(0, char::len_utf8);
                (len, rest.get(..len).unwrap_or_default())
            }
            _ => {
                let len = rest.chars().next().map_or(1, char::len_utf8);
                (len, rest.get(..len).unwrap_or_default())
            }
        };
        out.push_str(written);
        at += len;
        if written == "\"" {
            break;
        }
    }
    (at, out)
}

/// Replaces a number without a finite value by null; leaves other tokens unchanged.
fn relax_token(text: &str) -> (usize, String) {
    let end = text.find([',', '}', ']', ' ', '\t', '\n', '\r', ':']).unwrap_or(text.len());
    let token = text.get(..end).unwrap_or_default();
    let is_infinite =
        token.contains(['e', 'E']) && token.parse::<f64>().is_ok_and(f64::is_infinite);
    if matches!(token, "NaN" | "Infinity" | "-Infinity") || is_infinite {
        return (end, "null".into());
    }
    (end.max(1), text.get(..end.max(1)).unwrap_or_default().to_owned())
}
