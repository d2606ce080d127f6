//! Measures how long commits take: one counter per commit, in buckets of powers of two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const BUCKETS: usize = 32;

/// The commits of the last seconds.
#[derive(Default)]
pub(crate) struct Appends {
    present: [AtomicU64; BUCKETS],
    last: Mutex<[u64; BUCKETS]>,
}

impl Appends {
    pub(crate) fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = (u64::BITS - micros.leading_zeros()) as usize;
        if let Some(bucket) = self.present.get(at.min(BUCKETS - 1)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Call this every few seconds. It drops what was counted before the last call.
    pub(crate) fn turn(&self) {
        let counted = std::array::from_fn(|at| {
            self.present.get(at).map_or(0, |b| b.swap(0, Ordering::Relaxed))
        });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = counted;
    }

    /// The 95th percentile; nothing without a commit.
    pub(crate) fn p95(&self) -> Option<Duration> {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.present.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        let counts: Vec<u64> = present.zip(last).map(|(a, b)| a + b).collect();
        let total: u64 = counts.iter().sum();
        let (wanted, mut sum) = (total.saturating_mul(95).div_ceil(100), 0);
        let at = counts.iter().position(|count| {
            sum += count;
            sum >= wanted
        })?;
        (total > 0).then(|| Duration::from_micros(1 << at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_percentile_is_reported_until_it_is_old() {
        let appends = Appends::default();
        assert_eq!(appends.p95(), None);
        for n in 0..100 {
            appends.observe(if n < 96 {
                Duration::from_micros(900)
            } else {
                Duration::from_secs(9)
            });
        }
        assert_eq!(appends.p95(), Some(Duration::from_micros(1024)));
        appends.turn();
        assert_eq!(appends.p95(), Some(Duration::from_micros(1024)));
        appends.turn();
        assert_eq!(appends.p95(), None);
    }
}
