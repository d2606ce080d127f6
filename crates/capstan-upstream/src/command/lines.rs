//! Splits bytes into lines. Only LF ends a line. Invalid UTF-8 is replaced by U+FFFD.

use capstan_protocol::Fault;

use crate::decode::malformed;

/// An incremental splitter with a size limit. Its cost is linear in the bytes.
#[derive(Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    /// All bytes before this one were returned.
    start: usize,
    /// All bytes before this one were searched.
    scanned: usize,
    limit: usize,
}

impl Lines {
    /// Refuses lines of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, scanned: 0, limit }
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete line. A last line without LF is ignored: its writer was cut off.
    pub fn next_line(&mut self) -> Result<Option<String>, Fault> {
        let fresh = self.bytes.get(self.scanned..).unwrap_or_default();
        let end = fresh.iter().position(|byte| *byte == b'\n').map(|at| self.scanned + at);
        let len = end.unwrap_or(self.bytes.len()) - self.start;
        if len > self.limit {
            return Err(malformed(format!("a line is longer than {} bytes", self.limit)));
        }
        let Some(end) = end else {
            self.scanned = self.bytes.len();
            return Ok(None);
        };
        let line = self.bytes.get(self.start..end).unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        (self.start, self.scanned) = (end + 1, end + 1);
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_the_same_whatever_the_chunks() {
        let text = "a\n\nb\u{2028}c\r\nlast";
        for size in 1..text.len() {
            let mut lines = Lines::new(100);
            let mut found = Vec::new();
            for chunk in text.as_bytes().chunks(size) {
                lines.push(chunk);
                while let Some(line) = lines.next_line().unwrap() {
                    found.push(line);
                }
            }
            assert_eq!(found, ["a", "", "b\u{2028}c\r"], "{size}");
        }
    }

    #[test]
    fn a_line_beyond_the_limit_is_a_fault_before_it_ends() {
        let mut lines = Lines::new(4);
        lines.push(b"1234\n12345");
        assert_eq!(lines.next_line().unwrap().as_deref(), Some("1234"));
        assert_eq!(lines.next_line().unwrap_err().code(), "upstream_malformed");
    }
}
