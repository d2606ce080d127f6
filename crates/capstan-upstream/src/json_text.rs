//! Strings of JSON that is not parsed into a tree: borrowed where possible, repaired where invalid.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

/// A member that exists and is not null, as JSON text.
pub(crate) type Raw<'a> = Option<&'a RawValue>;

/// The text of a JSON string; `None` for any other value.
pub(crate) fn string(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.trim().strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    let read = |json: &str| serde_json::from_str::<String>(json).ok();
    read(raw).or_else(|| read(&mend(raw))).map(Cow::Owned)
}

/// The text of a member that is a non-empty string.
pub(crate) fn text<'a>(raw: Raw<'a>) -> Option<Cow<'a, str>> {
    string(raw?.get()).filter(|text| !text.is_empty())
}

/// Parses JSON, with invalid strings repaired. Null if that fails.
pub(crate) fn value(raw: &RawValue) -> Value {
    let read = |json: &str| serde_json::from_str(json).ok();
    read(raw.get()).or_else(|| read(&mend(raw.get()))).unwrap_or_default()
}

/// Replaces halves of surrogate pairs by U+FFFD. Some servers send halves when a character is split
/// between two tokens.
pub(crate) fn mend(json: &str) -> String {
    let mut mended = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        mended.push_str(before);
        let (len, is_whole) = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (12, true),
            (Some(0xD800..=0xDFFF), _) => (6, false),
            (Some(_), _) => (6, true),
            (None, _) => (2, true),
        };
        let (taken, after) = escape.split_at_checked(len).unwrap_or((escape, ""));
        mended.push_str(if is_whole { taken } else { "\\ufffd" });
        rest = after;
    }
    mended + rest
}

/// The code unit of an escape `\uXXXX` at the beginning of a text.
fn unit(escape: &str) -> Option<u16> {
    let digits = escape.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

/// Joins a character that was split between two pieces of text. Stores the first half until the
/// second one comes.
#[derive(Debug, Default)]
pub(crate) struct Halves(Option<u16>);

impl Halves {
    /// The text of a JSON string, after the stored half.
    pub(crate) fn join<'a>(&mut self, raw: &'a str) -> Option<Cow<'a, str>> {
        let inner = raw.trim().strip_prefix('"')?.strip_suffix('"')?;
        if self.0.is_none() && !inner.contains("\\u") {
            return string(raw);
        }
        let mut whole = String::with_capacity(inner.len() + 12);
        whole.push('"');
        if let Some(first) = self.0.take() {
            // Two halves make a character. `mend` replaces a single one.
            whole.push_str(&format!("\\u{first:04x}"));
        }
        let last = inner.len().checked_sub(6).and_then(|at| inner.get(at..)).and_then(unit);
        let is_escaped =
            trailing_backslashes(inner.len().checked_sub(6).and_then(|at| inner.get(..at))) % 2
                == 1;
        match last.filter(|last| (0xD800..=0xDBFF).contains(last) && !is_escaped) {
            Some(half) => {
                self.0 = Some(half);
                whole.push_str(inner.get(..inner.len() - 6).unwrap_or_default());
            }
            None => whole.push_str(inner),
        }
        whole.push('"');
        string(&whole).map(|text| Cow::Owned(text.into_owned()))
    }

    /// No half is stored.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// U+FFFD in place of a half whose other half never came.
    pub(crate) fn rest(&mut self) -> Option<&'static str> {
        self.0.take().map(|_| "\u{fffd}")
    }
}

fn trailing_backslashes(text: Option<&str>) -> usize {
    text.unwrap_or_default().bytes().rev().take_while(|byte| *byte == b'\\').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_escapes_is_borrowed_and_one_with_them_is_read() {
        assert!(matches!(string("\"plain\""), Some(Cow::Borrowed("plain"))));
        assert_eq!(string(r#""a\n\u00e4\ud83d\ude00""#).unwrap(), "a\nä😀");
        assert_eq!(string("null"), None);
        assert_eq!(string("[1]"), None);
    }

    #[test]
    fn half_a_pair_is_replaced_and_nothing_else() {
        assert_eq!(string(r#""a\ud83db""#).unwrap(), "a\u{fffd}b");
        assert_eq!(string(r#""\ude00\ud83d\ude00\ud83d""#).unwrap(), "\u{fffd}😀\u{fffd}");
        assert_eq!(string(r#""\\ud83d \"\ud83d\"""#).unwrap(), "\\ud83d \"\u{fffd}\"");
    }

    #[test]
    fn a_character_that_was_split_is_joined() {
        let mut halves = Halves::default();
        assert_eq!(halves.join(r#""Hi \ud83d""#).unwrap(), "Hi ");
        assert_eq!(halves.join(r#""\ude00!""#).unwrap(), "😀!");
        assert_eq!(halves.join(r#""\ud83d""#).unwrap(), "");
        assert_eq!(halves.join("\"x\"").unwrap(), "\u{fffd}x", "its other half never came");
        assert_eq!(halves.join(r#""\\ud83d""#).unwrap(), "\\ud83d", "that is no escape");
        assert_eq!(halves.join(r#""\ud83d""#).unwrap(), "");
        assert_eq!(halves.rest(), Some("\u{fffd}"));
        assert_eq!(halves.rest(), None);
    }
}
