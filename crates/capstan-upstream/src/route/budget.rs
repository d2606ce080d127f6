//! The retry budget: of each member, only a share of its calls may be repetitions, so that an
//! outage does not multiply its load. A first call of a run adds to it; one more of the same run,
//! and one beside another, takes from it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a member has before anything was called: little traffic may be repeated all the same.
const FLOOR: f64 = 10.0;
/// More is not saved up.
const MOST: f64 = 100.0;

pub(crate) struct RetryBudget {
    share: f64,
    left: Mutex<HashMap<String, f64>>,
}

impl RetryBudget {
    pub(crate) fn new(share: f64) -> Self {
        Self { share, left: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, f64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run calls the member for the first time.
    pub(crate) fn earn(&self, member: &str) {
        let mut all = self.lock();
        let left = all.entry(member.to_owned()).or_insert(FLOOR);
        *left = (*left + self.share).min(MOST);
    }

    /// Whether it may be called once more than a run needs.
    pub(crate) fn spend(&self, member: &str) -> bool {
        let mut all = self.lock();
        let left = all.entry(member.to_owned()).or_insert(FLOOR);
        let may = *left >= 1.0;
        if may {
            *left -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_a_share_of_first_calls() {
        let budget = RetryBudget::new(0.25);
        let spent = (0..100).filter(|_| budget.spend("a")).count();
        assert_eq!(spent, 10, "the floor");
        (0..40).for_each(|_| budget.earn("a"));
        assert_eq!((0..100).filter(|_| budget.spend("a")).count(), 10, "a quarter of forty");
        assert!(budget.spend("b"), "each member has its own");
    }
}
