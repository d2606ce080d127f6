//! Reads server-sent events by the WHATWG rules, whatever the chunks, at a cost linear in the bytes.
//!
//! The caller pushes bytes and asks for frames. A frame that the end of the body cuts off is simply never yielded.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::encoder::EVENT_NAME;

/// Frames above this are refused unless the caller says otherwise: enough for a picture inline, not for a leak.
const DEFAULT_FRAME_LIMIT: usize = 16 * 1024 * 1024;

/// How the frames of our encoder begin.
const PLAIN_HEAD: &[u8] = b"event: stream.packet\nid: ";

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
    buffer: Vec<u8>,
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

/// The fields of the frame being read, as places in the buffer.
#[derive(Debug, Default, Clone)]
struct Parts {
    event: Option<Span>,
    data: Option<Span>,
    /// Filled only when a frame has several data lines.
    joined: Vec<u8>,
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
            buffer: Vec::new(),
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

    /// The last reconnection time that the server asked for.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Whether the bytes so far end inside a frame, so that the end of the body would cut it off.
    pub fn is_mid_frame(&self) -> bool {
        self.line < self.buffer.len() || self.parts.lines > 0 || self.parts.event.is_some()
    }

    /// Takes more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.reclaim();
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame that has data, if the bytes so far hold one.
    pub fn next_frame(&mut self) -> Option<Result<Frame<'_>, FrameTooLarge>> {
        loop {
            if self.failed {
                return Some(Err(FrameTooLarge { limit: self.limit }));
            }
            if !self.skip_bom() {
                return None;
            }
            if let Some(data) = self.take_plain_frame() {
                return Some(Ok(Frame {
                    event: Cow::Borrowed(EVENT_NAME),
                    data: text_of(&self.buffer, data),
                }));
            }
            let Some(end) = self.find_line_end() else {
                // Line ends do not count towards the limit, so that the verdict does not depend on the chunks.
                let is_mid_line = self.line < self.buffer.len();
                self.failed = is_mid_line && self.buffer.len() - self.consumed > self.limit;
                if self.failed {
                    continue;
                }
                return None;
            };
            let start = std::mem::replace(&mut self.line, end + 1);
            if start < end {
                self.field(start, end);
                self.failed = end - self.consumed > self.limit;
                // Comments between frames belong to none: an idle stream of heartbeats never grows.
                if self.parts.is_empty() {
                    self.consumed = self.line;
                }
            } else if self.dispatch() {
                return Some(Ok(self.frame()));
            }
        }
    }

    /// The short cut for a whole frame exactly as our encoder writes it; anything else is left to the lines.
    fn take_plain_frame(&mut self) -> Option<Span> {
        // Only at the start of a frame, and not before the LF that may belong to the last CR.
        if self.line != self.consumed || self.after_cr || !self.parts.is_empty() {
            return None;
        }
        let frame = self.buffer.get(self.line..)?;
        let rest = frame.strip_prefix(PLAIN_HEAD)?;
        let id = rest.get(..memchr::memchr3(b'\n', b'\r', 0, rest)?)?;
        let rest = rest.get(id.len()..)?.strip_prefix(b"\ndata: ")?;
        let data = memchr::memchr2(b'\n', b'\r', rest)?;
        if rest.get(data..data + 2) != Some(b"\n\n") {
            return None;
        }
        let end = frame.len() - rest.len() + data + self.line;
        // What is over the limit is the lines' to refuse.
        if end - self.consumed > self.limit {
            return None;
        }
        let span = Span { start: end - data, end };
        set_text(&mut self.last_event_id, lossy(id));
        self.line = end + 2;
        self.scanned = self.line;
        self.consumed = self.line;
        Some(span)
    }

    /// Forgets yielded bytes once they are worth a copy: each byte is moved at most once on average.
    fn reclaim(&mut self) {
        if self.consumed == self.buffer.len() {
            self.buffer.clear();
        } else if self.consumed > 4096 && self.consumed * 2 > self.buffer.len() {
            self.buffer.drain(..self.consumed);
        } else {
            return;
        }
        let gone = std::mem::take(&mut self.consumed);
        self.scanned -= gone;
        self.line -= gone;
        for span in [&mut self.parts.event, &mut self.parts.data, &mut self.parts.id].into_iter().flatten() {
            span.start = span.start.saturating_sub(gone);
            span.end = span.end.saturating_sub(gone);
        }
    }

    /// A byte order mark counts only as the very first bytes. False while that cannot be told yet.
    fn skip_bom(&mut self) -> bool {
        const BOM: &[u8] = b"\xEF\xBB\xBF";
        if !self.at_start {
            return true;
        }
        if self.buffer.len() < BOM.len() && BOM.starts_with(&self.buffer) {
            return false;
        }
        self.at_start = false;
        if self.buffer.starts_with(BOM) {
            self.line = BOM.len();
            self.scanned = BOM.len();
        }
        true
    }

    /// The index of the next LF or CR that ends a line; the LF of a CRLF ends nothing.
    fn find_line_end(&mut self) -> Option<usize> {
        if self.after_cr {
            let next = *self.buffer.get(self.line)?;
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
        let rest = self.buffer.get(self.scanned..)?;
        let Some(found) = memchr::memchr2(b'\n', b'\r', rest) else {
            self.scanned = self.buffer.len();
            return None;
        };
        let end = self.scanned + found;
        self.scanned = end + 1;
        self.after_cr = self.buffer.get(end) == Some(&b'\r');
        Some(end)
    }

    /// One line that is not empty: `name: value`, a bare name, or a comment.
    fn field(&mut self, start: usize, end: usize) {
        let line = self.buffer.get(start..end).unwrap_or_default();
        let (name, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let has_blank = line.get(colon + 1) == Some(&b' ');
                (line.get(..colon).unwrap_or_default(), start + colon + 1 + usize::from(has_blank))
            }
            None => (line, end),
        };
        let value = Span { start: value.min(end), end };
        match name {
            b"data" => self.parts.add_data(value, &self.buffer),
            b"event" => self.parts.event = Some(value),
            // An id with a NUL is ignored.
            b"id" if !self.buffer.get(value.start..value.end).is_some_and(|id| id.contains(&0)) => {
                self.parts.id = Some(value);
            }
            b"retry" => self.retry = self.digits(value).map(Duration::from_millis).or(self.retry),
            _ => {}
        }
    }

    fn digits(&self, span: Span) -> Option<u64> {
        let text = self.buffer.get(span.start..span.end)?;
        let plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        plain.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
    }

    /// A blank line: the id takes effect, and the frame is an event if it has data.
    fn dispatch(&mut self) -> bool {
        if let Some(id) = self.parts.id.take() {
            set_text(&mut self.last_event_id, text_of(&self.buffer, id));
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
        let event = match event.filter(|e| e.start < e.end) {
            Some(span) => text_of(&self.buffer, span),
            None => Cow::Borrowed("message"),
        };
        let data = if is_joined {
            lossy(&parts.joined)
        } else {
            data.map_or(Cow::Borrowed(""), |span| text_of(&self.buffer, span))
        };
        Frame { event, data }
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
    fn add_data(&mut self, value: Span, buffer: &[u8]) {
        let bytes = |span: Span| buffer.get(span.start..span.end).unwrap_or_default();
        match (self.lines, self.data) {
            (0, _) => self.data = Some(value),
            (1, Some(first)) => {
                self.joined.clear();
                self.joined.extend_from_slice(bytes(first));
                self.append(bytes(value));
            }
            _ => self.append(bytes(value)),
        }
        self.lines += 1;
    }

    fn append(&mut self, line: &[u8]) {
        self.joined.push(b'\n');
        self.joined.extend_from_slice(line);
    }
}

/// Replaces a text without giving up its memory: an id comes with every frame.
fn set_text(target: &mut Option<String>, text: Cow<'_, str>) {
    let target = target.get_or_insert_default();
    target.clear();
    target.push_str(&text);
}

/// Bytes that are not UTF-8 become U+FFFD, as the rules ask.
fn text_of(buffer: &[u8], span: Span) -> Cow<'_, str> {
    lossy(buffer.get(span.start..span.end).unwrap_or_default())
}

/// Text of a frame is checked once, here; by SIMD, since it is most of what a long frame costs.
fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
