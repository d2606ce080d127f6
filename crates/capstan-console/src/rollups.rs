//! Counts of failed attempts and ended runs: by the minute for a day in memory, by the hour for a
//! month in the store.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use capstan_journal::{Counts, FIRST_PACKET_MS, Rollup, RollupKey, Run, Status};
use capstan_protocol::Timestamp;

use super::answers::ms_between;
use crate::Console;

/// Minutes that are remembered.
const MINUTES: i64 = 24 * 60;
const MINUTE: i64 = 60_000_000;
/// The most rows of a minute, and of all minutes. Further ones count as `others`.
const ROWS_A_MINUTE: usize = 1_000;
const ROWS: usize = 100_000;
/// The most rows of an hour.
const ROWS_AN_HOUR: usize = 10_000;
/// The most tenants and agents whose latest run is remembered.
const MOST_NAMES: usize = 1_000;
const OTHER: &str = "other";

/// All counts.
#[derive(Default)]
pub(crate) struct Rollups(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    minutes: VecDeque<(i64, HashMap<RollupKey, Counts>)>,
    rows: usize,
    /// Counts that are not stored yet.
    unsaved: HashMap<(i64, RollupKey), Counts>,
    /// The rows of the present hour.
    hour: (i64, HashSet<RollupKey>),
    latest: HashMap<String, Latest>,
    /// Runs that each tenant began in the present minute.
    begun: HashMap<String, (i64, u64)>,
}

/// The latest run of an agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latest {
    pub(crate) success: Option<Timestamp>,
    pub(crate) fault: Option<(String, Timestamp)>,
}

fn minute_of(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(MINUTE)
}

impl Counted {
    fn add(&mut self, at: Timestamp, key: RollupKey, counts: &Counts) {
        self.add_to_minute(minute_of(at), key.clone(), counts);
        let hour = Rollup::hour_of(at);
        if self.hour.0 != hour {
            self.hour = (hour, HashSet::new());
        }
        let is_full = self.hour.1.len() >= ROWS_AN_HOUR && !self.hour.1.contains(&key);
        let key = if is_full { other(&key) } else { key };
        self.hour.1.insert(key.clone());
        self.unsaved.entry((hour, key)).or_default().add(counts);
    }

    fn add_to_minute(&mut self, minute: i64, key: RollupKey, counts: &Counts) {
        // A clock that was set back counts in the latest minute.
        let is_new = self.minutes.back().is_none_or(|(last, _)| *last < minute);
        if is_new {
            self.minutes.push_back((minute, HashMap::new()));
        }
        while self.minutes.front().is_some_and(|(first, _)| *first <= minute - MINUTES) {
            let gone = self.minutes.pop_front().map_or(0, |(_, rows)| rows.len());
            self.rows = self.rows.saturating_sub(gone);
        }
        let Some((_, rows)) = self.minutes.back_mut() else { return };
        let is_full = rows.len() >= ROWS_A_MINUTE || self.rows >= ROWS;
        let key = if is_full && !rows.contains_key(&key) { other(&key) } else { key };
        let before = rows.len();
        rows.entry(key).or_default().add(counts);
        self.rows += rows.len() - before;
    }

    fn latest(&mut self, agent: &str) -> &mut Latest {
        let is_full = self.latest.len() >= MOST_NAMES && !self.latest.contains_key(agent);
        self.latest.entry(if is_full { OTHER } else { agent }.to_owned()).or_default()
    }
}

fn key_of(run: &Run, agent: &str, is_fault: bool, code: &str) -> RollupKey {
    RollupKey {
        tenant: run.tenant.clone(),
        agent: agent.to_owned(),
        is_fault,
        code: code.to_owned(),
    }
}

/// The row for everything beyond the limit.
fn other(key: &RollupKey) -> RollupKey {
    let word = || OTHER.to_owned();
    RollupKey { tenant: word(), agent: word(), is_fault: key.is_fault, code: word() }
}

impl Rollups {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run has begun.
    pub(crate) fn began(&self, run: &Run, now: Timestamp) {
        let (minute, mut counted) = (minute_of(now), self.lock());
        if counted.begun.len() >= MOST_NAMES && !counted.begun.contains_key(&run.tenant) {
            counted.begun.retain(|_, (at, _)| *at == minute);
        }
        let count = counted.begun.entry(run.tenant.clone()).or_default();
        *count = if count.0 == minute { (minute, count.1 + 1) } else { (minute, 1) };
    }

    /// Runs that a tenant began in this minute, here.
    pub(crate) fn begun_by(&self, tenant: &str, now: Timestamp) -> u64 {
        let (minute, counted) = (minute_of(now), self.lock());
        counted.begun.get(tenant).filter(|(at, _)| *at == minute).map_or(0, |(_, count)| *count)
    }

    /// A run has ended. The agent is its metric label.
    pub(crate) fn ended(&self, run: &Run, agent: &str) {
        let (at, status) = (run.closed_at.unwrap_or(run.updated_at), Status::of(run));
        let mut counts = Counts {
            runs: 1,
            attempts: run.attempt.into(),
            calls: run.attempts.iter().map(|attempt| attempt.calls).sum(),
            tokens: run.tokens,
            ..Counts::default()
        };
        if let Some(first) = run.attempts.iter().find_map(|attempt| attempt.first_packet_at) {
            counts.first_packet_after(ms_between(run.created_at, first));
        }
        let mut counted = self.lock();
        counted.add(at, key_of(run, agent, false, status.word()), &counts);
        if let (Status::Failed, Some(code)) = (status, &run.fault) {
            counted.add(
                at,
                key_of(run, agent, true, code),
                &Counts { fatal: 1, ..Counts::default() },
            );
        }
        let latest = counted.latest(agent);
        match (status, &run.fault) {
            (Status::Done | Status::Healed, _) => latest.success = Some(at),
            (_, Some(code)) => latest.fault = Some((code.clone(), at)),
            (_, None) => {}
        }
    }

    /// The last attempt has failed, and its run goes on or waits.
    pub(crate) fn failed(&self, run: &Run, agent: &str) {
        let over = run
            .attempts
            .iter()
            .rev()
            .find_map(|attempt| Some((attempt.ended_at?, attempt.fault.as_ref()?)));
        let Some((at, code)) = over else { return };
        let mut counted = self.lock();
        counted.add(at, key_of(run, agent, true, code), &Counts { healed: 1, ..Counts::default() });
        counted.latest(agent).fault = Some((code.clone(), at));
    }

    /// A request was refused.
    pub(crate) fn refused(&self, tenant: Option<&str>, code: &str, at: Timestamp) {
        let key = RollupKey {
            tenant: tenant.unwrap_or_default().to_owned(),
            agent: String::new(),
            is_fault: true,
            code: code.to_owned(),
        };
        self.lock().add(at, key, &Counts { refused: 1, ..Counts::default() });
    }

    /// Adds up the visible counts of this process since a time. Each row has its minute.
    pub(crate) fn since(
        &self,
        from: Timestamp,
        to: Timestamp,
        sees: impl Fn(&RollupKey) -> bool,
        mut add: impl FnMut(Timestamp, &RollupKey, &Counts),
    ) {
        let (from, to) = (minute_of(from), minute_of(to));
        for (minute, rows) in
            self.lock().minutes.iter().filter(|(minute, _)| (from..=to).contains(minute))
        {
            let at = Timestamp::from_micros(minute.saturating_mul(MINUTE));
            rows.iter().filter(|(key, _)| sees(key)).for_each(|(key, counts)| add(at, key, counts));
        }
    }

    pub(crate) fn latest_of(&self, agent: &str) -> Latest {
        self.lock().latest.get(agent).cloned().unwrap_or_default()
    }

    /// Adds the counts of an earlier process, which are known by the hour.
    fn remember(&self, mut rows: Vec<Rollup>) {
        rows.sort_by_key(|row| row.hour);
        let mut counted = self.lock();
        counted.rows = 0;
        let since = std::mem::take(&mut counted.minutes);
        for row in rows {
            counted.add_to_minute(minute_of(Rollup::time_of(row.hour)), row.key, &row.counts);
        }
        for (minute, rows) in since {
            rows.into_iter().for_each(|(key, counts)| counted.add_to_minute(minute, key, &counts));
        }
    }

    fn take_unsaved(&self) -> Vec<Rollup> {
        let unsaved = std::mem::take(&mut self.lock().unsaved);
        unsaved.into_iter().map(|((hour, key), counts)| Rollup { hour, key, counts }).collect()
    }
}

/// Stores the counts since the last call. If that fails, they are lost: these numbers are only for
/// people.
pub async fn save(console: &Console) {
    let unsaved = console.memory.rollups.take_unsaved();
    if unsaved.is_empty() {
        return;
    }
    if let Err(error) = console.engine.store().add_rollups(unsaved).await {
        tracing::warn!(%error, "the console's counts could not be stored");
    }
}

/// Loads the last day after a restart, by the hour. In a shared journal these counts include those
/// of other processes, so there only the counts of this process are shown by the minute.
pub async fn remember(console: &Console) {
    let (store, now) = (console.engine.store(), console.engine.now());
    let a_day_ago = Timestamp::from_micros(now.as_micros().saturating_sub(MINUTES * MINUTE));
    match store.rollups(Rollup::hour_of(a_day_ago), Rollup::hour_of(now)).await {
        Ok(rows) => console.memory.rollups.remember(rows),
        Err(error) => tracing::warn!(%error, "the console's earlier counts could not be read"),
    }
}

/// A percentile of the time to the first packet, approximately.
pub(crate) fn percentile(buckets: &[u64; 12], percent: u64) -> Option<u64> {
    let total: u64 = buckets.iter().sum();
    let wanted = total.saturating_mul(percent).div_ceil(100);
    let mut sum = 0;
    let at = buckets.iter().position(|count| {
        sum += count;
        sum >= wanted
    })?;
    let last = FIRST_PACKET_MS.last().copied().unwrap_or(0);
    (total > 0).then(|| FIRST_PACKET_MS.get(at).copied().unwrap_or(last))
}

#[cfg(test)]
mod tests {
    use capstan_journal::{Attempt, Claim, RunState};
    use uuid::Uuid;

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_micros(minute * MINUTE)
    }

    fn ended(tenant: &str, minute: i64) -> Run {
        let mut run = Claim::new(tenant, "k", Uuid::nil(), at(minute)).to_run();
        (run.state, run.closed_at, run.attempt) = (RunState::Closed, Some(at(minute)), 2);
        run.attempts = vec![
            Attempt {
                fault: Some("timeout".into()),
                ended_at: Some(at(minute)),
                calls: 2,
                ..Attempt::new(1, at(minute))
            },
            Attempt { calls: 1, first_packet_at: Some(at(minute)), ..Attempt::new(2, at(minute)) },
        ];
        run
    }

    fn total(rollups: &Rollups, from: i64, to: i64) -> Counts {
        let mut sum = Counts::default();
        rollups.since(at(from), at(to), |_| true, |_, _, counts| sum.add(counts));
        sum
    }

    #[test]
    fn runs_are_counted_where_they_end_and_forgotten_after_a_day() {
        let rollups = Rollups::default();
        for (tenant, minute) in [("a", 100), ("b", 101)] {
            let run = ended(tenant, minute);
            rollups.failed(&run, "x");
            assert_eq!(
                rollups.latest_of("x").fault,
                Some(("timeout".into(), at(minute))),
                "before its run has ended"
            );
            rollups.ended(&run, "x");
        }
        rollups.refused(None, "rate_limited", at(101));
        let sum = total(&rollups, 0, 200);
        assert_eq!(
            (sum.runs, sum.attempts, sum.calls, sum.healed, sum.fatal, sum.refused),
            (2, 4, 6, 2, 0, 1)
        );
        assert_eq!(total(&rollups, 101, 101).runs, 1);
        assert!(rollups.latest_of("x").success == Some(at(101)));
        assert_eq!(rollups.take_unsaved().len(), 5);
        assert!(rollups.take_unsaved().is_empty(), "told once");
        rollups.ended(&ended("a", 101 + MINUTES), "x");
        assert_eq!(total(&rollups, 0, 9999).runs, 1);
    }

    #[test]
    fn a_run_that_failed_counts_one_fatal_fault_beside_the_attempts_that_failed_before() {
        let rollups = Rollups::default();
        let mut run = ended("a", 100);
        rollups.failed(&run, "x");
        (run.fault, run.reason) = (Some("timeout".into()), Some("error".into()));
        run.attempts[1].fault = Some("timeout".into());
        rollups.ended(&run, "x");
        let sum = total(&rollups, 0, 200);
        assert_eq!((sum.runs, sum.fatal, sum.healed), (1, 1, 1));
    }

    #[test]
    fn earlier_processes_counts_are_known_by_the_hour() {
        let (before, rollups) = (Rollups::default(), Rollups::default());
        before.ended(&ended("a", 130), "x");
        before.ended(&ended("a", 70), "x");
        rollups.ended(&ended("a", 131), "x");
        rollups.remember(before.take_unsaved());
        assert_eq!(
            [(0, 119), (120, 130), (131, 200)].map(|(from, to)| total(&rollups, from, to).runs),
            [1, 1, 1]
        );
        assert_eq!(rollups.take_unsaved().len(), 1, "it is not told again");
    }

    #[test]
    fn rows_beyond_the_limit_are_counted_as_others() {
        let rollups = Rollups::default();
        for n in 0..ROWS_AN_HOUR as i64 + 50 {
            rollups.refused(Some(&n.to_string()), "timeout", at(600 + n / 500));
        }
        assert_eq!(total(&rollups, 0, 9999).refused, ROWS_AN_HOUR as u64 + 50);
        let saved = rollups.take_unsaved();
        assert_eq!(saved.len(), ROWS_AN_HOUR + 1);
        let others = saved.iter().find(|row| row.key.tenant == OTHER).unwrap();
        assert_eq!(others.counts.refused, 50);
    }

    #[test]
    fn percentiles_are_the_bounds_of_their_buckets() {
        let mut buckets = [0; 12];
        assert_eq!(percentile(&buckets, 50), None);
        (buckets[0], buckets[2], buckets[11]) = (50, 45, 5);
        assert_eq!((percentile(&buckets, 50), percentile(&buckets, 95)), (Some(50), Some(200)));
        assert_eq!(percentile(&buckets, 100), Some(60_000));
    }
}
