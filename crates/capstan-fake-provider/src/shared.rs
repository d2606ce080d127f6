//! What all connections share: the script, and the record of calls.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::asked::Asked;
use crate::connection::Request;
use crate::fault::Fault;
use crate::record::Call;
use crate::rule::{Rule, When};
use crate::script::Script;
use crate::shape::Shape;

/// Ended calls that a slow follower may be behind.
const FOLLOWED: usize = 1024;

/// How a kept answer that is read on stands on record.
const RESUMED: &str = "responses-resumed";

/// The script and the record.
#[derive(Debug)]
pub(crate) struct Shared {
    script: Mutex<Script>,
    state: Mutex<State>,
    pub(crate) changes: watch::Sender<()>,
    pub(crate) ended: broadcast::Sender<Call>,
}

#[derive(Debug)]
struct State {
    calls: Vec<Call>,
    /// How often each model was called since the faults were set.
    nth: HashMap<String, usize>,
    began: Instant,
    /// When the faults were set.
    set: Instant,
    /// How often the port was closed since then.
    refusals: usize,
}

impl Shared {
    pub(crate) fn new(script: Script) -> Self {
        let now = Instant::now();
        let state =
            State { calls: Vec::new(), nth: HashMap::new(), began: now, set: now, refusals: 0 };
        let (changes, ended) = (watch::Sender::new(()), broadcast::Sender::new(FOLLOWED));
        Self { script: Mutex::new(script), state: Mutex::new(state), changes, ended }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    pub(crate) fn faults(&self) -> Vec<Rule> {
        self.script().faults.clone()
    }

    pub(crate) fn set_faults(&self, faults: Vec<Rule>) {
        self.script().faults = faults;
        let mut state = self.state();
        state.nth.clear();
        state.refusals = 0;
        state.set = Instant::now();
        drop(state);
        self.changes.send_replace(());
    }

    /// Whether the port is closed before the next call, and for how long.
    pub(crate) fn refusal(&self) -> Option<Option<Duration>> {
        let faults = self.faults();
        let rule = faults.iter().find(|rule| rule.fault == Fault::RefuseConnection)?;
        let state = self.state();
        let next = state.nth.values().sum::<usize>() + state.refusals + 1;
        let is_due = match rule.when {
            When::Always => state.refusals == 0 || rule.seconds.is_none(),
            When::Calls(first, last) => (first..=last).contains(&next),
            When::Share(_) => false,
            When::Within(time) => state.set.elapsed() < time,
        };
        let time = match rule.when {
            When::Within(time) => Some(time.saturating_sub(state.set.elapsed())),
            When::Always | When::Calls(..) | When::Share(_) => rule.seconds,
        };
        is_due.then_some(time)
    }

    /// The port was closed once more.
    pub(crate) fn note_refusal(&self) {
        self.state().refusals += 1;
    }

    /// Notes a call, and what is to happen to it.
    pub(crate) fn begin(
        &self,
        shape: Shape,
        asked: &Asked,
        request: &Request,
    ) -> (usize, Option<Rule>) {
        let (faults, seed) = {
            let script = self.script();
            (script.faults.clone(), script.seed)
        };
        let mut state = self.state();
        let nth = state.nth.entry(asked.model.clone()).or_default();
        *nth += 1;
        let (nth, since) = (*nth, state.set.elapsed());
        let named = named(&asked.model);
        let mut rules =
            faults.into_iter().filter(|rule| rule.fault != Fault::RefuseConnection).chain(named);
        let rule = rules.find(|rule| rule.strikes(&asked.model, nth, seed, since));
        let number = state.calls.len() + 1;
        let at = state.began.elapsed().as_secs_f64();
        state.calls.push(Call {
            number,
            nth,
            at,
            api: shape.name(),
            model: asked.model.clone(),
            fault: rule.as_ref().map(|rule| rule.fault.to_string()),
            tokens: 0,
            ending: None,
            headers: request.headers.clone(),
            body: request.json(),
        });
        drop(state);
        self.changes.send_replace(());
        (number, rule)
    }

    /// An answer that was kept is read on: no call of a model, but on record.
    pub(crate) fn note_resume(&self, request: &Request) {
        let mut state = self.state();
        let (number, at) = (state.calls.len() + 1, state.began.elapsed().as_secs_f64());
        state.calls.push(Call {
            number,
            nth: 0,
            at,
            api: RESUMED,
            model: String::new(),
            fault: None,
            tokens: 0,
            ending: None,
            headers: request.headers.clone(),
            body: format!("{}?{}", request.path, request.query).into(),
        });
        drop(state);
        self.changes.send_replace(());
    }

    pub(crate) fn update(&self, number: usize, change: impl FnOnce(&mut Call)) -> Option<Call> {
        let mut state = self.state();
        let call = state.calls.get_mut(number.checked_sub(1)?)?;
        change(call);
        let call = call.clone();
        drop(state);
        self.changes.send_replace(());
        Some(call)
    }
}

/// A model that is called like a fault has it: `status-503`, `some/truncated@1`.
fn named(model: &str) -> Option<Rule> {
    model.rsplit('/').next()?.parse().ok()
}
