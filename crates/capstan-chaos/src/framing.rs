//! Where a body ends: reads chunked, counted and open-ended bodies, and frames chunks of our own.
//! No I/O.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::head::Response;

/// A chunk's size with its extensions, or a trailer, may be this long.
const LINE_LIMIT: usize = 8 * 1024;

/// The end of a chunked body without trailers.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// The end of a chunk.
pub(crate) const CHUNK_END: &[u8] = b"\r\n";

/// The start of a chunk of this length.
pub(crate) fn chunk_start(length: usize) -> Vec<u8> {
    format!("{length:x}\r\n").into_bytes()
}

/// A body being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Chunked(Chunk),
    /// The remaining bytes.
    Length(u64),
    /// To the end of the connection.
    Open,
}

/// The position of the next byte in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunk {
    Size,
    /// The remaining bytes of the chunk.
    Data(u64),
    /// The line end behind the data.
    End,
    Trailers,
    Done,
}

/// The next piece of the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Data(Bytes),
    /// Nothing without more bytes.
    More,
    /// The body is complete.
    End,
}

/// A body with malformed HTTP framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed chunked encoding")]
pub(crate) struct Malformed;

impl Framing {
    pub(crate) fn of(response: &Response, answers_head: bool) -> Self {
        if answers_head || matches!(response.line.status, 204 | 304) {
            Self::Length(0)
        } else if response.is_chunked() {
            Self::Chunked(Chunk::Size)
        } else {
            response.content_length().map_or(Self::Open, Self::Length)
        }
    }

    /// Whether the body would be complete if the connection ended here.
    pub(crate) fn may_end(self) -> bool {
        matches!(self, Self::Open | Self::Length(0) | Self::Chunked(Chunk::Done))
    }

    /// Takes the next piece off the buffer.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, Malformed> {
        match self {
            Self::Length(0) => Ok(Piece::End),
            Self::Length(left) => Ok(take(left, buffer)),
            Self::Open if buffer.is_empty() => Ok(Piece::More),
            Self::Open => Ok(Piece::Data(buffer.split().freeze())),
            Self::Chunked(chunk) => chunk.next(buffer),
        }
    }
}

impl Chunk {
    fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, Malformed> {
        loop {
            *self = match self {
                Self::Data(0) => Self::End,
                Self::Data(left) => return Ok(take(left, buffer)),
                Self::Done => return Ok(Piece::End),
                Self::Size | Self::End | Self::Trailers => {
                    let Some(line) = take_line(buffer)? else { return Ok(Piece::More) };
                    self.after_line(&line)?
                }
            }
        }
    }

    fn after_line(self, line: &[u8]) -> Result<Self, Malformed> {
        match self {
            Self::Size => match parse_size(line)? {
                0 => Ok(Self::Trailers),
                size => Ok(Self::Data(size)),
            },
            Self::End if line.is_empty() => Ok(Self::Size),
            Self::Trailers if line.is_empty() => Ok(Self::Done),
            Self::Trailers => Ok(Self::Trailers),
            Self::End | Self::Data(_) | Self::Done => Err(Malformed),
        }
    }
}

fn take(left: &mut u64, buffer: &mut BytesMut) -> Piece {
    if buffer.is_empty() {
        return Piece::More;
    }
    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
    *left -= length as u64;
    Piece::Data(buffer.split_to(length).freeze())
}

/// A complete line, without its end.
fn take_line(buffer: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
    let Some(end) = buffer.iter().take(LINE_LIMIT).position(|byte| *byte == b'\n') else {
        return if buffer.len() < LINE_LIMIT { Ok(None) } else { Err(Malformed) };
    };
    let line = buffer.split_to(end).freeze();
    buffer.advance(1);
    Ok(Some(line.strip_suffix(b"\r").map_or(line.clone(), |rest| line.slice_ref(rest))))
}

fn parse_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    // `from_str_radix` alone would take a plus sign.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(Malformed);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    u64::from_str_radix(digits, 16).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The body's data and whether it ended, fed in pieces.
    fn read(mut framing: Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, bool), Malformed> {
        let (mut buffer, mut data) = (BytesMut::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            loop {
                match framing.next(&mut buffer)? {
                    Piece::Data(bytes) => data.extend_from_slice(&bytes),
                    Piece::More => break,
                    Piece::End => return Ok((data, true)),
                }
            }
        }
        Ok((data, false))
    }

    const CHUNKED: Framing = Framing::Chunked(Chunk::Size);

    #[test]
    fn chunks_with_extensions_and_trailers_are_read() {
        let body: &[u8] = b"3;a=b\r\nabc\r\n0A \r\n0123456789\r\n0\r\nx: y\r\n\r\nrest";
        assert_eq!(read(CHUNKED, &[body]), Ok((b"abc0123456789".to_vec(), true)));
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for body in ["x\r\n", "+1\r\na", "\r\n", "-1\r\n", "1\r\nab\r\n", "fffffffffffffffff\r\n"] {
            assert_eq!(read(CHUNKED, &[body.as_bytes()]), Err(Malformed), "{body:?}");
        }
        assert_eq!(read(CHUNKED, &[&[b'1'; LINE_LIMIT]]), Err(Malformed));
    }

    #[test]
    fn a_counted_body_ends_at_its_length_and_an_open_one_never() {
        assert_eq!(read(Framing::Length(3), &[b"ab", b"cd"]), Ok((b"abc".to_vec(), true)));
        assert_eq!(read(Framing::Open, &[b"ab", b"cd"]), Ok((b"abcd".to_vec(), false)));
        assert!(Framing::Open.may_end() && !Framing::Length(1).may_end() && !CHUNKED.may_end());
    }

    proptest! {
        #[test]
        fn any_split_of_the_bytes_gives_the_same_data(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend(chunk_start(chunk.len()));
                body.extend(chunk);
                body.extend(CHUNK_END);
            }
            body.extend(LAST_CHUNK);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len())).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(CHUNKED, &pieces), Ok((chunks.concat(), true)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(CHUNKED, &[&bytes]);
        }
    }
}
