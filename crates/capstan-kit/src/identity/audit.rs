//! The audit: who did, or tried, what. Lines of the log under their own target; never a key, never
//! what was said.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use capstan_journal::Run;
use capstan_protocol::Fault;
use http::Method;
use uuid::Uuid;

use crate::identity::caller::Caller;
use crate::identity::operators::Operator;
use crate::identity::tenants::KeyHash;

/// The target of its lines.
pub const AUDIT: &str = "audit";

/// Refusals that are told one by one in a second: anybody can cause them, and must not fill a disk.
const TOLD: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);
/// A path is a stranger's word.
const LONGEST_PATH: usize = 256;

/// Whose doing it is.
#[derive(Debug, Clone, Default)]
pub struct Actor {
    tenant: String,
    key: String,
    operator: String,
}

impl Actor {
    /// Nobody known, by what was shown.
    pub fn unknown(presented: Option<&str>) -> Self {
        let key = presented.map(|key| log_id_of(&KeyHash::of(key))).unwrap_or_default();
        Self { key, ..Self::default() }
    }

    /// An operator, by the key that it showed.
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

/// By what a key is known in logs: too little of its hash to look for the key with.
pub fn log_id_of(key: &KeyHash) -> String {
    key.to_hex().chars().take(8).collect()
}

/// What of a run was done or looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Stopped,
    PurgedStream,
    PurgedSession,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stopped => "stopped a run that another key started",
            Self::PurgedStream => "purged a stream",
            Self::PurgedSession => "purged a session",
        })
    }
}

/// To what it was done.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    Stream(Uuid),
    Session(&'a str),
}

/// Writes the lines.
#[derive(Default)]
pub struct Audit(Mutex<Told>);

/// What was told in this second, and what was not.
#[derive(Default)]
struct Told {
    since: Option<Instant>,
    count: u32,
    untold: u64,
}

impl Told {
    /// Whether one more may be told, and how many were not told before it.
    fn take(&mut self, now: Instant) -> (bool, u64) {
        let is_over = self.since.is_none_or(|since| now.saturating_duration_since(since) >= SECOND);
        let untold = if is_over { std::mem::take(&mut self.untold) } else { 0 };
        if is_over {
            (self.since, self.count) = (Some(now), 0);
        }
        let is_told = self.count < TOLD;
        self.count += u32::from(is_told);
        self.untold += u64::from(!is_told);
        (is_told, untold)
    }
}

impl Audit {
    /// Somebody was refused for what they showed, or for what it allows.
    pub fn refused(&self, actor: Actor, fault: &Fault, method: &Method, path: &str) {
        let (is_told, untold) =
            self.0.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        if untold > 0 {
            tracing::info!(target: AUDIT, untold, "more refusals than are told one by one");
        }
        if is_told {
            let path: String = path.chars().take(LONGEST_PATH).collect();
            let (code, Actor { tenant, key, operator }) = (fault.code(), actor);
            tracing::info!(target: AUDIT, tenant, key, operator, %method, path, code,
            "refused by credentials");
        }
    }

    /// Somebody did something to a stream.
    pub fn did(&self, actor: &Actor, action: Action, owner: &str, stream: Uuid) {
        let Actor { tenant, key, operator } = actor;
        let action = action.to_string();
        tracing::info!(target: AUDIT, tenant, key, operator, owner, %stream, "{action}");
    }

    /// Somebody erased a session, of so many streams. Its name is a client's word, which may say
    /// anything: it is not told.
    pub fn purged_session(&self, actor: &Actor, streams: usize) {
        let Actor { tenant, key, operator } = actor;
        let action = Action::PurgedSession.to_string();
        tracing::info!(target: AUDIT, tenant, key, operator, streams, "{action}");
    }

    /// Somebody stopped a run: told if it is not the one who started it.
    pub fn stopped(&self, caller: &Caller, run: &Run) {
        if run.started_by.as_deref().is_some_and(|starter| starter != caller.log_id) {
            self.did(&Actor::from(caller), Action::Stopped, &run.tenant, run.stream_id);
        }
    }

    /// Somebody looked, in the console, at what was said. A session's name is a client's word: it
    /// is not told.
    pub fn console_looked(&self, actor: &Actor, what: &str, owner: &str, stream: Option<Uuid>) {
        let Actor { tenant, key, operator } = actor;
        let stream = stream.map(tracing::field::display);
        tracing::info!(target: AUDIT, tenant, key, operator, owner, stream, what, "console looked");
    }

    /// Somebody did something, in the console, to a run or a session. A session that is gone can be
    /// asked for by its name alone, so that it is told, although it is a client's word.
    pub fn console_did(&self, actor: &Actor, what: &str, owner: &str, to: Target<'_>) {
        let Actor { tenant, key, operator } = actor;
        let (stream, session) = match to {
            Target::Stream(stream) => (Some(tracing::field::display(stream)), None),
            Target::Session(name) => (None, Some(name)),
        };
        tracing::info!(target: AUDIT, tenant, key, operator, owner, stream, session, what,
        "console did");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_told_as_a_number() {
        let (mut told, start) = (Told::default(), Instant::now());
        let told_at = |told: &mut Told, at| (0..250).filter(|_| told.take(at).0).count();
        assert_eq!(told_at(&mut told, start), 100);
        assert_eq!(told.take(start + SECOND / 2), (false, 0));
        assert_eq!(told.take(start + SECOND), (true, 151));
        assert_eq!(told.take(start + SECOND), (true, 0), "it is told once");
    }

    #[test]
    fn a_mark_is_a_short_part_of_the_hash_and_nothing_of_the_key() {
        let actor = Actor::unknown(Some("sk_secret"));
        assert!(actor.key.len() == 8 && KeyHash::of("sk_secret").to_hex().starts_with(&actor.key));
        assert_eq!(Actor::unknown(None).key, "");
    }
}
