//! `route`: several agents as one. Who fails before a first token is left for the next, within the
//! same attempt and without a packet; what breaks off later is continued or said again by the next
//! attempt.
//!
//! `config` reads the table, `order` says who is asked first, `attempt` asks, `passes` decides what
//! a failure means for the others, `breaker` and `budget` keep an outage from growing.

mod attempt;
mod breaker;
mod budget;
mod config;
mod order;
mod passes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use capstan_agent::{About, Agent, CancelReason, Clock, MemberState, Outcome, Turn, Work, Writer};
use capstan_protocol::Fault;

pub use config::FIRST_TOKEN;
pub(crate) use config::build;

use crate::callee::Callee;
use crate::config::read_keys;
use crate::kind::Kind;
use crate::prefill::Prefill;
use crate::retries::OnCut;
use breaker::{Breaker, Policy};
pub use breaker::{BreakerChange, Breakers};
use budget::RetryBudget;
use config::{OnRefusal, When};

/// Its row. A route alone has nobody to call.
pub(crate) const KIND: Kind =
    Kind::agent("route", "several of the other agents, one standing in for another", |keys| {
        read_keys::<config::Config>(keys)?.alone()
    });

/// What the routes of a configuration have in common.
pub(crate) struct Shared {
    clock: Clock,
    breaker: Arc<dyn Breaker>,
}

impl Shared {
    pub(crate) fn new(clock: Clock, breakers: &Breakers) -> Self {
        Self { clock, breaker: Arc::clone(&breakers.0) as Arc<dyn Breaker> }
    }
}

pub(crate) struct Route {
    members: Vec<Member>,
    /// While another member is there.
    first_token: Duration,
    /// After this time without a first token the next member is called beside.
    hedge: Option<Duration>,
    /// Of a run.
    attempts: u32,
    /// Of a run, over all members and attempts.
    max_calls: u32,
    on_cut: OnCut,
    on_refusal: OnRefusal,
    budget: RetryBudget,
    breaker: Arc<dyn Breaker>,
    policy: Policy,
    clock: Clock,
}

/// An agent as a part of a route.
struct Member {
    name: Arc<str>,
    upstream: Arc<dyn Callee>,
    weight: Option<f64>,
    when: Option<When>,
    /// It was told to go on from a text, and would not.
    refuses_prefill: AtomicBool,
}

impl Member {
    fn new(name: &str, upstream: Arc<dyn Callee>, weight: Option<f64>, when: Option<When>) -> Self {
        Self { name: name.into(), upstream, weight, when, refuses_prefill: AtomicBool::new(false) }
    }

    /// How it is told to go on, if it can be.
    fn prefill(&self) -> Option<Prefill> {
        let prefill = self.upstream.prefill();
        (prefill != Prefill::Off && !self.refuses_prefill.load(Ordering::Relaxed))
            .then_some(prefill)
    }

    fn takes_prefill(&self) -> bool {
        self.prefill().is_some()
    }
}

#[async_trait]
impl Agent for Route {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        attempt::RouteAttempt::new(self, &turn, out).run().await
    }

    /// The id says which member started it.
    async fn end(&self, far_id: &str, reason: CancelReason) -> Result<(), Fault> {
        let Some((name, id)) = far_id.split_once('/') else { return Ok(()) };
        match self.members.iter().find(|member| *member.name == *name) {
            Some(member) => member.upstream.end(id, reason).await,
            None => Ok(()),
        }
    }

    fn max_attempts(&self) -> u32 {
        self.attempts
    }

    fn about(&self) -> About {
        About::agent("route", Work::Local)
    }

    fn members(&self) -> Vec<MemberState> {
        let now = self.clock.instant();
        let state = |member: &Member| MemberState {
            name: Arc::clone(&member.name),
            breaker: self.breaker.state(&member.name, now),
        };
        self.members.iter().map(state).collect()
    }
}
