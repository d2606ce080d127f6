//! Points at which a test build dies on purpose: `CAPSTAN_FAILPOINT=after_append:5` aborts at the fifth append.
//! Without `--cfg failpoints` (`scripts/rustc-with-hooks`) a hit is nothing at all.

/// Where a process can be made to die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// A new claim is stored, nobody was told.
    AfterClaim,
    /// A commit with frames is stored, nobody was told.
    AfterAppend,
    /// The caller knows that the frames are stored, readers do not.
    BeforeWake,
}

/// Aborts the process if this is the chosen point and the chosen hit.
#[cfg(failpoints)]
pub(crate) fn hit(point: Point) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static CHOSEN: OnceLock<Option<(Point, u64)>> = OnceLock::new();
    static HITS: AtomicU64 = AtomicU64::new(0);
    let chosen = CHOSEN.get_or_init(|| {
        let text = std::env::var("CAPSTAN_FAILPOINT").ok()?;
        let (name, hits) = text.split_once(':').unwrap_or((&text, "1"));
        let point = match name {
            "after_claim" => Point::AfterClaim,
            "after_append" => Point::AfterAppend,
            "before_wake" => Point::BeforeWake,
            _ => return None,
        };
        Some((point, hits.parse().ok()?))
    });
    if let Some((at, hits)) = *chosen
        && at == point
        && HITS.fetch_add(1, Ordering::SeqCst) + 1 == hits
    {
        std::process::abort();
    }
}

/// Nothing, in this build.
#[cfg(not(failpoints))]
#[inline(always)]
pub(crate) const fn hit(_: Point) {}
