//! Decodes server-sent events by the WHATWG rules, for any chunks, at a cost linear in the bytes.
//! The caller pushes bytes and takes frames. The decoder never yields a frame that the end of the
//! body cuts off. As in the rules, it first decodes bytes into text.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::encoder::EVENT_NAME;

/// The default limit of a frame: enough for an inline picture.
const DEFAULT_FRAME_LIMIT: usize = 16 * 1024 * 1024;

/// The byte order mark.
const BOM: char = '\u{feff}';

/// One dispatched event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The event's name; `message` if none was given.
    pub event: Cow<'a, str>,
    /// The data lines, joined by LF.
    pub data: Cow<'a, str>,
}

/// A frame grew past the limit; the stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameTooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

impl fmt::Display for FrameTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a server-sent event is larger than {} bytes", self.limit)
    }
}

impl std::error::Error for FrameTooLarge {}

/// An incremental reader of server-sent events.
///
/// ```
/// let mut decoder = capstan_protocol::sse::Decoder::new();
/// decoder.push(b"id: 7\ndata: hel");
/// assert!(decoder.next_frame().is_none());
/// decoder.push(b"lo\n\n");
/// assert_eq!(decoder.next_frame().unwrap().unwrap().data, "hello");
/// assert_eq!(decoder.last_event_id(), Some("7"));
/// ```
#[derive(Debug)]
pub struct Decoder {
    text: String,
    /// The first bytes of an incomplete character.
    partial: Vec<u8>,
    /// Everything before this was yielded.
    consumed: usize,
    /// The first byte that was not searched for a line end yet.
    scanned: usize,
    /// The first byte of the line being read.
    line: usize,
    limit: usize,
    at_start: bool,
    /// The last line ended in CR: an LF right after it belongs to it.
    after_cr: bool,
    parts: Parts,
    last_event_id: Option<String>,
    retry: Option<Duration>,
    failed: bool,
}

/// The fields of the frame being read, as places in the text.
#[derive(Debug, Default, Clone)]
struct Parts {
    event: Option<Span>,
    data: Option<Span>,
    /// Filled only when a frame has several data lines.
    joined: String,
    lines: usize,
    id: Option<Span>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    end: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder with the default limit of 16 MiB for a frame.
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_FRAME_LIMIT)
    }

    /// A decoder that refuses frames of more than `limit` bytes.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            text: String::new(),
            partial: Vec::new(),
            consumed: 0,
            scanned: 0,
            line: 0,
            limit,
            at_start: true,
            after_cr: false,
            parts: Parts::default(),
            last_event_id: None,
            retry: None,
            failed: false,
        }
    }

    /// The id of the last dispatched frame, also of one without data. Sticky, as browsers have it.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// The server's last reconnection time.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Whether the bytes so far end inside a frame, so that the end of the body would cut it off.
    pub fn is_mid_frame(&self) -> bool {
        let is_mid_line = self.line < self.text.len() || !self.partial.is_empty();
        is_mid_line || self.parts.lines > 0 || self.parts.event.is_some()
    }

    /// Takes more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.reclaim();
        if self.partial.is_empty() {
            return self.append(bytes);
        }
        let mut joined = std::mem::take(&mut self.partial);
        joined.extend_from_slice(bytes);
        self.append(&joined);
    }

    /// Bytes that are not UTF-8 become U+FFFD, as the rules ask; the rest of a last character may
    /// still come.
    fn append(&mut self, mut bytes: &[u8]) {
        while let Err(error) =
            simdutf8::compat::from_utf8(bytes).map(|text| self.text.push_str(text))
        {
            let (valid, rest) = bytes.split_at_checked(error.valid_up_to()).unwrap_or_default();
            self.text.push_str(std::str::from_utf8(valid).unwrap_or_default());
            let Some(len) = error.error_len() else {
                return self.partial.extend_from_slice(rest);
            };
            self.text.push(char::REPLACEMENT_CHARACTER);
            bytes = rest.get(len..).unwrap_or_default();
        }
    }

    /// The next complete frame with data, if the bytes so far hold one.
    pub fn next_frame(&mut self) -> Option<Result<Frame<'_>, FrameTooLarge>> {
        self.skip_bom();
        if let Some(data) = self.take_packet() {
            return Some(Ok(Frame {
                event: EVENT_NAME.into(),
                data: slice(&self.text, data).into(),
            }));
        }
        while !self.failed {
            let Some(end) = self.find_line_end() else {
                // Line ends do not count towards the limit, so that the verdict does not depend on
                // the chunks.
                let is_mid_line = self.line < self.text.len();
                self.failed = is_mid_line && self.text.len() - self.consumed > self.limit;
                if self.failed {
                    break;
                }
                return None;
            };
            let start = std::mem::replace(&mut self.line, end + 1);
            if start < end {
                self.field(Span { start, end });
                self.failed = end - self.consumed > self.limit;
                // Comments between frames belong to none: an idle stream of heartbeats never grows.
                if self.parts.is_empty() {
                    self.consumed = self.line;
                }
            } else if self.dispatch() {
                return Some(Ok(self.frame()));
            }
        }
        Some(Err(FrameTooLarge { limit: self.limit }))
    }

    /// The fast path for a frame exactly as our encoder writes it, before any other step has read
    /// from it. The slow path gives the same result for it.
    fn take_packet(&mut self) -> Option<Span> {
        if self.scanned != self.consumed || self.after_cr || self.failed {
            return None;
        }
        let frame = self.text.get(self.consumed..)?;
        let (id, rest) = split_cursor(frame.strip_prefix("event: stream.packet\nid: ")?)?;
        let rest = rest.strip_prefix("\ndata: ")?;
        let (data, rest) =
            rest.split_at_checked(memchr::memchr2(b'\n', b'\r', rest.as_bytes())?)?;
        let rest = rest.strip_prefix("\n\n")?;
        if frame.len() - rest.len() > self.limit {
            return None;
        }
        set_text(&mut self.last_event_id, id);
        let end = self.text.len() - rest.len();
        let data = Span { start: end - 2 - data.len(), end: end - 2 };
        (self.consumed, self.line, self.scanned) = (end, end, end);
        Some(data)
    }

    /// Forgets yielded bytes once they are worth a copy: each byte is moved at most once on
    /// average.
    fn reclaim(&mut self) {
        if self.consumed == self.text.len() {
            self.text.clear();
        } else if self.consumed > 4096 && self.consumed * 2 > self.text.len() {
            self.text.drain(..self.consumed);
        } else {
            return;
        }
        let gone = std::mem::take(&mut self.consumed);
        self.scanned -= gone;
        self.line -= gone;
        for span in
            [&mut self.parts.event, &mut self.parts.data, &mut self.parts.id].into_iter().flatten()
        {
            span.start = span.start.saturating_sub(gone);
            span.end = span.end.saturating_sub(gone);
        }
    }

    /// A byte order mark counts only as the very first character.
    fn skip_bom(&mut self) {
        if !self.at_start || self.text.is_empty() {
            return;
        }
        self.at_start = false;
        if self.text.starts_with(BOM) {
            self.line = BOM.len_utf8();
            self.scanned = self.line;
        }
    }

    /// The index of the next LF or CR that ends a line; the LF of a CRLF ends nothing.
    fn find_line_end(&mut self) -> Option<usize> {
        let bytes = self.text.as_bytes();
        if self.after_cr {
            let next = *bytes.get(self.line)?;
            self.after_cr = false;
            if next == b'\n' {
                self.line += 1;
                self.scanned = self.line;
                // A frame that was just dispatched at the CR owns this LF, too.
                if self.parts.is_empty() {
                    self.consumed = self.line;
                }
            }
        }
        let Some(found) = memchr::memchr2(b'\n', b'\r', bytes.get(self.scanned..)?) else {
            self.scanned = bytes.len();
            return None;
        };
        let end = self.scanned + found;
        self.scanned = end + 1;
        self.after_cr = bytes.get(end) == Some(&b'\r');
        Some(end)
    }

    /// A line that is not empty: `name: value`, a name alone, or a comment.
    fn field(&mut self, line: Span) {
        let text = slice(&self.text, line);
        let span = |value: &str| Span { start: line.end - value.len(), end: line.end };
        if let Some(value) = value_of("data", text) {
            self.parts.add_data(span(value), &self.text);
        } else if let Some(value) = value_of("event", text) {
            self.parts.event = Some(span(value));
        } else if let Some(value) = value_of("id", text) {
            // An id with a NUL is ignored.
            if memchr::memchr(0, value.as_bytes()).is_none() {
                self.parts.id = Some(span(value));
            }
        } else if let Some(value) = value_of("retry", text) {
            self.retry = milliseconds(value).or(self.retry);
        }
    }

    /// A blank line: the id takes effect, and the frame is an event if it has data.
    fn dispatch(&mut self) -> bool {
        if let Some(id) = self.parts.id.take() {
            set_text(&mut self.last_event_id, slice(&self.text, id));
        }
        self.consumed = self.line;
        // One empty data line is data: an event with the empty string.
        let has_data = self.parts.lines > 0;
        if !has_data {
            self.parts.clear();
        }
        has_data
    }

    /// The frame that was just dispatched; its places stay valid until the next push.
    fn frame(&mut self) -> Frame<'_> {
        let parts = &mut self.parts;
        let (event, data) = (parts.event.take(), parts.data.take());
        let is_joined = std::mem::take(&mut parts.lines) > 1;
        let event = event.map_or("", |span| slice(&self.text, span));
        let data = data.map_or("", |span| slice(&self.text, span));
        Frame {
            event: if event.is_empty() { "message" } else { event }.into(),
            data: if is_joined { &parts.joined } else { data }.into(),
        }
    }
}

impl Parts {
    fn is_empty(&self) -> bool {
        self.lines == 0 && self.event.is_none() && self.id.is_none()
    }

    fn clear(&mut self) {
        self.event = None;
        self.data = None;
        self.id = None;
        self.lines = 0;
    }

    /// The first line stays where it is; only a second one makes a copy.
    fn add_data(&mut self, value: Span, text: &str) {
        match (self.lines, self.data) {
            (0, _) => self.data = Some(value),
            (1, Some(first)) => {
                self.joined.clear();
                self.joined.push_str(slice(text, first));
                self.append(slice(text, value));
            }
            _ => self.append(slice(text, value)),
        }
        self.lines += 1;
    }

    fn append(&mut self, line: &str) {
        self.joined.push('\n');
        self.joined.push_str(line);
    }
}

/// Every span lies between ASCII characters, so it never cuts another one.
fn slice(text: &str, span: Span) -> &str {
    text.get(span.start..span.end).unwrap_or_default()
}

/// Splits after a cursor, `<stream id>:<seq>`. Graphic characters are neither line ends nor the NUL
/// of a malformed id.
fn split_cursor(text: &str) -> Option<(&str, &str)> {
    const SEQ: usize = "7c9e6679-7425-40de-944b-e07fc1f90ae7:".len();
    let (stream_id, seq) = text.split_at_checked(SEQ)?;
    // To the end without a way out: that compiles to vector instructions.
    if !stream_id.bytes().fold(true, |is_plain, byte| is_plain & byte.is_ascii_graphic()) {
        return None;
    }
    text.split_at_checked(SEQ + seq.bytes().take_while(u8::is_ascii_digit).count())
}

/// Replaces a text without giving up its memory: an id comes with every frame.
fn set_text(target: &mut Option<String>, text: &str) {
    let target = target.get_or_insert_default();
    target.clear();
    target.push_str(text);
}

/// The value, if the line is a field of this name; one blank after the colon does not count.
fn value_of<'a>(name: &str, line: &'a str) -> Option<&'a str> {
    let rest = line.strip_prefix(name)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let value = rest.strip_prefix(':')?;
    Some(value.strip_prefix(' ').unwrap_or(value))
}

fn milliseconds(value: &str) -> Option<Duration> {
    // `parse` alone would take a plus sign.
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| value.parse().ok().map(Duration::from_millis)).flatten()
}
