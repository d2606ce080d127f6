//! The quota of a tenant. The store checks it within the claim, so that concurrent claims cannot
//! exceed it. All stores share this code.

use std::collections::HashMap;
use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use capstan_protocol::Timestamp;

use crate::{ErrorKind, JournalError, Over, Refused, Run, RunState, Tokens};

const MINUTE: Duration = Duration::from_secs(60);

/// Limits of a tenant. `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// New runs per minute: a burst of this many, then one at a time.
    pub per_minute: Option<NonZeroU32>,
    /// Concurrent runs.
    pub running: Option<u64>,
    /// Concurrently waiting runs; checked when a run begins to wait.
    pub waiting: Option<u64>,
    /// Sessions.
    pub sessions: Option<u64>,
    /// Turns of a session. Each open run counts as a future turn.
    pub messages_per_session: Option<u64>,
    /// Bytes of a session's turns, and of the bodies of its open runs.
    pub bytes_per_session: Option<u64>,
    /// Stored bytes of the tenant: packets, bodies, turns.
    pub bytes: Option<u64>,
    /// Tokens per minute. Running runs go on when they are used up.
    pub tokens_per_minute: Option<u64>,
    /// Tokens per day (UTC).
    pub tokens_per_day: Option<u64>,
}

/// The usage of a tenant, and of one of its sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Running runs.
    pub running: u64,
    /// Waiting runs.
    pub waiting: u64,
    /// Sessions.
    pub sessions: u64,
    /// Bytes of packets, bodies and turns.
    pub bytes: u64,
    /// Whether this session exists.
    pub has_session: bool,
    /// Turns of the session, plus its open runs.
    pub messages: u64,
    /// Bytes of the session's turns, and of the bodies of its open runs.
    pub session_bytes: u64,
    /// Used tokens.
    pub tokens: Tokens,
}

impl Quota {
    /// Checks whether tokens are left. If not, the refusal has the wait, by both limits.
    pub fn check_tokens(&self, used: &Tokens, now: Timestamp) -> Result<(), Refused> {
        used.check(self.tokens_per_minute, self.tokens_per_day, now)
    }
}

impl From<Refused> for JournalError {
    fn from(refused: Refused) -> Self {
        let message = match refused.over {
            Over::Rate => "runs are started too fast",
            Over::Running => "too many runs are under way",
            Over::Waiting => "too many runs wait",
            Over::Sessions => "there are too many sessions",
            Over::Messages => "the session has too many turns",
            Over::SessionBytes => "the session is too large",
            Over::Bytes => "the tenant has used up its storage",
            Over::TokensPerMinute => "the tokens of this minute are used up",
            Over::TokensPerDay => "the tokens of this day are used up",
        };
        Self::new(ErrorKind::Refused(refused), message)
    }
}

impl From<Over> for Refused {
    fn from(over: Over) -> Self {
        Self { over, wait: None }
    }
}

impl Quota {
    /// No limits.
    pub const UNLIMITED: Self = Self {
        per_minute: None,
        running: None,
        waiting: None,
        sessions: None,
        messages_per_session: None,
        bytes_per_session: None,
        bytes: None,
        tokens_per_minute: None,
        tokens_per_day: None,
    };

    /// Checks whether the quota allows another run with a body of this length. The rate is checked
    /// separately and last, because a refused claim must not count towards it.
    pub fn check(&self, used: &Usage, body_bytes: u64) -> Result<(), Refused> {
        let is_full = |used: u64, most: Option<u64>| most.is_some_and(|most| used >= most);
        let is_over = |used: u64, most: Option<u64>| {
            most.is_some_and(|most| used.saturating_add(body_bytes) > most)
        };
        let over = if is_full(used.messages, self.messages_per_session) {
            Over::Messages
        } else if is_over(used.session_bytes, self.bytes_per_session) {
            Over::SessionBytes
        } else if !used.has_session && is_full(used.sessions, self.sessions) {
            Over::Sessions
        } else if is_over(used.bytes, self.bytes) {
            Over::Bytes
        } else if is_full(used.running, self.running) {
            Over::Running
        } else {
            return Ok(());
        };
        Err(over.into())
    }

    /// Checks whether another run may wait.
    pub fn check_waiting(&self, waiting: u64) -> Result<(), Refused> {
        match self.waiting.is_some_and(|most| waiting >= most) {
            true => Err(Over::Waiting.into()),
            false => Ok(()),
        }
    }

    /// The quota that remains when the usage in another store is subtracted.
    #[must_use]
    pub(crate) fn less(self, elsewhere: &Usage, now: Timestamp) -> Self {
        let (minute, day) = elsewhere.tokens.used(now);
        let left = |most: Option<u64>, used: u64| most.map(|most| most.saturating_sub(used));
        Self {
            per_minute: self.per_minute,
            running: left(self.running, elsewhere.running),
            waiting: left(self.waiting, elsewhere.waiting),
            // A session that exists in the other store is not a new one.
            sessions: left(self.sessions, elsewhere.sessions).filter(|_| !elsewhere.has_session),
            messages_per_session: left(self.messages_per_session, elsewhere.messages),
            bytes_per_session: left(self.bytes_per_session, elsewhere.session_bytes),
            bytes: left(self.bytes, elsewhere.bytes),
            tokens_per_minute: left(self.tokens_per_minute, minute),
            tokens_per_day: left(self.tokens_per_day, day),
        }
    }
}

/// The rate of claims per tenant, by the GCRA algorithm: it stores the time at which the tenant's
/// claims would be used up at the allowed rate. It uses a monotonic clock and is not persistent.
#[derive(Debug)]
pub struct Rates<K> {
    until: HashMap<K, Instant>,
    /// At this size the map drops entries of the past, which have no effect any more.
    sweep_at: usize,
}

impl<K> Default for Rates<K> {
    fn default() -> Self {
        Self { until: HashMap::new(), sweep_at: 256 }
    }
}

impl<K: Eq + Hash> Rates<K> {
    /// Takes one claim, or returns how long to wait.
    pub fn take(&mut self, tenant: K, quota: &Quota, now: Instant) -> Result<(), Refused> {
        let Some(per_minute) = quota.per_minute else { return Ok(()) };
        let until =
            self.until.get(&tenant).copied().unwrap_or(now).max(now) + MINUTE / per_minute.get();
        if let Some(wait) =
            until.duration_since(now).checked_sub(MINUTE).filter(|wait| !wait.is_zero())
        {
            return Err(Refused { over: Over::Rate, wait: Some(wait) });
        }
        self.until.insert(tenant, until);
        if self.until.len() >= self.sweep_at {
            self.until.retain(|_, until| *until > now);
            self.sweep_at = self.until.len().saturating_mul(2).max(256);
        }
        Ok(())
    }
}

/// Counts open runs by tenant and session.
#[derive(Debug, Default)]
pub struct Tally(HashMap<String, TenantRuns>);

#[derive(Debug, Default)]
struct TenantRuns {
    running: u64,
    waiting: u64,
    sessions: HashMap<String, SessionRuns>,
}

#[derive(Debug, Default)]
struct SessionRuns {
    runs: u64,
    body_bytes: u64,
}

impl Tally {
    /// Counts an open run.
    pub fn add(&mut self, run: &Run, body_bytes: u64) {
        if !run.is_open() {
            return;
        }
        let tenant = self.0.entry(run.tenant.clone()).or_default();
        *tenant.count(run.state) += 1;
        let session = tenant.sessions.entry(run.session.clone()).or_default();
        session.runs += 1;
        session.body_bytes += body_bytes;
    }

    /// Removes a run that `add` has counted.
    pub fn remove(&mut self, run: &Run, body_bytes: u64) {
        let Some(tenant) = self.0.get_mut(&run.tenant).filter(|_| run.is_open()) else { return };
        let count = tenant.count(run.state);
        *count = count.saturating_sub(1);
        if let Some(session) = tenant.sessions.get_mut(&run.session) {
            session.runs = session.runs.saturating_sub(1);
            session.body_bytes = session.body_bytes.saturating_sub(body_bytes);
            if session.runs == 0 {
                tenant.sessions.remove(&run.session);
            }
        }
        if tenant.sessions.is_empty() {
            self.0.remove(&run.tenant);
        }
    }

    /// The open runs of a tenant and of a session.
    pub fn usage(&self, tenant: &str, session: &str) -> Usage {
        let Some(tenant) = self.0.get(tenant) else { return Usage::default() };
        let session = tenant.sessions.get(session);
        Usage {
            running: tenant.running,
            waiting: tenant.waiting,
            messages: session.map_or(0, |session| session.runs),
            session_bytes: session.map_or(0, |session| session.body_bytes),
            ..Usage::default()
        }
    }

    /// The number of a tenant's waiting runs.
    pub fn waiting(&self, tenant: &str) -> u64 {
        self.0.get(tenant).map_or(0, |tenant| tenant.waiting)
    }
}

impl TenantRuns {
    fn count(&mut self, state: RunState) -> &mut u64 {
        match state {
            RunState::Waiting => &mut self.waiting,
            RunState::Running | RunState::Closed => &mut self.running,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn per_minute(n: u32) -> Quota {
        Quota { per_minute: NonZeroU32::new(n), ..Quota::UNLIMITED }
    }

    #[test]
    fn rate_allows_a_minutes_burst_then_single_claims() {
        let (mut rates, quota, now) = (Rates::default(), per_minute(6), Instant::now());
        let mut take = |seconds: u64| rates.take("t", &quota, now + Duration::from_secs(seconds));
        assert!((0..6).all(|_| take(0).is_ok()));
        let wait =
            |seconds| Err(Refused { over: Over::Rate, wait: Some(Duration::from_secs(seconds)) });
        assert_eq!(take(0), wait(10));
        assert_eq!(take(7), wait(3), "a refusal costs nothing");
        assert_eq!((take(10), take(10)), (Ok(()), wait(10)));
        assert!(
            (0..6).all(|_| take(3600).is_ok()),
            "what was not used for long is one minute's at most"
        );
        assert_eq!(take(3600), wait(10));
    }

    #[test]
    fn rates_of_quiet_tenants_are_dropped() {
        let (mut rates, quota, now) = (Rates::default(), per_minute(60), Instant::now());
        for second in 0..10_000 {
            rates.take(second, &quota, now + Duration::from_secs(second)).unwrap();
        }
        assert!(rates.until.len() < 300, "{} of 10,000", rates.until.len());
    }

    #[test]
    fn usage_in_the_other_store_counts() {
        let quota =
            Quota { sessions: Some(3), bytes: Some(100), running: Some(1), ..Quota::UNLIMITED };
        let other = Usage { sessions: 2, bytes: 70, running: 2, ..Usage::default() };
        let now = Timestamp::now();
        let left = quota.less(&other, now);
        assert_eq!(
            (left.sessions, left.bytes, left.running, left.waiting),
            (Some(1), Some(30), Some(0), None)
        );
        assert_eq!(quota.less(&Usage { has_session: true, ..other }, now).sessions, None);
    }

    #[test]
    fn byte_quota_allows_the_last_byte() {
        let quota = Quota { bytes: Some(100), bytes_per_session: Some(50), ..Quota::UNLIMITED };
        let used = Usage { bytes: 60, session_bytes: 20, ..Usage::default() };
        assert_eq!(quota.check(&used, 30), Ok(()));
        assert_eq!(quota.check(&used, 31), Err(Over::SessionBytes.into()));
        let elsewhere = Usage { session_bytes: 0, ..used };
        assert_eq!(quota.check(&elsewhere, 41), Err(Over::Bytes.into()));
        assert_eq!(
            quota.check(&Usage { bytes: u64::MAX, ..elsewhere }, 1),
            Err(Over::Bytes.into())
        );
    }
}
