//! A cache of decoded histories, so that each turn of a long conversation decodes only the new
//! turns.
//!
//! The store stays authoritative: `relay::past` compares a cached history with the store at every
//! run. This module limits the size of the cache and drops erased sessions.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::conversation::PastTurn;

/// The largest size of the cache, roughly: one conversation of the largest default size and a
/// thousand ordinary ones.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// The estimated overhead of an entry.
const ENTRY_BYTES: usize = 512;

/// Tenant and session.
type Key = (String, String);

/// A least-recently-used cache of session histories. It only has complete histories.
pub(crate) struct Histories {
    state: Mutex<State>,
    most_bytes: usize,
}

impl Default for Histories {
    fn default() -> Self {
        Self { state: Mutex::default(), most_bytes: MOST_BYTES }
    }
}

#[derive(Default)]
struct State {
    sessions: HashMap<Key, Remembered>,
    /// The keys, least recently used first.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    bytes: usize,
    erasures: u64,
}

struct Remembered {
    turns: Arc<[Arc<PastTurn>]>,
    bytes: usize,
    used: u64,
    used_at: Instant,
}

/// The number of erasures when a read began. A history that was read before an erasure is not
/// cached after it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Erasures(u64);

impl State {
    fn remove(&mut self, key: &Key) -> Option<Remembered> {
        let removed = self.sessions.remove(key)?;
        self.by_use.remove(&removed.used);
        self.bytes -= removed.bytes;
        Some(removed)
    }

    fn insert(&mut self, key: Key, turns: Arc<[Arc<PastTurn>]>, bytes: usize) {
        self.uses += 1;
        self.bytes += bytes;
        self.by_use.insert(self.uses, key.clone());
        let remembered = Remembered { turns, bytes, used: self.uses, used_at: Instant::now() };
        self.sessions.insert(key, remembered);
    }

    /// Drops the least recently used sessions while this condition holds.
    fn drop_while(&mut self, is_too_much: impl Fn(&Self, &Remembered) -> bool) {
        while let Some(key) = self.by_use.values().next().cloned() {
            if !self.sessions.get(&key).is_some_and(|oldest| is_too_much(self, oldest)) {
                break;
            }
            self.remove(&key);
        }
    }
}

impl Histories {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of erasures so far. Call this before you read the store.
    pub(crate) fn erasures(&self) -> Erasures {
        Erasures(self.lock().erasures)
    }

    /// Returns a session's cached turns and marks them as used.
    pub(crate) fn get(&self, tenant: &str, session: &str) -> Option<Arc<[Arc<PastTurn>]>> {
        let key = (tenant.to_owned(), session.to_owned());
        let mut state = self.lock();
        let Remembered { turns, bytes, .. } = state.remove(&key)?;
        state.insert(key, Arc::clone(&turns), bytes);
        Some(turns)
    }

    /// Caches all turns of a session, unless something was erased after the read began.
    pub(crate) fn keep(
        &self,
        tenant: &str,
        session: &str,
        turns: &[Arc<PastTurn>],
        since: Erasures,
    ) {
        let turn_bytes: usize = turns.iter().map(|turn| turn.memory()).sum();
        let bytes = turn_bytes + tenant.len() + session.len() + ENTRY_BYTES;
        let key = (tenant.to_owned(), session.to_owned());
        let mut state = self.lock();
        if state.erasures != since.0 {
            return;
        }
        state.remove(&key);
        if bytes <= self.most_bytes && !turns.is_empty() {
            state.insert(key, turns.into(), bytes);
            state.drop_while(|state, _| state.bytes > self.most_bytes);
        }
    }

    /// Drops a session from the cache, because it or a stream of it was erased from the store.
    pub(crate) fn forget(&self, tenant: &str, session: &str) {
        let mut state = self.lock();
        state.erasures += 1;
        state.remove(&(tenant.to_owned(), session.to_owned()));
    }

    /// Drops sessions that were not used since this moment: retention may have deleted them, and
    /// idle conversations should not take memory.
    pub(crate) fn drop_unused_since(&self, then: Instant) {
        self.lock().drop_while(|_, oldest| oldest.used_at <= then);
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::Timestamp;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use capstan_journal::StoredTurn;

    const MB: usize = 1024 * 1024;

    fn turns(count: usize, bytes: usize) -> Vec<Arc<PastTurn>> {
        let said = json!({"messages": [{"role": "user", "parts": [{"type": "text",
        "content": "x".repeat(bytes)}]}]});
        let turn = StoredTurn::new(Uuid::nil(), Timestamp::from_micros(0), 2, said);
        (0..count).map(|_| Arc::new(PastTurn::of(turn.clone()))).collect()
    }

    fn kept(histories: &Histories) -> Vec<String> {
        let state = histories.lock();
        let sum: usize = state.sessions.values().map(|session| session.bytes).sum();
        assert_eq!((state.bytes, state.by_use.len()), (sum, state.sessions.len()));
        state.by_use.values().map(|(_, session)| session.clone()).collect()
    }

    #[test]
    fn the_one_not_used_for_longest_goes_when_there_is_too_much() {
        let histories = Histories { most_bytes: 4 * MB, ..Histories::default() };
        let since = histories.erasures();
        for session in ["a", "b", "c"] {
            histories.keep("t", session, &turns(2, MB / 2), since);
        }
        assert_eq!(histories.get("t", "a").unwrap().len(), 2);
        assert!(histories.get("other", "a").is_none());
        histories.keep("t", "d", &turns(2, MB / 2), since);
        assert_eq!(kept(&histories), ["c", "a", "d"]);
        histories.keep("t", "a", &turns(5, MB), since);
        assert_eq!(
            kept(&histories),
            ["c", "d"],
            "what is too large by itself drives out nobody else"
        );
        histories.drop_unused_since(Instant::now());
        assert!(kept(&histories).is_empty());
    }

    #[test]
    fn what_was_read_before_an_erasure_is_not_kept_after_it() {
        let histories = Histories::default();
        let since = histories.erasures();
        histories.keep("t", "s", &turns(1, 1), since);
        histories.forget("t", "s");
        assert!(histories.get("t", "s").is_none());
        histories.keep("t", "s", &turns(1, 1), since);
        assert!(histories.get("t", "s").is_none());
        histories.keep("t", "s", &turns(1, 1), histories.erasures());
        assert!(histories.get("t", "s").is_some());
    }
}
