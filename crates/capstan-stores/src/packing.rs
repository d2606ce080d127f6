//! Compression (LZ4). The packets of a stream differ only in their text: some dozens of them shrink
//! to a ninth, at several bytes per nanosecond.

/// The fewest bytes that are worth compressing.
pub(crate) const LEAST: usize = 512;
/// The most bytes that one byte of LZ4 can decode to.
const MOST_OF_A_BYTE: usize = 255;

/// Compresses bytes; `None` if that makes them no shorter.
pub(crate) fn pack(plain: &[u8]) -> Option<Vec<u8>> {
    let is_worth_it = plain.len() >= LEAST;
    is_worth_it
        .then(|| lz4_flex::block::compress(plain))
        .filter(|packed| packed.len() < plain.len())
}

/// Decompresses bytes to this size; `None` if they do not have it.
pub(crate) fn unpack(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    // Check this before the memory is allocated.
    let can_be = size / MOST_OF_A_BYTE <= packed.len();
    let plain = can_be.then(|| lz4_flex::block::decompress(packed, size).ok())??;
    (plain.len() == size).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_text_round_trips_and_wrong_sizes_fail() {
        let plain = b"data: {\"op\":\"DELTA\"}\n\n".repeat(50);
        let packed = pack(&plain).unwrap();
        assert!(packed.len() * 10 < plain.len());
        assert_eq!(unpack(&packed, plain.len()).as_ref(), Some(&plain));
        for size in [0, plain.len() - 1, plain.len() + 1, usize::MAX] {
            assert_eq!(unpack(&packed, size), None, "{size}");
        }
        for length in 0..packed.len() {
            assert_eq!(unpack(&packed[..length], plain.len()), None, "{length} bytes of it");
        }
    }

    #[test]
    fn short_or_incompressible_text_is_not_compressed() {
        assert_eq!(pack(&[b'x'; LEAST - 1]), None);
        let next =
            |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let noise: Vec<u8> = std::iter::successors(Some(7_u64), next)
            .map(|state| (state >> 56) as u8)
            .take(5000)
            .collect();
        assert_eq!(pack(&noise), None);
    }
}
