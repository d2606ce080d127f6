//! Compressed bodies without a compressor: both formats allow uncompressed blocks.

/// The encoding of a body.
#[derive(Debug, Clone)]
pub(crate) enum Packing {
    Plain,
    Gzip { crc: u32, len: u32 },
    Zstd,
}

/// The largest stored block in either format.
const BLOCK: usize = 0xFFFF;

impl Packing {
    pub(crate) fn gzip() -> Self {
        Self::Gzip { crc: u32::MAX, len: 0 }
    }

    /// The value of `content-encoding`.
    pub(crate) fn name(&self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Gzip { .. } => Some("gzip"),
            Self::Zstd => Some("zstd"),
        }
    }

    /// The bytes before the first block.
    pub(crate) fn head(&self) -> &'static [u8] {
        match self {
            Self::Plain => b"",
            Self::Gzip { .. } => b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
            // The magic number, no options, a window of 1 MiB.
            Self::Zstd => b"\x28\xb5\x2f\xfd\x00\x50",
        }
    }

    pub(crate) fn pack(&mut self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Plain => bytes.to_vec(),
            Self::Gzip { crc, len } => {
                *crc = crc32(*crc, bytes);
                *len = len.wrapping_add(u32::try_from(bytes.len()).unwrap_or_default());
                bytes.chunks(BLOCK).flat_map(|part| stored(part, false)).collect()
            }
            Self::Zstd => bytes.chunks(BLOCK).flat_map(raw).collect(),
        }
    }

    /// The last block, and the sum.
    pub(crate) fn tail(&self) -> Vec<u8> {
        match self {
            Self::Plain => Vec::new(),
            Self::Gzip { crc, len } => {
                [stored(&[], true), (!crc).to_le_bytes().to_vec(), len.to_le_bytes().to_vec()]
                    .concat()
            }
            Self::Zstd => vec![1, 0, 0],
        }
    }
}

/// A stored block of deflate: whether it is the last, its length, the same inverted, the bytes.
fn stored(part: &[u8], is_last: bool) -> Vec<u8> {
    let len = u16::try_from(part.len()).unwrap_or_default();
    [&[u8::from(is_last)][..], &len.to_le_bytes(), &(!len).to_le_bytes(), part].concat()
}

/// A raw block of zstd: three bytes of length, kind and end, then the bytes.
fn raw(part: &[u8]) -> Vec<u8> {
    let head = (u32::try_from(part.len()).unwrap_or_default() << 3).to_le_bytes();
    [head.get(..3).unwrap_or_default(), part].concat()
}

fn crc32(mut crc: u32, bytes: &[u8]) -> u32 {
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Decompresses with the system's own tool.
    fn unpack(mut packing: Packing, program: &str) -> Option<Vec<u8>> {
        let mut bytes = packing.head().to_vec();
        bytes.extend(packing.pack(b"one "));
        bytes.extend(packing.pack(b"two"));
        bytes.extend(packing.tail());
        let (input, output) = (Stdio::piped(), Stdio::piped());
        let mut child =
            Command::new(program).arg("-dc").stdin(input).stdout(output).spawn().ok()?;
        child.stdin.take().unwrap().write_all(&bytes).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{program}");
        Some(output.stdout)
    }

    #[test]
    fn packed_bodies_can_be_unpacked() {
        assert_eq!(unpack(Packing::gzip(), "gzip").unwrap(), b"one two");
        // Not every machine has the tool.
        assert!(unpack(Packing::Zstd, "zstd").is_none_or(|bytes| bytes == b"one two"));
    }
}
