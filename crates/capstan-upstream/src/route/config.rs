//! The table of a route, and its members.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::breaker::{BreakerConfig, Policy};
use super::budget::RetryBudget;
use super::{Member, Route, Shared};
use crate::callee::Callee;
use crate::config::ConfigError;
use crate::retries::{MAX_CALLS, OnCut, Retries};

/// The default limit for the first token while there is another member.
pub const FIRST_TOKEN: Duration = Duration::from_secs(10);
/// The share of calls that may be repeats.
const RETRY_SHARE: f64 = 0.2;

/// The keys of a route's table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    #[serde(rename = "use")]
    members: Vec<Entry>,
    first_token: Option<f64>,
    hedge: Option<f64>,
    attempts: Option<u32>,
    max_calls: Option<u32>,
    on_cut: Option<OnCut>,
    #[serde(default)]
    on_refusal: OnRefusal,
    retry_share: Option<f64>,
    #[serde(default)]
    breaker: BreakerConfig,
}

/// The reaction to a member that refuses the content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnRefusal {
    /// The run fails: another model might say what should not be said.
    #[default]
    Fail,
    /// The next member is called.
    Next,
}

/// A member: its name, or a table with more.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Entry {
    Name(String),
    Table(Table),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    weight: Option<f64>,
    when: Option<When>,
}

/// When a member is called, if not in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum When {
    /// If the conversation is too long for the others.
    Context,
}

impl Entry {
    fn table(&self) -> Table {
        match self {
            Self::Name(name) => Table { name: name.clone(), weight: None, when: None },
            Self::Table(table) => table.clone(),
        }
    }
}

/// All agents that are no routes, by name.
pub(crate) type Plain = BTreeMap<String, Arc<dyn Callee>>;
/// All routes, by name.
pub(crate) type Routes = BTreeMap<String, Config>;

/// Builds the route with this name, if there is one.
pub(crate) fn build(
    name: &str,
    routes: &Routes,
    plain: &Plain,
    shared: &Shared,
) -> Option<Result<Route, ConfigError>> {
    let config = routes.get(name)?;
    let mut tables = Vec::new();
    let flat = config.flat(&mut vec![name.to_owned()], routes, &mut tables);
    Some(flat.and_then(|()| config.build(&tables, plain, shared)))
}

impl Config {
    /// The error for a route without other agents.
    pub(crate) fn alone<T>(&self) -> Result<T, ConfigError> {
        let message = match self.members.first() {
            Some(entry) => format!("no agent is called {:?}", entry.table().name),
            None => "names no agent to call first".into(),
        };
        Err(ConfigError::at("use", message))
    }

    /// The members. A route among them is replaced by its own members.
    fn flat(
        &self,
        path: &mut Vec<String>,
        routes: &Routes,
        out: &mut Vec<Table>,
    ) -> Result<(), ConfigError> {
        for table in self.members.iter().map(Entry::table) {
            let Some(inner) = routes.get(&table.name) else {
                out.push(table);
                continue;
            };
            if path.contains(&table.name) {
                let message = format!("a circle: {} → {}", path.join(" → "), table.name);
                return Err(ConfigError::at("use", message));
            }
            path.push(table.name.clone());
            let before = out.len();
            inner.flat(path, routes, out)?;
            for inner in out.iter_mut().skip(before) {
                inner.when = inner.when.or(table.when);
            }
            path.pop();
        }
        Ok(())
    }

    fn build(
        &self,
        tables: &[Table],
        known: &Plain,
        shared: &Shared,
    ) -> Result<Route, ConfigError> {
        let members = members(tables, known)?;
        let default_calls = u32::try_from(members.len() * 2).unwrap_or(u32::MAX).max(MAX_CALLS);
        let max_calls = self.max_calls.unwrap_or(default_calls);
        if max_calls == 0 {
            return Err(ConfigError::at("max_calls", "must be at least 1"));
        }
        // An agent with side effects is called once, also as a member of a route.
        let is_repeatable = members.iter().any(|member| member.upstream.is_repeatable());
        let usual = if is_repeatable { Retries::PROVIDER.attempts } else { 1 };
        let attempts = self.attempts.unwrap_or(usual.min(max_calls));
        if !(1..=max_calls).contains(&attempts) {
            return Err(ConfigError::at(
                "attempts",
                format!("must be between 1 and max_calls ({max_calls})"),
            ));
        }
        let share = self.retry_share.unwrap_or(RETRY_SHARE);
        if !(0.0..=1.0).contains(&share) {
            return Err(ConfigError::at("retry_share", "expected a share from 0 to 1"));
        }
        let wrong = || ConfigError::at("breaker", "seconds: expected a number of seconds");
        let policy = Policy::new(self.breaker).ok_or_else(wrong)?;
        let hedge = self.hedge.map(|seconds| time("hedge", seconds)).transpose()?;
        if hedge.is_some_and(|_| members.iter().filter(|member| member.when.is_none()).count() < 2)
        {
            return Err(ConfigError::at("hedge", "needs a second member to call beside the first"));
        }
        Ok(Route {
            first_token: self
                .first_token
                .map_or(Ok(FIRST_TOKEN), |seconds| time("first_token", seconds))?,
            hedge,
            attempts,
            max_calls,
            on_cut: self.on_cut.unwrap_or_default(),
            on_refusal: self.on_refusal,
            budget: RetryBudget::new(share),
            breaker: Arc::clone(&shared.breaker),
            policy,
            clock: shared.clock.clone(),
            members,
        })
    }
}

fn members(tables: &[Table], known: &Plain) -> Result<Vec<Member>, ConfigError> {
    let wrong = |message: String| ConfigError::at("use", message);
    let mut members: Vec<Member> = Vec::new();
    for table in tables {
        let Some(callee) = known.get(&table.name) else {
            let known = known.keys().cloned().collect();
            return Err(wrong(format!("no agent is called {:?}", table.name))
                .with_known(&table.name, known));
        };
        if members.iter().any(|member| *member.name == *table.name) {
            return Err(wrong(format!("{:?} is named twice", table.name)));
        }
        if table.weight.is_some_and(|weight| !weight.is_finite() || weight <= 0.0) {
            return Err(wrong(format!("{:?}: expected a weight above 0", table.name)));
        }
        members.push(Member::new(&table.name, Arc::clone(callee), table.weight, table.when));
    }
    if members.iter().all(|member| member.when.is_some()) {
        return Err(wrong("names no agent to call first".into()));
    }
    Ok(members)
}

fn time(name: &str, seconds: f64) -> Result<Duration, ConfigError> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| ConfigError::at(name, "expected a number of seconds"))
}
