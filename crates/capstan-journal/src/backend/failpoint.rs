//! Points at which a debug build dies on purpose: `CAPSTAN_FAILPOINT=after_append:5` aborts at the
//! fifth append. An optimised build has none of this: there a hit is nothing at all.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

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
#[inline]
pub fn hit(point: Point) {
    static HITS: AtomicU64 = AtomicU64::new(0);
    if let Some((at, hits)) = chosen()
        && at == point
        && HITS.fetch_add(1, Ordering::SeqCst) + 1 == hits
    {
        std::process::abort();
    }
}

/// Whether this process is to die at some point.
#[inline]
pub fn is_chosen() -> bool {
    chosen().is_some()
}

#[inline]
fn chosen() -> Option<(Point, u64)> {
    static CHOSEN: OnceLock<Option<(Point, u64)>> = OnceLock::new();
    if !cfg!(debug_assertions) {
        return None;
    }
    *CHOSEN.get_or_init(|| {
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
    })
}
