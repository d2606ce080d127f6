//! The latest refused requests. A refused request leaves no run, and its client has only its id.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use capstan_protocol::{Fault, FaultKind, Timestamp};
use serde_json::Value;

use super::answers::Refusal;

/// How many refusals are remembered.
const MOST: usize = 2000;
/// Longer than any path of a member in the protocols.
const LONGEST_PATH: usize = 100;

/// A refused request, without its body, key and query.
pub struct Refused {
    /// Its X-Request-ID.
    pub request_id: String,
    /// The tenant of the request, if it is known.
    pub tenant: Option<String>,
    /// The route's template, without the values of its parameters.
    pub route: Option<String>,
    /// The HTTP status.
    pub status: u16,
    /// How long it took.
    pub ms: u64,
    /// Whether it was a request of the console. Its refusals would hide those of clients.
    pub is_of_console: bool,
}

impl Refused {
    pub(super) fn into_refusal(self, fault: &Fault, at: Timestamp) -> Refusal {
        let entry = fault.kind().entry();
        Refusal {
            at,
            request_id: self.request_id,
            tenant: self.tenant,
            route: self.route.unwrap_or_default(),
            code: entry.code,
            title: entry.title,
            why: why(fault),
            status: self.status,
            retry_after: fault.retry_after(),
            ms: self.ms,
        }
    }
}

/// The member or limit that refused the request. Messages of other faults may quote what was sent,
/// so they are left out.
fn why(fault: &Fault) -> Option<String> {
    if fault.kind() == FaultKind::InvalidRequest {
        let path =
            fault.details().get("path").and_then(Value::as_str).filter(|path| is_member(path))?;
        return Some(format!("The member is {path}."));
    }
    LIMITS.contains(&fault.kind()).then(|| fault.message().to_owned())
}

const LIMITS: [FaultKind; 4] = [
    FaultKind::RateLimitExceeded,
    FaultKind::SessionLimitExceeded,
    FaultKind::MessageLimitExceeded,
    FaultKind::StorageLimitExceeded,
];

/// Whether this is the path of a known member, and not text of the client.
fn is_member(path: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.[]".contains(c);
    (1..=LONGEST_PATH).contains(&path.len()) && path.chars().all(is_name)
}

/// The latest refusals.
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

    /// The refusals that match, newest first, and since when refusals are remembered.
    pub(crate) fn find(
        &self,
        limit: usize,
        is_it: impl Fn(&Refusal) -> bool,
    ) -> (Vec<Refusal>, Option<Timestamp>) {
        let all = self.lock();
        let found =
            all.iter().rev().filter(|refusal| is_it(refusal)).take(limit).cloned().collect();
        // Until the list is full, nothing is forgotten.
        let back_to = all.front().filter(|_| all.len() >= MOST).map(|oldest| oldest.at);
        (found, back_to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_no_more() {
        let refusals = Refusals::default();
        let fault = Fault::new(FaultKind::RateLimitExceeded);
        for n in 0..MOST + 5 {
            let (request_id, is_of_console) = (n.to_string(), false);
            let refused = Refused {
                request_id,
                tenant: None,
                route: None,
                status: 429,
                ms: 1,
                is_of_console,
            };
            refusals.add(refused.into_refusal(&fault, Timestamp::from_micros(n as i64)));
        }
        let find = |id: &str| refusals.find(9, |refusal| refusal.request_id == id).0.len();
        assert_eq!((find("4"), find("5"), find("2004")), (0, 1, 1));
        assert_eq!(refusals.find(9, |_| true).1, Some(Timestamp::from_micros(5)));
        assert_eq!(refusals.lock().len(), MOST);
    }

    #[test]
    fn a_refusal_names_the_member_or_limit_and_no_content() {
        let wrong = |path: &str| {
            why(&Fault::new(FaultKind::InvalidRequest)
                .with_message("\"secret\" is none")
                .with_detail("path", path))
        };
        assert_eq!(wrong("messages[0].role").unwrap(), "The member is messages[0].role.");
        assert_eq!(
            (wrong("what she said"), wrong(""), wrong(&"a".repeat(101))),
            (None, None, None)
        );
        let full = Fault::new(FaultKind::SessionLimitExceeded)
            .with_message("Too many runs are under way.");
        assert_eq!(why(&full).unwrap(), "Too many runs are under way.");
        assert_eq!(why(&Fault::new(FaultKind::RouteNotFound).with_message("no secret")), None);
    }
}
