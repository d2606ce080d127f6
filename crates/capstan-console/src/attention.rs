//! Runs that need attention: silent, overdue, retrying, or without an owner. The reason is given in
//! a sentence.

use std::collections::HashSet;
use std::time::Duration;

use capstan_journal::{JournalError, Query, Run, RunState, Standing, Status};
use capstan_protocol::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::answers::RunRow;
use super::visitor::Visitor;
use crate::Console;

/// How many runs of each kind are examined.
const MOST: usize = 100;
/// A client that comes back a moment late is not overdue.
const GRACE: Duration = Duration::from_secs(5);

/// A run that needs attention.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Attention {
    pub(crate) run: RunRow,
    pub(crate) why: Why,
    pub(crate) sentence: String,
}

/// Why a run needs attention.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    /// Its agent has sent nothing for half of the idle limit.
    Silent,
    /// Its next attempt could have begun, but no client has asked for it.
    Overdue,
    /// It is in a later attempt.
    Retrying,
    /// The gateway that owned it is gone.
    LeaseOver,
}

/// Data that are read once for all runs.
struct Rule<'a> {
    console: &'a Console,
    now: Timestamp,
    /// Owners whose lease has ended.
    gone: HashSet<String>,
}

pub(crate) async fn of(
    console: &Console,
    visitor: &Visitor,
) -> Result<Vec<Attention>, JournalError> {
    if !console.engine.may_have_open_runs() {
        return Ok(Vec::new());
    }
    let store = console.engine.store();
    let replicas = match store.cluster().filter(|_| visitor.sees_server()) {
        Some(cluster) => cluster.replicas().await?,
        None => Vec::new(),
    };
    let (gone, living): (Vec<_>, Vec<_>) =
        replicas.into_iter().partition(|replica| replica.standing == Standing::Gone);
    // A gateway that restarted under its old name is live.
    let is_gone = |name: &String| living.iter().all(|replica| replica.name != *name);
    let gone = gone.into_iter().map(|replica| replica.name).filter(is_gone).collect();
    let rule = Rule { console, now: console.engine.now(), gone };
    let mut found = Vec::new();
    for status in [Status::Running, Status::Waiting] {
        let query = Query {
            tenants: visitor.names(),
            status: Some(status),
            limit: MOST,
            ..Query::default()
        };
        for run in store.page(query).await?.runs {
            if let Some((why, sentence)) = rule.judge(&run) {
                found.push(Attention { run: RunRow::new(console, visitor, &run), why, sentence });
            }
        }
    }
    Ok(found)
}

impl Rule<'_> {
    fn judge(&self, run: &Run) -> Option<(Why, String)> {
        if run.state == RunState::Running
            && run.owner.as_ref().is_some_and(|owner| self.gone.contains(owner))
        {
            return Some((
                Why::LeaseOver,
                "The gateway that owned it is gone; another one takes it over.".into(),
            ));
        }
        match run.state {
            RunState::Running => self.silent(run).or_else(|| retrying(run)),
            RunState::Waiting => self.overdue(run),
            RunState::Closed => None,
        }
    }

    fn since(&self, at: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.now.as_micros() - at.as_micros()).unwrap_or(0))
    }

    /// This gateway knows nothing about the silence of another gateway's run.
    fn silent(&self, run: &Run) -> Option<(Why, String)> {
        let facts = self.console.engine.live(run.stream_id)?;
        let idle = self.console.engine.settings().timeouts.idle;
        let began =
            run.attempts.last().and_then(|attempt| attempt.began_at).unwrap_or(run.created_at);
        let silent = self.since(facts.last_append().unwrap_or(began).max(began));
        let (silent, limit) = (silent.as_secs(), idle.as_secs());
        (silent > limit / 2).then(|| {
            (
                Why::Silent,
                format!(
                    "Its agent has sent nothing for {silent} s; after {limit} s the attempt ends."
                ),
            )
        })
    }

    fn overdue(&self, run: &Run) -> Option<(Why, String)> {
        let late = self.since(run.not_before.unwrap_or(run.updated_at));
        (late > GRACE).then(|| {
            let (next, late) = (run.attempt + 1, late.as_secs());
            (
                Why::Overdue,
                format!(
                    "Attempt {next} could have begun {late} s ago, but no client has requested it."
                ),
            )
        })
    }
}

fn retrying(run: &Run) -> Option<(Why, String)> {
    (run.attempt > 1).then(|| {
        (Why::Retrying, format!("It is in attempt {} of {}.", run.attempt, run.max_attempts))
    })
}
