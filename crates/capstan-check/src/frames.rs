//! A raw SSE body: frames with their lines and their exact bytes. A decoder would hide the
//! mistakes.

use serde_json::Value;

/// The lines between two blank ones, comments left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The raw bytes, line ends included.
    pub(crate) raw: String,
    /// Each line as field and value.
    pub(crate) fields: Vec<(String, String)>,
}

impl Frame {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn has_data(&self) -> bool {
        self.field("data").is_some()
    }

    pub(crate) fn data(&self) -> &str {
        self.field("data").unwrap_or_default()
    }

    /// The data as JSON; null if it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.data()).unwrap_or_default()
    }

    /// A member of the data that is text.
    pub(crate) fn text(&self, member: &str) -> Option<String> {
        Some(self.json().get(member)?.as_str()?.to_owned())
    }
}

/// A body, taken apart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frames {
    pub(crate) frames: Vec<Frame>,
    /// The bytes after the last blank line.
    pub(crate) rest: String,
}

impl Frames {
    pub(crate) fn read(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let (mut out, mut open) =
            (Self::default(), Frame { raw: String::new(), fields: Vec::new() });
        let mut rest = &*text;
        while let Some((line, end, behind)) = split_line(rest) {
            rest = behind;
            if line.is_empty() {
                open.raw.push_str(end);
                let is_frame = !open.fields.is_empty();
                let frame =
                    std::mem::replace(&mut open, Frame { raw: String::new(), fields: Vec::new() });
                out.frames.extend(is_frame.then_some(frame));
            } else if !line.starts_with(':') {
                open.raw.extend([line, end]);
                let (name, value) = line.split_once(':').unwrap_or((line, ""));
                open.fields
                    .push((name.to_owned(), value.strip_prefix(' ').unwrap_or(value).to_owned()));
            }
        }
        out.rest = open.raw + rest;
        out
    }
}

/// A line, its end, and what follows. LF, CRLF and CR all end a line.
fn split_line(text: &str) -> Option<(&str, &str, &str)> {
    let at = text.find(['\n', '\r'])?;
    let (line, behind) = text.split_at_checked(at)?;
    let length = if behind.starts_with("\r\n") { 2 } else { 1 };
    let (end, behind) = behind.split_at_checked(length)?;
    Some((line, end, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_bytes_and_lose_their_comments() {
        let body = b"retry: 500\nid: a\n\n:\ndata: 1\n: x\ndata:2\r\n\r\n\ndata: cut";
        let read = Frames::read(body);
        let raw: Vec<&str> = read.frames.iter().map(|frame| frame.raw.as_str()).collect();
        assert_eq!(raw, ["retry: 500\nid: a\n\n", "data: 1\ndata:2\r\n\r\n"]);
        assert_eq!(read.rest, "data: cut");
        assert_eq!(read.frames[0].field("id"), Some("a"));
        assert!(!read.frames[0].has_data() && read.frames[1].has_data());
    }
}
