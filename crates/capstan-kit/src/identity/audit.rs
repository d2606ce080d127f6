//! The audit: log lines, under a target of their own, about who did or tried what. No line contains
//! a key or content.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use capstan_engine::ports::{Act, Requester};
use capstan_protocol::Fault;
use http::Method;
use uuid::Uuid;

use crate::identity::caller::Caller;
use crate::identity::operators::Operator;
use crate::identity::tenants::KeyHash;

/// The target of the audit's log lines.
pub const AUDIT: &str = "audit";

/// How many refusals get a line within a second. Anybody can cause refusals, and must not be able
/// to fill the disk.
const REFUSALS_PER_SECOND: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);
/// How many characters of a path a line contains. Anybody may send any path.
const LONGEST_PATH: usize = 256;

/// Who did something: a tenant's key, an operator's key, or an unknown key.
#[derive(Debug, Clone, Default)]
pub struct Actor {
    tenant: String,
    key: String,
    operator: String,
}

impl Actor {
    /// A caller with an unknown key, or without one.
    pub fn unknown(presented: Option<&str>) -> Self {
        let key = presented.map(|key| log_id_of(&KeyHash::of(key))).unwrap_or_default();
        Self { key, ..Self::default() }
    }

    /// An operator, with the key that it used.
    pub fn operator(operator: &Operator) -> Self {
        let key = operator.keys.first().map(log_id_of).unwrap_or_default();
        Self { operator: operator.name.clone(), key, ..Self::default() }
    }
}

impl From<&Caller> for Actor {
    fn from(caller: &Caller) -> Self {
        Self { tenant: caller.tenant.clone(), key: caller.log_id.clone(), operator: String::new() }
    }
}

/// The name of a key in logs: a part of its hash that is too short to find the key.
pub fn log_id_of(key: &KeyHash) -> String {
    key.to_hex().chars().take(8).collect()
}

/// Writes the audit lines.
#[derive(Default)]
pub struct Audit(Mutex<RefusalCount>);

/// How many refusals this second has had.
#[derive(Default)]
struct RefusalCount {
    since: Option<Instant>,
    count: u32,
    suppressed: u64,
}

impl RefusalCount {
    /// Counts a refusal. Returns whether it gets a line, and how many before it got none.
    fn add(&mut self, now: Instant) -> (bool, u64) {
        let is_over = self.since.is_none_or(|since| now.saturating_duration_since(since) >= SECOND);
        let suppressed = if is_over { std::mem::take(&mut self.suppressed) } else { 0 };
        if is_over {
            (self.since, self.count) = (Some(now), 0);
        }
        let has_line = self.count < REFUSALS_PER_SECOND;
        self.count += u32::from(has_line);
        self.suppressed += u64::from(!has_line);
        (has_line, suppressed)
    }
}

impl Audit {
    /// Records a request that was refused because of its key or token.
    pub fn refused(&self, actor: Actor, fault: &Fault, method: &Method, path: &str) {
        let (has_line, untold) =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).add(Instant::now());
        if untold > 0 {
            tracing::info!(target: AUDIT, untold, "further refusals were only counted");
        }
        if has_line {
            let path: String = path.chars().take(LONGEST_PATH).collect();
            let (code, Actor { tenant, key, operator }) = (fault.code(), actor);
            tracing::info!(target: AUDIT, tenant, key, operator, %method, path, code,
            "refused by credentials");
        }
    }

    /// Records that an operator has read content in the console. The line does not contain the
    /// name of a session, because a client has chosen it.
    pub fn console_looked(&self, actor: &Actor, what: &str, owner: &str, stream: Option<Uuid>) {
        let Actor { tenant, key, operator } = actor;
        let stream = stream.map(tracing::field::display);
        tracing::info!(target: AUDIT, tenant, key, operator, owner, stream, what, "console looked");
    }

    /// Records an act in the console. The line contains the name of an erased session, because
    /// nothing else identifies it.
    pub fn console_did(&self, actor: &Actor, what: &str, act: &Act<'_>) {
        let Actor { tenant, key, operator } = actor;
        let (owner, stream, session) = match act {
            Act::Stopped(run) | Act::PurgedStream(run) => (&*run.tenant, Some(run.stream_id), None),
            Act::PurgedSession { tenant, session, .. } => (*tenant, None, Some(*session)),
        };
        let stream = stream.map(tracing::field::display);
        tracing::info!(target: AUDIT, tenant, key, operator, owner, stream, session, what,
        "console did");
    }
}

/// Records each purge of a caller, and each stop of a run that another key started.
impl Requester for Caller {
    fn acted(&self, act: &Act<'_>) {
        let Actor { tenant, key, operator } = &Actor::from(self);
        let (run, message) = match act {
            Act::Stopped(run) if run.started_by.as_ref().is_some_and(|starter| starter != key) => {
                (run, "stopped a run that another key started")
            }
            Act::Stopped(_) => return,
            Act::PurgedStream(run) => (run, "purged a stream"),
            // The line does not contain the session's name, because a client has chosen it.
            Act::PurgedSession { streams, .. } => {
                tracing::info!(target: AUDIT, tenant, key, operator, streams, "purged a session");
                return;
            }
        };
        let (owner, stream) = (&*run.tenant, run.stream_id);
        tracing::info!(target: AUDIT, tenant, key, operator, owner, %stream, "{message}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_counted() {
        let (mut refusals, start) = (RefusalCount::default(), Instant::now());
        let lines = |all: &mut RefusalCount, at| (0..250).filter(|_| all.add(at).0).count();
        assert_eq!(lines(&mut refusals, start), 100);
        assert_eq!(refusals.add(start + SECOND / 2), (false, 0));
        assert_eq!(refusals.add(start + SECOND), (true, 151));
        assert_eq!(refusals.add(start + SECOND), (true, 0), "the number is reported once");
    }

    #[test]
    fn a_log_id_is_a_short_part_of_the_keys_hash() {
        let actor = Actor::unknown(Some("sk_secret"));
        assert!(actor.key.len() == 8 && KeyHash::of("sk_secret").to_hex().starts_with(&actor.key));
        assert_eq!(Actor::unknown(None).key, "");
    }
}
