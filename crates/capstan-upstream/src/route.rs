//! `route`: several agents as one. If a member fails before the first token, the same attempt calls
//! the next member, and no packet is written. If an answer breaks off later, the next attempt
//! continues or repeats it.
//!
//! `config` reads the table, `order` sorts the members, `attempt` calls them, `passes` decides
//! whether another member may be called after a failure. `breaker` and `budget` limit the load
//! during an outage.
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
use capstan_protocol::{Dialect, Fault};

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

/// The row of this kind. A route cannot be built without other agents.
pub(crate) const KIND: Kind =
    Kind::agent("route", "several of the other agents, one standing in for another", |keys| {
        read_keys::<config::Config>(keys)?.alone()
    });

/// State that all routes of a configuration share.
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
    /// The limit for the first token, if there is another member.
    first_token: Duration,
    /// After this time without a first token, the next member is called in parallel.
    hedge: Option<Duration>,
    /// The most attempts of a run.
    attempts: u32,
    /// The most calls of a run, over all members and attempts.
    max_calls: u32,
    on_cut: OnCut,
    on_refusal: OnRefusal,
    budget: RetryBudget,
    breaker: Arc<dyn Breaker>,
    policy: Policy,
    clock: Clock,
}

/// An agent as a member of a route.
struct Member {
    name: Arc<str>,
    upstream: Arc<dyn Callee>,
    weight: Option<f64>,
    when: Option<When>,
    /// The member was asked to continue an answer, and refused.
    refuses_prefill: AtomicBool,
}

impl Member {
    fn new(name: &str, upstream: Arc<dyn Callee>, weight: Option<f64>, when: Option<When>) -> Self {
        Self { name: name.into(), upstream, weight, when, refuses_prefill: AtomicBool::new(false) }
    }

    /// How the member is asked to continue an answer, if it can.
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

    /// Ends a remote run. Its id contains the member that started it.
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

    fn reads(&self, dialect: Dialect) -> bool {
        self.members.iter().any(|member| member.upstream.reads(dialect))
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
