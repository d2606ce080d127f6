//! Hourly counts of ended runs. They outlive the runs.

use std::collections::{BTreeMap, HashMap};

use capstan_protocol::Timestamp;
use serde::{Deserialize, Serialize};

/// How many hours are kept.
pub const KEPT_HOURS: i64 = 30 * 24;
const HOUR: i64 = 3_600_000_000;

/// The upper bounds of the histogram of times to the first packet, in milliseconds. A last bucket
/// counts longer ones.
pub const FIRST_PACKET_MS: [u64; 11] =
    [50, 100, 200, 400, 800, 1500, 3000, 6000, 12_000, 30_000, 60_000];

/// The dimensions of a count.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RollupKey {
    /// The tenant of the runs.
    pub tenant: String,
    /// The agent; empty for a request that was refused before its agent was known.
    pub agent: String,
    /// Whether `code` is a fault code; otherwise it is an outcome.
    pub is_fault: bool,
    /// The fault code, or the name of the outcome.
    pub code: String,
}

/// The counts of one key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Runs that ended.
    pub runs: u64,
    /// Their attempts.
    pub attempts: u64,
    /// Their calls upstream.
    pub calls: u64,
    /// Faults that ended a run.
    pub fatal: u64,
    /// Faults after which the run went on.
    pub healed: u64,
    /// Refused requests.
    pub refused: u64,
    /// Tokens, as limits count them.
    pub tokens: u64,
    /// The histogram of times to the first packet, by [`FIRST_PACKET_MS`].
    pub first_packet: [u64; 12],
}

impl Counts {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        let sums = self.numbers().zip(other.numbers()).map(|(a, b)| a.saturating_add(b));
        *self = Self::of(sums);
    }

    /// Adds a time to the first packet.
    pub fn first_packet_after(&mut self, ms: u64) {
        let at = FIRST_PACKET_MS.partition_point(|bound| *bound < ms);
        if let Some(bucket) = self.first_packet.get_mut(at) {
            *bucket += 1;
        }
    }

    /// The counts in an order that never changes: new ones are appended.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        let own = [
            self.runs,
            self.attempts,
            self.calls,
            self.fatal,
            self.healed,
            self.refused,
            self.tokens,
        ];
        own.into_iter().chain(self.first_packet)
    }

    /// Reads counts in this order. Missing ones are zero.
    pub fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let mut numbers = numbers.into_iter();
        let mut next = || numbers.next().unwrap_or(0);
        Self {
            runs: next(),
            attempts: next(),
            calls: next(),
            fatal: next(),
            healed: next(),
            refused: next(),
            tokens: next(),
            first_packet: std::array::from_fn(|_| next()),
        }
    }
}

/// The counts of one key in one hour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollup {
    /// The hour since 1970.
    pub hour: i64,
    /// The key.
    pub key: RollupKey,
    /// The counts.
    pub counts: Counts,
}

impl Rollup {
    /// The hour of a time.
    pub fn hour_of(at: Timestamp) -> i64 {
        at.as_micros().div_euclid(HOUR)
    }

    /// The time at which an hour begins.
    pub fn time_of(hour: i64) -> Timestamp {
        Timestamp::from_micros(hour.saturating_mul(HOUR))
    }
}

/// The rollups of a store in memory.
#[derive(Debug, Default)]
pub struct Hours(BTreeMap<i64, HashMap<RollupKey, Counts>>);

impl Hours {
    /// Adds rollups, and drops hours that are too old.
    pub fn add(&mut self, rollups: Vec<Rollup>) {
        for Rollup { hour, key, counts } in rollups {
            self.0.entry(hour).or_default().entry(key).or_default().add(&counts);
        }
        let oldest = self.0.last_key_value().map(|(hour, _)| *hour - KEPT_HOURS);
        self.0.retain(|hour, _| oldest.is_none_or(|oldest| *hour > oldest));
    }

    /// The rollups between two hours, both included.
    pub fn between(&self, from: i64, to: i64) -> Vec<Rollup> {
        if from > to {
            return Vec::new();
        }
        let hours = self.0.range(from..=to);
        let rollup = |hour: &i64, key: &RollupKey, counts: &Counts| Rollup {
            hour: *hour,
            key: key.clone(),
            counts: *counts,
        };
        hours
            .flat_map(|(hour, rows)| {
                rows.iter().map(move |(key, counts)| rollup(hour, key, counts))
            })
            .collect()
    }

    /// Takes the rollups of an hour.
    pub fn take(&mut self, hour: i64) -> Vec<Rollup> {
        let rows = self.0.remove(&hour).unwrap_or_default();
        rows.into_iter().map(|(key, counts)| Rollup { hour, key, counts }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollup_counts_round_trip_and_fill_their_bucket() {
        let mut counts = Counts { runs: 1, tokens: 7, ..Counts::default() };
        [0, 50, 51, 60_000, 60_001].into_iter().for_each(|ms| counts.first_packet_after(ms));
        assert_eq!(counts.first_packet, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(Counts::of(counts.numbers()), counts);
        let before = counts;
        counts.add(&before);
        assert_eq!((counts.runs, counts.tokens, counts.first_packet[0]), (2, 14, 4));
        assert_eq!(Counts::of([3]).runs, 3);
    }
}
