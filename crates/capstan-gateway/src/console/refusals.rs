//! The latest requests that were refused: they leave no run behind, and whoever was refused has nothing but an id.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use capstan_protocol::{Fault, Timestamp};

use super::answers::Refusal;

/// How many are remembered.
const MOST: usize = 2000;

/// A request that was refused. Nothing of what it sent: no body, no key, no query.
pub(crate) struct Refused {
    pub(crate) request_id: String,
    pub(crate) tenant: Option<String>,
    /// The route as it is written down, without what stood in its braces.
    pub(crate) route: Option<String>,
    pub(crate) status: u16,
    pub(crate) ms: u64,
}

impl Refused {
    pub(super) fn told(self, fault: &Fault, at: Timestamp) -> Refusal {
        let entry = fault.kind().entry();
        Refusal {
            at,
            request_id: self.request_id,
            tenant: self.tenant,
            route: self.route.unwrap_or_default(),
            code: entry.code,
            title: entry.title,
            status: self.status,
            ms: self.ms,
        }
    }
}

/// The latest of them.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<VecDeque<Refusal>>);

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, refusal: Refusal) {
        let mut all = self.lock();
        if all.len() >= MOST {
            all.pop_front();
        }
        all.push_back(refusal);
    }

    /// Those that match, the newest first, and how far back they are remembered.
    pub(crate) fn find(
        &self,
        limit: usize,
        is_it: impl Fn(&Refusal) -> bool,
    ) -> (Vec<Refusal>, Option<Timestamp>) {
        let all = self.lock();
        let found = all.iter().rev().filter(|refusal| is_it(refusal)).take(limit).cloned().collect();
        // Before it was full nothing was forgotten.
        let back_to = all.front().filter(|_| all.len() >= MOST).map(|oldest| oldest.at);
        (found, back_to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capstan_protocol::FaultKind;

    #[test]
    fn the_latest_are_remembered_and_no_more() {
        let refusals = Refusals::default();
        let fault = Fault::new(FaultKind::RateLimitExceeded);
        for n in 0..MOST + 5 {
            let refused =
                Refused { request_id: n.to_string(), tenant: None, route: None, status: 429, ms: 1 };
            refusals.add(refused.told(&fault, Timestamp::from_micros(n as i64)));
        }
        let find = |id: &str| refusals.find(9, |refusal| refusal.request_id == id).0.len();
        assert_eq!((find("4"), find("5"), find("2004")), (0, 1, 1));
        assert_eq!(refusals.find(9, |_| true).1, Some(Timestamp::from_micros(5)));
        assert_eq!(refusals.lock().len(), MOST);
    }
}
