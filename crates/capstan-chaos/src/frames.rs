//! Finds SSE frames in forwarded bytes without delaying them: the ends of frames, whether they have
//! data, and their ids.
//!
//! It stores raw bytes, unlike the protocol's decoder, because a repeat must be an exact copy.
//! Memory is bounded: a frame that is too long is counted but not stored.

/// Frames above this are counted, but not copied.
const COPY_LIMIT: usize = 64 * 1024;

/// A complete frame with data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Its SSE id, if it has one.
    pub(crate) id: Option<Vec<u8>>,
    /// Its bytes; `None` if they are too many.
    pub(crate) bytes: Option<Vec<u8>>,
}

/// Follows a body byte by byte: [`settle`](Self::settle), look for places, [`pass`](Self::pass).
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    bytes: u64,
    packets: u64,
    /// Bytes since the last boundary.
    depth: u64,
    /// Bytes of the line so far, without its end.
    line: u64,
    /// The bytes since the last boundary, up to one more than the limit.
    frame: Vec<u8>,
    /// The start of the line in `frame`.
    line_start: usize,
    /// A line other than a comment was seen: heartbeats between frames begin none.
    is_open: bool,
    has_data: bool,
    id: Option<Vec<u8>>,
    /// The last byte was a CR. An LF may still belong to it, so the line ends when the next byte is
    /// known.
    after_cr: bool,
}

impl Scanner {
    /// The bytes that have passed.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of packets that passed completely.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// The number of bytes of the current frame; 0 at a boundary.
    pub(crate) fn depth(&self) -> u64 {
        self.depth
    }

    /// Whether `next` belongs to the blank line that ends the frame.
    pub(crate) fn would_end(&self, next: u8) -> bool {
        self.line == 0 && matches!(next, b'\n' | b'\r')
    }

    /// Draws the conclusion from a CR, now that the next byte is known. Returns the packet that
    /// ended with it.
    pub(crate) fn settle(&mut self, next: u8) -> Option<Packet> {
        if self.after_cr && next != b'\n' { self.end_line() } else { None }
    }

    /// Takes the byte, which was settled. Returns the packet that it ended.
    pub(crate) fn pass(&mut self, byte: u8) -> Option<Packet> {
        self.bytes += 1;
        self.depth += 1;
        if self.frame.len() <= COPY_LIMIT {
            self.frame.push(byte);
        }
        match byte {
            b'\n' => return self.end_line(),
            b'\r' => self.after_cr = true,
            _ => self.line += 1,
        }
        None
    }

    fn end_line(&mut self) -> Option<Packet> {
        self.after_cr = false;
        if std::mem::take(&mut self.line) == 0 {
            return self.end_frame();
        }
        self.read_field();
        self.line_start = self.frame.len();
        if !self.is_open {
            self.start_frame();
        }
        None
    }

    /// Parses the line that just ended.
    fn read_field(&mut self) {
        let line = self.frame.get(self.line_start..).unwrap_or_default();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.is_open |= !line.starts_with(b":");
        if value_of(b"data", line).is_some() {
            self.has_data = true;
        } else if let Some(id) = value_of(b"id", line) {
            self.id = Some(id.to_vec());
        }
    }

    fn end_frame(&mut self) -> Option<Packet> {
        let bytes = Some(std::mem::take(&mut self.frame)).filter(|frame| frame.len() <= COPY_LIMIT);
        let packet = self.has_data.then(|| Packet { id: self.id.take(), bytes });
        self.packets += u64::from(packet.is_some());
        self.start_frame();
        packet
    }

    fn start_frame(&mut self) {
        self.frame.clear();
        (self.depth, self.line_start) = (0, 0);
        (self.is_open, self.has_data, self.id) = (false, false, None);
    }
}

/// The value, if the line is a field of this name; one blank after the colon does not count.
fn value_of<'a>(name: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let value = rest.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Vec<Packet> {
        let mut scanner = Scanner::default();
        text.bytes()
            .flat_map(|byte| {
                let settled = scanner.settle(byte);
                settled.into_iter().chain(scanner.pass(byte)).collect::<Vec<_>>()
            })
            .collect()
    }

    fn packet(id: &str, bytes: &str) -> Packet {
        Packet { id: Some(id.into()), bytes: Some(bytes.into()) }
    }

    #[test]
    fn frames_are_copied_exactly_whatever_their_line_ends() {
        for end in ["\n", "\r\n", "\r"] {
            let [one, two] = ["id: a:1\ndata: x\n\n", "event: e\nid:a:2\ndata\n\n"]
                .map(|f| f.replace('\n', end));
            let text = format!("{one}:{end}{two}z");
            assert_eq!(scan(&text), [packet("a:1", &one), packet("a:2", &two)], "{end:?}");
        }
    }

    #[test]
    fn frames_without_data_are_no_packets() {
        assert_eq!(scan("retry: 500\nid: a:0\n\n:\n\n\n"), []);
    }

    #[test]
    fn a_heartbeat_leaves_the_body_at_a_boundary() {
        let mut scanner = Scanner::default();
        for byte in *b":\n" {
            scanner.pass(byte);
        }
        assert_eq!(scanner.depth(), 0);
    }

    #[test]
    fn a_huge_frame_is_counted_but_not_held() {
        let text = format!("data: {}\n\n", "x".repeat(COPY_LIMIT));
        assert_eq!(scan(&text), [Packet { id: None, bytes: None }]);
    }
}
