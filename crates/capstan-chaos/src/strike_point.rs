//! A place in a body: where a fault strikes. Looked for byte by byte, right before each byte
//! passes, so that a fault withholds what comes after its place; where nothing comes, nothing
//! happens.

use crate::frames::Scanner;

/// Enough of the body has passed, and the next byte is at a spot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrikePoint {
    /// The body's bytes that have to pass first.
    pub bytes: u64,
    /// The packets that have to pass first.
    pub packets: u64,
    /// The exact place after that.
    pub spot: Spot,
}

/// The condition for the next byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// Any byte.
    Here,
    /// The first of a frame.
    Boundary,
    /// So many bytes into a frame, or the last byte of a shorter one.
    Inside(u64),
    /// A byte inside a character, not its first.
    Character,
}

impl StrikePoint {
    /// Whether the place is before `next`.
    pub(crate) fn is_before(&self, next: u8, scanner: &Scanner) -> bool {
        let is_reached = scanner.bytes() >= self.bytes && scanner.packets() >= self.packets;
        is_reached && self.spot.is_before(next, scanner)
    }
}

impl Spot {
    fn is_before(self, next: u8, scanner: &Scanner) -> bool {
        let depth = scanner.depth();
        match self {
            Self::Here => true,
            Self::Boundary => depth == 0,
            Self::Inside(bytes) => depth > 0 && (depth >= bytes || scanner.would_end(next)),
            // In UTF-8, 10xxxxxx always continues a character.
            Self::Character => next & 0b1100_0000 == 0b1000_0000,
        }
    }
}
