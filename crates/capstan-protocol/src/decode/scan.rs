//! Checks that serde_json omits for raw text: depth and lone surrogates.

use super::{DecodeError, DecodeErrorKind};

/// The findings of [`check`].
pub(crate) struct Scan {
    /// No line break stands between tokens.
    pub(crate) is_compact: bool,
}

/// Checks valid JSON in one pass for depth and lone surrogates, which serde_json omits for raw
/// text.
pub(crate) fn check(text: &str, limit: usize) -> Result<Scan, DecodeError> {
    let bytes = text.as_bytes();
    let (mut depth, mut at, mut is_compact) = (0usize, 0usize, true);
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = skip_string(bytes, at)?,
            b'{' | b'[' => {
                depth += 1;
                if depth > limit {
                    let what = format!("nested deeper than {limit} levels");
                    return Err(DecodeError::new(DecodeErrorKind::Depth, "", what));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'\n' | b'\r' => is_compact = false,
            _ => {}
        }
    }
    Ok(Scan { is_compact })
}

/// Returns the index after the closing quote.
fn skip_string(bytes: &[u8], mut at: usize) -> Result<usize, DecodeError> {
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(found) = memchr::memchr2(b'"', b'\\', rest) else { return Ok(bytes.len()) };
        at += found;
        if bytes.get(at) == Some(&b'"') {
            return Ok(at + 1);
        }
        at = match bytes.get(at + 1) {
            Some(b'u') => check_escape(bytes, at)?,
            _ => at + 2,
        };
    }
}

/// `at` is a `\uXXXX`; a high surrogate must be followed by a low one and no low one may stand
/// alone.
fn check_escape(bytes: &[u8], at: usize) -> Result<usize, DecodeError> {
    let unit = |at: usize| -> Option<u16> {
        let hex = std::str::from_utf8(bytes.get(at..at + 6)?).ok()?;
        u16::from_str_radix(hex.strip_prefix("\\u")?, 16).ok()
    };
    match unit(at) {
        Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => Ok(at + 12),
        Some(0xD800..=0xDFFF) | None => Err(DecodeError::new(
            DecodeErrorKind::Syntax,
            "",
            "not valid JSON: lone surrogate in a string",
        )),
        Some(_) => Ok(at + 6),
    }
}
