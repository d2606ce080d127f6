//! Counts the used tokens of a tenant by minute and by day, in two counters per tenant.
//!
//! A count belongs to its window and is dropped when the window is over. The count of the next
//! window is valid too, because the clocks of processes differ a little. A count further in the
//! future came from a wrong clock and is ignored, so that it locks no tenant out.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use capstan_protocol::Timestamp;

use crate::{Over, Refused};

/// Microseconds of a minute.
pub(crate) const MINUTE: i64 = 60_000_000;
/// Microseconds of a day (UTC).
pub(crate) const DAY: i64 = 24 * 60 * MINUTE;

/// The recent usage of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The last minute with usage.
    pub minute: Spent,
    /// The last day with usage.
    pub day: Spent,
}

/// The tokens of one window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// The number of the window since 1970.
    pub window: i64,
    /// The number of tokens.
    pub tokens: u64,
}

impl Spent {
    /// The count that is valid at a time.
    fn at(self, now: Timestamp, length: i64) -> Self {
        let window = now.as_micros().div_euclid(length);
        match self.window.checked_sub(window) {
            Some(0 | 1) => self,
            _ => Self { window, tokens: 0 },
        }
    }

    fn add(&mut self, tokens: u64, now: Timestamp, length: i64) {
        *self = self.at(now, length);
        self.tokens = self.tokens.saturating_add(tokens);
    }

    fn and(self, other: Self) -> Self {
        match self.window.cmp(&other.window) {
            Ordering::Less => other,
            Ordering::Equal => Self { tokens: self.tokens.saturating_add(other.tokens), ..self },
            Ordering::Greater => self,
        }
    }

    /// How long to wait if at most `most` tokens are allowed.
    fn wait(self, most: Option<u64>, now: Timestamp, length: i64) -> Option<Duration> {
        let spent = self.at(now, length);
        most.filter(|most| spent.tokens >= *most)?;
        let end = spent.window.saturating_add(1).saturating_mul(length);
        Some(Duration::from_micros(end.saturating_sub(now.as_micros()).max(0).unsigned_abs()))
    }
}

impl Tokens {
    /// Counts the tokens of an attempt when it ends.
    pub fn add(&mut self, tokens: u64, now: Timestamp) {
        self.minute.add(tokens, now, MINUTE);
        self.day.add(tokens, now, DAY);
    }

    /// Adds the counts of a tenant in two stores.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self { minute: self.minute.and(other.minute), day: self.day.and(other.day) }
    }

    /// The tokens used in the current minute and day.
    pub fn used(&self, now: Timestamp) -> (u64, u64) {
        (self.minute.at(now, MINUTE).tokens, self.day.at(now, DAY).tokens)
    }

    /// Checks whether tokens are left. If not, the refusal has the longer wait of both limits.
    pub(crate) fn check(
        &self,
        per_minute: Option<u64>,
        per_day: Option<u64>,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let minute = self.minute.wait(per_minute, now, MINUTE);
        let day = self.day.wait(per_day, now, DAY);
        let over = if day > minute { Over::TokensPerDay } else { Over::TokensPerMinute };
        match day.max(minute) {
            None => Ok(()),
            wait => Err(Refused { over, wait }),
        }
    }
}

/// The usage of each tenant, in memory.
#[derive(Debug)]
pub(crate) struct TokensBy<K> {
    by: HashMap<K, Tokens>,
    /// At this size the map drops entries of other days, which have no effect any more.
    sweep_at: usize,
}

impl<K> Default for TokensBy<K> {
    fn default() -> Self {
        Self { by: HashMap::new(), sweep_at: 256 }
    }
}

impl<K: Eq + Hash> TokensBy<K> {
    pub(crate) fn add(&mut self, tenant: K, tokens: u64, now: Timestamp) {
        if tokens == 0 {
            return;
        }
        self.by.entry(tenant).or_default().add(tokens, now);
        if self.by.len() >= self.sweep_at {
            self.by.retain(|_, used| used.used(now) != (0, 0));
            self.sweep_at = self.by.len().saturating_mul(2).max(256);
        }
    }

    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, tenant: &Q) -> Tokens
    where
        K: std::borrow::Borrow<Q>,
    {
        self.by.get(tenant).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quota;

    /// A time in seconds after midnight.
    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(20_000 * DAY + seconds * 1_000_000)
    }

    fn used(tokens: u64, now: Timestamp) -> Tokens {
        let mut used = Tokens::default();
        used.add(tokens, now);
        used
    }

    #[test]
    fn longer_of_both_waits_is_reported() {
        let quota =
            Quota { tokens_per_minute: Some(10), tokens_per_day: Some(100), ..Quota::UNLIMITED };
        let wait = |over, seconds| Err(Refused { over, wait: Some(Duration::from_secs(seconds)) });
        let mut used = used(9, at(30));
        assert_eq!(quota.check_tokens(&used, at(30)), Ok(()));
        used.add(1, at(40));
        assert_eq!(quota.check_tokens(&used, at(41)), wait(Over::TokensPerMinute, 19));
        assert_eq!(quota.check_tokens(&used, at(60)), Ok(()));
        used.add(90, at(3600));
        assert_eq!(quota.check_tokens(&used, at(3601)), wait(Over::TokensPerDay, 23 * 3600 - 1));
        assert_eq!(quota.check_tokens(&used, at(24 * 3600)), Ok(()));
        assert_eq!(used.used(at(3601)), (90, 100));
    }

    #[test]
    fn next_token_window_counts_and_later_ones_do_not() {
        let quota = Quota { tokens_per_minute: Some(10), ..Quota::UNLIMITED };
        let mut used = used(10, at(60));
        // Another process's clock is slightly behind.
        assert!(quota.check_tokens(&used, at(59)).is_err());
        used.add(5, at(59));
        assert_eq!(used.used(at(60)), (15, 15));
        // The clock was set back. No tenant has to wait until it reaches that time again.
        assert_eq!(quota.check_tokens(&used, at(-1)), Ok(()));
        let huge = Tokens { minute: Spent { window: i64::MAX, tokens: u64::MAX }, ..used };
        assert_eq!(quota.check_tokens(&huge, Timestamp::from_micros(i64::MIN)), Ok(()));
    }

    #[test]
    fn token_counts_of_yesterday_are_dropped() {
        let mut all = TokensBy::default();
        for day in 0..10_000_i64 {
            all.add(day, 1, at(day * 24 * 3600));
        }
        assert!(all.by.len() < 300, "{} of 10,000", all.by.len());
        assert_eq!(all.get(&9_999).used(at(9_999 * 24 * 3600)), (1, 1));
    }
}
