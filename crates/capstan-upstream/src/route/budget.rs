//! The retry budget: only a share of each member's calls may be repeats, so that an outage does not
//! multiply its load. The first call of a run adds to the budget. Each further call of the run, and
//! each parallel call, takes from it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The initial budget, so that repeats are possible at low traffic.
const FLOOR: f64 = 10.0;
/// The largest budget.
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

    /// Records the first call that a run makes to the member.
    pub(crate) fn earn(&self, member: &str) {
        let mut all = self.lock();
        let left = all.entry(member.to_owned()).or_insert(FLOOR);
        *left = (*left + self.share).min(MOST);
    }

    /// Takes one repeat from the budget. Returns false if the budget does not allow it.
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
