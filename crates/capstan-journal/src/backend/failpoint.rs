//! Points at which a test build dies on purpose: `CAPSTAN_FAILPOINT=after_append:5` aborts at the
//! fifth append. Without `--cfg failpoints` (`scripts/rustc-with-hooks`) a hit is nothing at all.

/// Where a process can be made to die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A new claim is stored, nobody was told.
    AfterClaim,
    /// A commit with frames is stored, nobody was told.
    AfterAppend,
    /// The caller knows that the frames are stored, readers do not.
    BeforeWake,
    /// A group is about to be written.
    BeforeWrite,
    /// A group is written, nobody was told.
    AfterWrite,
    /// Groups are on the disk, nobody was told.
    AfterSync,
    /// A full segment's footer is about to be written.
    BeforeSeal,
    /// It is written.
    AfterSeal,
    /// A cleaned segment is written and not yet in place.
    BeforeRename,
    /// It is in its place, and the old ones are not forgotten.
    AfterSwap,
    /// They are forgotten, and still there.
    BeforeUnlink,
    /// What was purged is overwritten, and that is not noted.
    AfterErase,
}

/// Aborts the process if this is the chosen point and the chosen hit.
#[cfg(failpoints)]
pub fn hit(point: Point) {
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
            "before_write" => Point::BeforeWrite,
            "after_write" => Point::AfterWrite,
            "after_sync" => Point::AfterSync,
            "before_seal" => Point::BeforeSeal,
            "after_seal" => Point::AfterSeal,
            "before_rename" => Point::BeforeRename,
            "after_swap" => Point::AfterSwap,
            "before_unlink" => Point::BeforeUnlink,
            "after_erase" => Point::AfterErase,
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
pub const fn hit(_: Point) {}
