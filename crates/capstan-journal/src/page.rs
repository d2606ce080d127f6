//! Pages of runs, possibly of several tenants, for the console. Each page has a budget and reports
//! how far it searched, so that a partial result is not taken for a complete one.

use std::ops::Bound;
use std::time::{Duration, Instant};

use capstan_protocol::{Close, Timestamp};
use serde::Serialize;
use uuid::Uuid;

use crate::{Run, RunState};

/// The state of a run in a user's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "RunStatus"))]
pub enum Status {
    /// An attempt is running.
    Running,
    /// It waits for its next attempt.
    Waiting,
    /// It ended with a fault.
    Failed,
    /// A user stopped it.
    Stopped,
    /// It completed in its first attempt.
    Done,
    /// It completed in a later attempt.
    Healed,
}

impl Status {
    /// All statuses.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Waiting, Self::Failed, Self::Stopped, Self::Done, Self::Healed];

    /// The status of a run.
    pub fn of(run: &Run) -> Self {
        match run.state {
            RunState::Running => Self::Running,
            RunState::Waiting => Self::Waiting,
            RunState::Closed if run.fault.is_some() => Self::Failed,
            RunState::Closed if run.reason.as_deref() == Some(Close::CANCELLED) => Self::Stopped,
            RunState::Closed if run.attempt > 1 => Self::Healed,
            RunState::Closed => Self::Done,
        }
    }

    /// The name of the status.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::Done => "done",
            Self::Healed => "healed",
        }
    }

    /// The status with this name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }

    /// The state in the run's record.
    pub fn state(self) -> RunState {
        match self {
            Self::Running => RunState::Running,
            Self::Waiting => RunState::Waiting,
            Self::Failed | Self::Stopped | Self::Done | Self::Healed => RunState::Closed,
        }
    }
}

/// The budget of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// How many records may be read.
    pub records: usize,
    /// How long the search may take.
    pub time: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        // The console can ask for another page, but its search must not slow down other reads and
        // writes.
        Self { records: 5_000, time: Duration::from_millis(50) }
    }
}

/// A filter for runs. A member that is `None` matches every run.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Tenants; all if `None`.
    pub tenants: Option<Vec<String>>,
    /// Agent.
    pub agent: Option<String>,
    /// Status.
    pub status: Option<Status>,
    /// The fault of one of its attempts.
    pub fault: Option<String>,
    /// Session.
    pub session: Option<String>,
    /// The `X-Request-ID` of a request that started the run or one of its attempts.
    pub request_id: Option<String>,
    /// The trace of one of its attempts.
    pub trace_id: Option<String>,
    /// Only this stream and later ones.
    pub from: Option<Uuid>,
    /// Only streams before this one.
    pub before: Option<Uuid>,
    /// The most rows, at most [`Query::MOST`].
    pub limit: usize,
    /// The budget of the search.
    pub budget: Budget,
}

impl Query {
    /// The most rows of a page.
    pub const MOST: usize = 200;

    /// The lowest stream id of a time. Stream ids begin with their time.
    pub fn first_id_at(at: Timestamp) -> Uuid {
        let ms = u128::try_from(at.as_micros().div_euclid(1000)).unwrap_or(0);
        Uuid::from_u128((ms & ((1 << 48) - 1)) << 80)
    }

    /// The time at which a stream began, from its id.
    pub fn time_of(stream: Uuid) -> Timestamp {
        let ms = i64::try_from(stream.as_u128() >> 80).unwrap_or(0);
        Timestamp::from_micros(ms.saturating_mul(1000))
    }

    /// Whether a run matches the filter, except for the range of streams.
    pub fn matches(&self, run: &Run) -> bool {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        self.tenants.as_ref().is_none_or(|tenants| tenants.contains(&run.tenant))
            && is(&self.agent, &run.agent)
            && is(&self.session, &run.session)
            && self.status.is_none_or(|status| status == Status::of(run))
            && self.fault.as_deref().is_none_or(|code| faults_of(run).any(|fault| fault == code))
            && self
                .request_id
                .as_deref()
                .is_none_or(|id| request_ids_of(run).any(|known| known == id))
            && self.trace_id.as_deref().is_none_or(|id| trace_ids_of(run).any(|known| known == id))
    }

    /// Whether only open runs are wanted. There are few of them, however many have ended.
    pub fn is_of_open(&self) -> bool {
        self.status.is_some_and(|status| status.state() != RunState::Closed)
    }

    /// The range of streams to search; `None` if it is empty.
    pub fn range(&self, before: Option<Uuid>) -> Option<(Bound<Uuid>, Bound<Uuid>)> {
        let (from, end) = (self.from.unwrap_or(Uuid::nil()), self.end(before));
        (from < end).then_some((Bound::Included(from), Bound::Excluded(end)))
    }

    /// The end of this range. `before` is the position of the search.
    pub fn end(&self, before: Option<Uuid>) -> Uuid {
        before.or(self.before).unwrap_or(Uuid::max())
    }
}

/// The fault codes of a run and its attempts, possibly repeated.
pub fn faults_of(run: &Run) -> impl Iterator<Item = &str> {
    let attempts = run.attempts.iter().filter_map(|attempt| attempt.fault.as_deref());
    run.fault.as_deref().into_iter().chain(attempts)
}

/// The request ids of a run and its attempts, possibly repeated.
pub fn request_ids_of(run: &Run) -> impl Iterator<Item = &str> {
    let attempts = run.attempts.iter().filter_map(|attempt| attempt.request_id.as_deref());
    run.request_id.as_deref().into_iter().chain(attempts)
}

/// The trace ids of a run and its attempts, possibly repeated.
pub fn trace_ids_of(run: &Run) -> impl Iterator<Item = &str> {
    let attempts = run.attempts.iter().filter_map(|attempt| attempt.trace_id.as_deref());
    run.trace_id.as_deref().into_iter().chain(attempts)
}

/// A page of runs, newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<Run>,
    /// `before` of the next page. `None` if the search is complete.
    pub next: Option<Uuid>,
    /// The time back to which the search went; `None` if it is complete.
    pub looked_back_to: Option<Timestamp>,
    /// How many records were read.
    pub looked_at: usize,
}

impl RunPage {
    pub(crate) fn new(runs: Vec<Run>, next: Option<Uuid>, looked_at: usize) -> Self {
        Self { runs, next, looked_back_to: next.map(Query::time_of), looked_at }
    }

    /// Joins the pages of two stores, up to the point to which both have searched.
    pub(crate) fn and(mut self, other: Self, limit: usize) -> Self {
        self.runs.extend(other.runs);
        self.runs.sort_by_key(|run| std::cmp::Reverse(run.stream_id));
        let mut next = self.next.max(other.next);
        self.runs.retain(|run| next.is_none_or(|next| run.stream_id >= next));
        if self.runs.len() > limit {
            self.runs.truncate(limit);
            next = self.runs.last().map(|run| run.stream_id);
        }
        Self::new(self.runs, next, self.looked_at + other.looked_at)
    }
}

/// Builds a page within its budget.
pub struct Pager {
    limit: usize,
    budget: Budget,
    began: Instant,
    looked_at: usize,
    last: Option<Uuid>,
    runs: Vec<Run>,
}

impl Pager {
    /// The search checks the clock after this many records.
    const PACE: usize = 16;

    /// Creates an empty page. Its time begins now.
    pub fn new(query: &Query) -> Self {
        let limit = query.limit.clamp(1, Query::MOST);
        let (budget, began) = (query.budget, Instant::now());
        Self { limit, budget, began, looked_at: 0, last: None, runs: Vec::new() }
    }

    /// Whether another record may be read.
    pub fn goes_on(&self) -> bool {
        let is_late = || {
            self.looked_at.is_multiple_of(Self::PACE) && self.began.elapsed() >= self.budget.time
        };
        // Read at least one record, so that a client which asks for the next page makes progress.
        self.looked_at == 0
            || (self.runs.len() < self.limit && self.looked_at < self.budget.records && !is_late())
    }

    /// How many more records the budget allows.
    pub fn room(&self) -> usize {
        self.budget.records.saturating_sub(self.looked_at).max(usize::from(self.looked_at == 0))
    }

    /// How many more runs the page can hold.
    pub fn wanted(&self) -> usize {
        self.limit.saturating_sub(self.runs.len())
    }

    /// Adds a record that was read, with its run if it matches.
    pub fn looked(&mut self, stream: Uuid, run: Option<Run>) {
        self.looked_at += 1;
        self.last = Some(stream);
        self.runs.extend(run);
    }

    /// Adds several records that were read, the last of them `last`, with the runs that match.
    pub fn looked_at_many(&mut self, count: usize, last: Uuid, runs: Vec<Run>) {
        self.looked_at += count;
        self.last = Some(last);
        self.runs.extend(runs);
    }

    /// The last stream that was read.
    pub fn last(&self) -> Option<Uuid> {
        self.last
    }

    /// Ends the page. `is_end`: no streams are left to search.
    pub fn page(self, is_end: bool) -> RunPage {
        let next = self.last.filter(|_| !is_end);
        RunPage::new(self.runs, next, self.looked_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Claim;

    fn run(ms: u64) -> Run {
        Claim::new("t", "k", Uuid::from_u128(u128::from(ms) << 80), Timestamp::now()).to_run()
    }

    #[test]
    fn joined_pages_end_at_the_shorter_search() {
        let some = RunPage::new(vec![run(9), run(7)], Some(run(6).stream_id), 3);
        let others = RunPage::new(vec![run(8), run(3)], None, 2);
        let both = some.clone().and(others.clone(), 9);
        let ids = |page: &RunPage| page.runs.iter().map(|run| run.stream_id).collect::<Vec<_>>();
        assert_eq!(ids(&both), [9, 8, 7].map(|ms| run(ms).stream_id));
        assert_eq!((both.next, both.looked_at), (Some(run(6).stream_id), 5));
        assert_eq!(both.looked_back_to, Some(Timestamp::from_micros(6000)));
        let short = some.and(others, 2);
        assert_eq!((ids(&short).len(), short.next), (2, Some(run(8).stream_id)));
    }

    #[test]
    fn stream_id_contains_its_time() {
        let at = Timestamp::from_micros(1_700_000_000_123_000);
        assert_eq!(Query::time_of(Query::first_id_at(at)), at);
        assert_eq!(Query::first_id_at(Timestamp::from_micros(-5)), Uuid::nil());
    }
}
