//! The state that all connections share: the script, and the record of calls.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::fault::Fault;
use crate::output::Output;
use crate::place::Place;
use crate::protocol::{Complaint, Shape};
use crate::question::Question;
use crate::record::{Call, Ending};
use crate::request::Request;
use crate::rule::{Rule, When};
use crate::script::Script;
use crate::seal::Sealer;

/// The number of ended calls that a slow receiver may be behind.
const FOLLOWED: usize = 1024;

/// The script and the record.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) sealer: Sealer,
    script: Mutex<Script>,
    state: Mutex<State>,
    pub(crate) changes: watch::Sender<()>,
    pub(crate) ended: broadcast::Sender<Call>,
}

#[derive(Debug)]
struct State {
    calls: Vec<Call>,
    /// The number of calls of each model since the faults were set.
    nth: HashMap<String, usize>,
    /// The number of a model's calls that each rule matched since then.
    due: HashMap<(usize, String), usize>,
    /// Tool calls that came after sealed thinking.
    issued: HashSet<String>,
    began: Instant,
    /// When the faults were set.
    set: Instant,
    /// The number of times that the port was closed since then.
    refusals: usize,
}

impl Shared {
    /// `name` identifies its seals.
    pub(crate) fn new(script: Script, name: String) -> Self {
        let now = Instant::now();
        let state = State {
            calls: Vec::new(),
            nth: HashMap::new(),
            due: HashMap::new(),
            issued: HashSet::new(),
            began: now,
            set: now,
            refusals: 0,
        };
        let (changes, ended) = (watch::Sender::new(()), broadcast::Sender::new(FOLLOWED));
        Self {
            sealer: Sealer::new(name),
            script: Mutex::new(script),
            state: Mutex::new(state),
            changes,
            ended,
        }
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
        state.due.clear();
        state.refusals = 0;
        state.set = Instant::now();
        drop(state);
        self.changes.send_replace(());
    }

    /// Whether the port closes before the next call, and for how long.
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

    /// Counts a closed port.
    pub(crate) fn note_refusal(&self) {
        self.state().refusals += 1;
    }

    /// Records a call, and chooses its fault.
    pub(crate) fn begin(&self, shape: Shape, question: &Question, request: &Request) -> Begun {
        let script = self.script().clone();
        let mut state = self.state();
        let number = state.calls.len() + 1;
        let answer = script.answer_to(question);
        let id = script.unique_ids.then_some(number);
        let output = Output::new(answer, shape, question, &self.sealer, id);
        let body = request.json();
        let complaint =
            missing(shape, &body).or_else(|| self.sealer.complaint(shape, &body, &state.issued));
        if output.is_sealed() {
            state.issued.extend(output.call_ids.iter().cloned());
        }
        let nth = state.nth.entry(question.model.clone()).or_default();
        *nth += 1;
        let nth = *nth;
        let rule = state.rule(&script, shape, question, &output);
        let mut call = Call::new(request, number, state.began.elapsed().as_secs_f64());
        call.nth = nth;
        call.api = shape.name();
        call.model = question.model.clone();
        call.fault = rule.as_ref().map(|rule| rule.fault.to_string());
        let is_refused = rule.as_ref().is_none_or(|rule| !rule.fault.comes_first());
        let complaint = complaint.filter(|_| is_refused);
        call.complaint = complaint.as_ref().map(|complaint| complaint.message.to_string());
        state.calls.push(call);
        drop(state);
        self.changes.send_replace(());
        Begun { number, output, rule, complaint, interval: script.token_interval }
    }

    /// Records a request that is no call of a model.
    pub(crate) fn note(&self, request: &Request, api: &'static str) {
        let mut state = self.state();
        let mut call =
            Call::new(request, state.calls.len() + 1, state.began.elapsed().as_secs_f64());
        call.api = api;
        call.ending = Some(Ending::Complete);
        state.calls.push(call);
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

/// A call that has begun, and what it gets.
pub(crate) struct Begun {
    pub(crate) number: usize,
    pub(crate) output: Output,
    pub(crate) rule: Option<Rule>,
    /// Why it is refused, though no fault strikes.
    pub(crate) complaint: Option<Complaint>,
    pub(crate) interval: Duration,
}

impl State {
    /// The first rule that strikes a call. Each counts the calls that it is for.
    fn rule(
        &mut self,
        script: &Script,
        shape: Shape,
        question: &Question,
        output: &Output,
    ) -> Option<Rule> {
        let since = self.set.elapsed();
        let has = |place: Place| {
            question.is_stream && place.cut(&shape.frames(question, output, None)).is_some()
        };
        let rules = script.faults.iter().cloned().chain(named(&question.model));
        let is_due = |rule: &Rule| {
            rule.fault != Fault::RefuseConnection
                && rule.only.fits(question)
                && rule.at.is_none_or(has)
        };
        let mut struck = None;
        for (index, rule) in rules.enumerate().filter(|(_, rule)| is_due(rule)) {
            let nth = self.due.entry((index, question.model.clone())).or_default();
            *nth += 1;
            if struck.is_none() && rule.strikes(*nth, script.seed, since) {
                struck = Some(rule);
            }
        }
        struck
    }
}

/// Anthropic's error for a request that lacks a required member.
fn missing(shape: Shape, body: &Value) -> Option<Complaint> {
    let is_there = |name: &str, is_it: fn(&Value) -> bool| body.get(name).is_some_and(is_it);
    let message = match shape {
        Shape::Chat | Shape::Responses => return None,
        Shape::Messages if !is_there("model", Value::is_string) => {
            "model: Input should be a valid string"
        }
        Shape::Messages if !is_there("messages", Value::is_array) => "messages: Field required",
        Shape::Messages => return None,
    };
    Some(Complaint {
        status: 400,
        kind: "invalid_request_error",
        code: None,
        message: message.into(),
    })
}

/// The rule in a model's name: `status-503`, `some/truncated@1`.
fn named(model: &str) -> Option<Rule> {
    model.rsplit('/').next()?.parse().ok()
}
