//! Points at which a debug build aborts on purpose: `CAPSTAN_FAILPOINT=after_append:5` aborts at
//! the fifth append. In a release build `hit` does nothing.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A point at which a process can be made to abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// A new claim is stored, and its caller does not know yet.
    AfterClaim,
    /// A commit with frames is stored, and its caller does not know yet.
    AfterAppend,
    /// The caller knows that the frames are stored, but readers do not.
    BeforeWake,
    /// Before a group is written.
    BeforeWrite,
    /// A group is written, and its callers do not know yet.
    AfterWrite,
    /// Groups are synced, and their callers do not know yet.
    AfterSync,
    /// Before the footer of a full segment is written.
    BeforeSeal,
    /// The footer is written.
    AfterSeal,
    /// A compacted segment is written, but not yet renamed into place.
    BeforeRename,
    /// The compacted segment is in place, and the index still refers to the old ones.
    AfterSwap,
    /// The index no longer refers to the old segments, and their files still exist.
    BeforeUnlink,
    /// Purged data is overwritten, and this is not recorded yet.
    AfterErase,
}

/// Aborts the process at the chosen hit of the chosen point.
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

/// Whether this process has a failpoint.
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
