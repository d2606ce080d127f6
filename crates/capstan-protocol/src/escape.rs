//! Writes JSON strings for SSE `data:` lines.
//!
//! Beside what JSON demands, U+0085, U+2028 and U+2029 are escaped: some line readers split there.

const HEX: &[u8; 16] = b"0123456789abcdef";

// Evaluated while compiling, where an index out of range is an error of the build.
#[allow(clippy::indexing_slicing)]
/// Bytes that may need an escape: controls, quote, backslash, and the lead bytes of the three line separators.
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
        assert!(!json.chars().any(|c| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')));
    }
}
