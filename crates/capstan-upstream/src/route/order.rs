//! The order in which one attempt of a run calls the members.
//!
//! It depends on the run only, so that a restart does not change it. The run's id selects among
//! weighted members. The run's record has the members that failed before.

use capstan_agent::{BreakerState, Turn};
use capstan_protocol::FaultKind;
use tokio::time::Instant;
use uuid::Uuid;

use super::config::When;
use super::passes::is_stall;
use super::{Member, Route};
use crate::seam::prefill_of;

impl Route {
    /// The members to call, by their indices, best first.
    pub(super) fn order(&self, turn: &Turn, now: Instant) -> Vec<usize> {
        let is_too_long = turn.made.members.iter().any(|made| {
            made.fault.as_deref() == Some(FaultKind::ContextLengthExceeded.entry().code)
        });
        let wanted = if is_too_long { Some(When::Context) } else { None };
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.retain(|at| self.members.get(*at).is_some_and(|member| member.when == wanted));
        if let Some(first) = self.drawn(&order, turn.run) {
            order.retain(|at| *at != first);
            order.insert(0, first);
        }
        order.sort_by_key(|at| self.members.get(*at).map(|member| self.rank(member, turn, now)));
        order
    }

    /// The member that the run's id selects among those with a weight.
    fn drawn(&self, order: &[usize], run: Uuid) -> Option<usize> {
        let weights: Vec<(usize, f64)> =
            order.iter().filter_map(|at| Some((*at, self.members.get(*at)?.weight?))).collect();
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let mut left = draw(run) * total;
        weights
            .iter()
            .find(|(_, weight)| {
                left -= weight;
                left < 0.0
            })
            .or(weights.last())
            .map(|(at, _)| *at)
    }

    /// The rank of a member; smaller is better. Best is a member that can continue what viewers
    /// have seen. Members that failed in this run come later, and those whose breaker is open come
    /// last.
    fn rank(&self, member: &Member, turn: &Turn, now: Instant) -> u8 {
        if self.breaker.state(&member.name, now) == BreakerState::Open {
            return 4;
        }
        let made = turn.made.members.iter().rev().find(|made| *made.name == *member.name);
        let goes_on = turn.sent.can_continue
            && prefill_of(&turn.sent.text).is_some()
            && member.takes_prefill();
        match made.map(|made| made.fault.as_deref()) {
            None if goes_on => 0,
            Some(fault) if goes_on && !fault.is_some_and(is_stall) => 1,
            None => 2,
            Some(_) => 3,
        }
    }
}

/// A number from 0 to 1, derived from the run's id.
fn draw(run: Uuid) -> f64 {
    // The finaliser of splitmix64, over the random half of the id.
    let mut bits = run.as_u64_pair().1;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    #[allow(clippy::cast_precision_loss)]
    let share = (bits >> 11) as f64 / (1_u64 << 53) as f64;
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_spread_evenly() {
        let below = |limit: f64| (0..10_000).filter(|_| draw(Uuid::now_v7()) < limit).count();
        for (limit, expected) in [(0.1, 1_000), (0.5, 5_000), (0.9, 9_000)] {
            let found = below(limit);
            assert!(found.abs_diff(expected) < 300, "{found} of {expected}");
        }
        let run = Uuid::now_v7();
        assert!((draw(run) - draw(run)).abs() < f64::EPSILON);
    }
}
