//! Writes JSON strings for SSE `data:` lines, and reads them back.
//!
//! It also escapes U+0085, U+2028 and U+2029, because some line readers split there.

const HEX: &[u8; 16] = b"0123456789abcdef";

// Evaluated while compiling, where an index out of range is an error of the build.
#[allow(clippy::indexing_slicing)]
/// Bytes that may need an escape: controls, quote, backslash, and the lead bytes of the three line
/// separators.
const SUSPECT: [bool; 256] = {
    let mut table = [false; 256];
    let mut control = 0;
    while control < 0x20 {
        table[control] = true;
        control += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table[0xC2] = true;
    table[0xE2] = true;
    table
};

/// Writes `text` as a JSON string, quotes included.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    write_escaped(out, text.as_bytes(), true);
    out.push(b'"');
}

/// Copies JSON text, escaping only the line separators (they can stand nowhere but inside strings).
pub(crate) fn write_json(out: &mut Vec<u8>, json: &str) {
    out.reserve(json.len());
    write_escaped(out, json.as_bytes(), false);
}

fn write_escaped(out: &mut Vec<u8>, bytes: &[u8], is_string: bool) {
    let (mut copied, mut at) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        if !SUSPECT.get(usize::from(byte)).copied().unwrap_or(false) {
            at += 1;
            continue;
        }
        let rest = bytes.get(at..).unwrap_or_default();
        let (escape, len): (&[u8], usize) = match rest {
            [0xC2, 0x85, ..] => (b"\\u0085", 2),
            [0xE2, 0x80, 0xA8, ..] => (b"\\u2028", 3),
            [0xE2, 0x80, 0xA9, ..] => (b"\\u2029", 3),
            [0xC2 | 0xE2, ..] => (b"", 0),
            _ if !is_string => (b"", 0),
            [b'"', ..] => (b"\\\"", 1),
            [b'\\', ..] => (b"\\\\", 1),
            [b'\n', ..] => (b"\\n", 1),
            [b'\r', ..] => (b"\\r", 1),
            [b'\t', ..] => (b"\\t", 1),
            [control, ..] => (&[b'\\', b'u', b'0', b'0', hex(control >> 4), hex(control & 15)], 1),
            [] => (b"", 0),
        };
        if len == 0 {
            at += 1;
            continue;
        }
        out.extend_from_slice(bytes.get(copied..at).unwrap_or_default());
        out.extend_from_slice(escape);
        at += len;
        copied = at;
    }
    out.extend_from_slice(bytes.get(copied..).unwrap_or_default());
}

/// Reads what stands between the quotes of a JSON string. `None` if it is not valid there, or holds
/// a surrogate pair: rare enough to be left to serde_json.
pub(crate) fn read_string(inner: &str) -> Option<String> {
    let (plain, rest) = split_plain(inner)?;
    if rest.is_empty() { Some(plain.to_owned()) } else { unescape(plain, rest) }
}

/// `rest` begins with the first byte that does not mean itself.
fn unescape(plain: &str, mut rest: &str) -> Option<String> {
    // Large enough: every escape is at least as long as its character.
    let mut out = String::with_capacity(plain.len() + rest.len());
    out.push_str(plain);
    while let Some(escape) = rest.strip_prefix('\\') {
        let (c, after) = read_escape(escape)?;
        out.push(c);
        let (plain, next) = split_plain(after)?;
        out.push_str(plain);
        rest = next;
    }
    // Anything left begins with a bare quote or control, which JSON forbids.
    rest.is_empty().then_some(out)
}

/// Splits before the first byte that does not mean itself: quote, backslash or control.
fn split_plain(text: &str) -> Option<(&str, &str)> {
    let (words, tail) = text.as_bytes().as_chunks::<8>();
    let word = words
        .iter()
        .map(|word| mark_specials(u64::from_le_bytes(*word)))
        .enumerate()
        .find(|(_, marks)| *marks != 0);
    let at = match word {
        Some((at, marks)) => at * 8 + marks.trailing_zeros() as usize / 8,
        None => {
            words.len() * 8
                + tail.iter().take_while(|byte| !matches!(byte, ..0x20 | b'"' | b'\\')).count()
        }
    };
    text.split_at_checked(at)
}

/// Eight bytes at once: the lowest bit set is the high bit of the first special byte. (Subtracting
/// borrows from the bytes above, so the bits above that one may be wrong.)
fn mark_specials(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let control = word.wrapping_sub(EACH * 0x20);
    let quote = (word ^ (EACH * b'"' as u64)).wrapping_sub(EACH);
    let backslash = (word ^ (EACH * b'\\' as u64)).wrapping_sub(EACH);
    (control | quote | backslash) & !word & (EACH * 0x80)
}

/// The character of an escape, without its backslash, and what follows it.
fn read_escape(text: &str) -> Option<(char, &str)> {
    let (&kind, _) = text.as_bytes().split_first()?;
    let c = match kind {
        b'"' | b'\\' | b'/' => char::from(kind),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return read_unit(text.get(1..)?),
        _ => return None,
    };
    Some((c, text.get(1..)?))
}

/// Four hexadecimal digits. Half of a surrogate pair is no character.
fn read_unit(text: &str) -> Option<(char, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    let unit = digits.chars().try_fold(0, |unit, digit| Some(unit * 16 + digit.to_digit(16)?))?;
    Some((char::from_u32(unit)?, rest))
}

fn hex(nibble: u8) -> u8 {
    HEX.get(usize::from(nibble)).copied().unwrap_or(b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_strings_read_back_and_hold_no_line_separator() {
        let text = "a\"b\\c\n\r\t\u{0}\u{1f}\u{7f}é\u{85}\u{2028}\u{2029}\u{2027}🐎";
        let mut out = Vec::new();
        write_string(&mut out, text);
        let json = String::from_utf8(out).unwrap();
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        assert!(
            !json.chars().any(|c| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}'))
        );
    }

    #[test]
    fn strings_read_as_serde_json_reads_them() {
        let parts = [
            "",
            "\"",
            "\\\"",
            "\\\\",
            "\\/",
            "\\b\\f\\n\\r\\t",
            "\\u0041",
            "\\u00E9\\u2028",
            "\\u12",
            "\\u+123",
            "\\u00é",
            "\\x",
            "\\",
            "\n",
            "\u{1f}",
            "\u{7f}",
            "é",
            "日本🐎",
            "\u{80}\u{a2}\u{dc}",
        ];
        // At every place of a machine word, with and without another word behind it.
        for (part, before) in
            parts.iter().flat_map(|part| (0..10).map(move |before| (part, before)))
        {
            for after in ["", "é", "12345678", "\\n1234567", "1234567\""] {
                let inner = format!("{}{part}{after}", "x".repeat(before));
                let expected = serde_json::from_str::<String>(&format!("\"{inner}\"")).ok();
                assert_eq!(read_string(&inner), expected, "{inner:?}");
            }
        }
    }

    #[test]
    fn surrogates_are_left_to_others() {
        assert_eq!(read_string("\\ud83d\\udc0e"), None);
        assert_eq!(read_string("\\ud83d"), None);
    }
}
