//! Runs of several tenants, a page at a time and within a budget: for whoever looks after them.
//! Every page says how far it looked, so that nothing that was not looked at passes for nothing
//! found.

use std::ops::Bound;
use std::time::{Duration, Instant};

use capstan_protocol::{Close, Timestamp};
use uuid::Uuid;

use crate::{Run, RunState};

/// What people mean by a run's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// An attempt is under way.
    Running,
    /// It waits for its next attempt to be armed.
    Waiting,
    /// It ended with a fault.
    Failed,
    /// Somebody stopped it.
    Stopped,
    /// It ended well, in its first attempt.
    Done,
    /// It ended well, in a later one.
    Healed,
}

impl Status {
    /// All there are.
    pub const ALL: [Self; 6] =
        [Self::Running, Self::Waiting, Self::Failed, Self::Stopped, Self::Done, Self::Healed];

    /// Where a run stands.
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

    /// Its word.
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

    /// The status of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.word() == word)
    }

    /// The state that the record says.
    pub fn state(self) -> RunState {
        match self {
            Self::Running => RunState::Running,
            Self::Waiting => RunState::Waiting,
            Self::Failed | Self::Stopped | Self::Done | Self::Healed => RunState::Closed,
        }
    }
}

/// How much one page may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Records that may be looked at.
    pub records: usize,
    /// How long it may take.
    pub time: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        // Whoever looks on asks for the next page; whoever writes and reads meanwhile must not
        // notice.
        Self { records: 5_000, time: Duration::from_millis(50) }
    }
}

/// Which runs. What is `None` does not matter.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Of these tenants; of all if `None`.
    pub tenants: Option<Vec<String>>,
    /// Of this agent.
    pub agent: Option<String>,
    /// Standing so.
    pub status: Option<Status>,
    /// With an attempt that ended with this fault.
    pub fault: Option<String>,
    /// Of this conversation.
    pub session: Option<String>,
    /// Started, or armed, by a request with this X-Request-ID.
    pub request_id: Option<String>,
    /// With an attempt in this trace.
    pub trace_id: Option<String>,
    /// This stream or later ones.
    pub from: Option<Uuid>,
    /// Earlier streams than this one.
    pub before: Option<Uuid>,
    /// So many at most; never more than [`Query::MOST`].
    pub limit: usize,
    /// What it may cost.
    pub budget: Budget,
}

impl Query {
    /// The most rows of a page.
    pub const MOST: usize = 200;

    /// The first stream id of a time: ids begin with theirs.
    pub fn first_id_at(at: Timestamp) -> Uuid {
        let ms = u128::try_from(at.as_micros().div_euclid(1000)).unwrap_or(0);
        Uuid::from_u128((ms & ((1 << 48) - 1)) << 80)
    }

    /// When a stream began, by its id.
    pub fn time_of(stream: Uuid) -> Timestamp {
        let ms = i64::try_from(stream.as_u128() >> 80).unwrap_or(0);
        Timestamp::from_micros(ms.saturating_mul(1000))
    }

    /// Whether a run belongs to what is asked for, wherever it lies.
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

    /// Whether only runs that run or wait are asked for: few, however many have ended since.
    pub fn is_of_open(&self) -> bool {
        self.status.is_some_and(|status| status.state() != RunState::Closed)
    }

    /// The streams that can be on the page; `None` if there are none.
    pub fn range(&self, before: Option<Uuid>) -> Option<(Bound<Uuid>, Bound<Uuid>)> {
        let (from, end) = (self.from.unwrap_or(Uuid::nil()), self.end(before));
        (from < end).then_some((Bound::Included(from), Bound::Excluded(end)))
    }

    /// All streams of the page come before it; `before` is how far it has come.
    pub fn end(&self, before: Option<Uuid>) -> Uuid {
        before.or(self.before).unwrap_or(Uuid::max())
    }
}

/// The codes of all faults that attempts of a run ended with, some perhaps twice.
pub fn faults_of(run: &Run) -> impl Iterator<Item = &str> {
    let attempts = run.attempts.iter().filter_map(|attempt| attempt.fault.as_deref());
    run.fault.as_deref().into_iter().chain(attempts)
}

/// The ids of all requests that were about a run, some perhaps twice.
pub fn request_ids_of(run: &Run) -> impl Iterator<Item = &str> {
    let attempts = run.attempts.iter().filter_map(|attempt| attempt.request_id.as_deref());
    run.request_id.as_deref().into_iter().chain(attempts)
}

/// The traces of a run, some perhaps twice.
pub fn trace_ids_of(run: &Run) -> impl Iterator<Item = &str> {
    let attempts = run.attempts.iter().filter_map(|attempt| attempt.trace_id.as_deref());
    run.trace_id.as_deref().into_iter().chain(attempts)
}

/// What was found, newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<Run>,
    /// `before` of the next page: everything from this stream on was looked at. `None` if that was
    /// all there is.
    pub next: Option<Uuid>,
    /// How far back was looked; `None` if to the very end.
    pub looked_back_to: Option<Timestamp>,
    /// How many records were looked at.
    pub looked_at: usize,
}

impl RunPage {
    pub(crate) fn new(runs: Vec<Run>, next: Option<Uuid>, looked_at: usize) -> Self {
        Self { runs, next, looked_back_to: next.map(Query::time_of), looked_at }
    }

    /// Two pages of one question as one: as far as both have looked.
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

/// Makes a page within its budget.
pub struct Pager {
    limit: usize,
    budget: Budget,
    began: Instant,
    looked_at: usize,
    last: Option<Uuid>,
    runs: Vec<Run>,
}

impl Pager {
    /// The clock is looked at after so many records.
    const PACE: usize = 16;

    /// An empty page; its time begins now.
    pub fn new(query: &Query) -> Self {
        let limit = query.limit.clamp(1, Query::MOST);
        let (budget, began) = (query.budget, Instant::now());
        Self { limit, budget, began, looked_at: 0, last: None, runs: Vec::new() }
    }

    /// Whether one more may be looked at.
    pub fn goes_on(&self) -> bool {
        let is_late = || {
            self.looked_at.is_multiple_of(Self::PACE) && self.began.elapsed() >= self.budget.time
        };
        // A page of nothing would be asked for again and again.
        self.looked_at == 0
            || (self.runs.len() < self.limit && self.looked_at < self.budget.records && !is_late())
    }

    /// How many more may be looked at at once.
    pub fn room(&self) -> usize {
        self.budget.records.saturating_sub(self.looked_at).max(usize::from(self.looked_at == 0))
    }

    /// How many more are wanted.
    pub fn wanted(&self) -> usize {
        self.limit.saturating_sub(self.runs.len())
    }

    /// A stream was looked at; its run, if it belongs to the page.
    pub fn looked(&mut self, stream: Uuid, run: Option<Run>) {
        self.looked_at += 1;
        self.last = Some(stream);
        self.runs.extend(run);
    }

    /// Many were looked at, the last of them this one; these belong to the page.
    pub fn looked_at_many(&mut self, count: usize, last: Uuid, runs: Vec<Run>) {
        self.looked_at += count;
        self.last = Some(last);
        self.runs.extend(runs);
    }

    /// The last stream that was looked at.
    pub fn last(&self) -> Option<Uuid> {
        self.last
    }

    /// What came of it; `is_end` if nothing is left to be looked at.
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
    fn two_pages_reach_as_far_as_the_one_that_looked_less_far() {
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
    fn an_id_tells_its_time() {
        let at = Timestamp::from_micros(1_700_000_000_123_000);
        assert_eq!(Query::time_of(Query::first_id_at(at)), at);
        assert_eq!(Query::first_id_at(Timestamp::from_micros(-5)), Uuid::nil());
    }
}
