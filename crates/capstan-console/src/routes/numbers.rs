//! Shared by routes with numbers: times, and which counts a visitor may see.

use capstan_journal::{Counts, RollupKey};
use capstan_protocol::{CATALOGUE, FaultKind, Timestamp};

use crate::Console;
use crate::visitor::Visitor;

pub(super) const FAULTS_OF_ANY: &[FaultKind] =
    &[FaultKind::RouteNotFound, FaultKind::JournalUnavailable];
pub(super) const MINUTE: i64 = 60;
pub(super) const HOUR: i64 = 3600;
pub(super) const DAY: i64 = 24 * HOUR;

pub(super) fn before(now: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_sub(seconds.saturating_mul(1_000_000)))
}

pub(super) fn sees(visitor: &Visitor, key: &RollupKey) -> bool {
    if key.tenant.is_empty() { visitor.tenants().is_none() } else { visitor.sees(&key.tenant) }
}

pub(super) fn title_of(code: &str) -> Option<&'static str> {
    CATALOGUE.iter().find(|entry| entry.code == code).map(|entry| entry.title)
}

pub(super) fn all_faults(counts: &Counts) -> u64 {
    counts.fatal.saturating_add(counts.healed).saturating_add(counts.refused)
}

/// The visible faults of the last seconds.
pub(super) fn faults_lately(console: &Console, visitor: &Visitor, seconds: i64) -> u64 {
    let (now, mut sum) = (console.engine.now(), 0_u64);
    let is_seen = |key: &RollupKey| key.is_fault && sees(visitor, key);
    console
        .memory
        .rollups
        .since(before(now, seconds), now, is_seen, |_, _, counts| sum += all_faults(counts));
    sum
}
