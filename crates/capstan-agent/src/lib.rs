#![doc = include_str!("../README.md")]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod about;
mod calls;
mod cancel;
mod clock;
mod output;
mod queue;
mod trace;
mod turn;
mod writer;

pub use about::{About, Endpoint, Work};
pub use async_trait::async_trait;
pub use calls::{
    BreakerState, CallBegan, CallEnded, CallOutcome, CallsMade, MemberCalls, MemberState, Receipt,
};
pub use cancel::{Cancel, CancelReason, Canceller};
use capstan_protocol::Fault;
pub use capstan_protocol::agui::{Context, Interrupt, ResumeEntry, ResumeStatus, Tool};
pub use clock::{Clock, Timer};
pub use output::{Output, Stopped};
pub use queue::Inbox;
use std::time::Duration;
pub use trace::TraceParent;
pub use turn::{Sent, Turn};
pub use writer::{WriteError, Writer, channel};

/// How long ending what was started elsewhere may take; a drain waits for it.
pub const END_LIMIT: Duration = Duration::from_secs(10);

/// What produces packets.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Answers one turn. Called once per attempt; a dropped future means that the run was stopped
    /// or timed out.
    ///
    /// An agent may simply return errors with `?`: they are classified by the catalogue. A panic
    /// becomes `agent_execution_error`.
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome;

    /// Ends what an attempt of this agent has started elsewhere, under the id that it gave to
    /// [`Writer::far_id`]. Called once a run has ended otherwise than by being complete, possibly
    /// in another life of the process than the attempt's. What does not return in [`END_LIMIT`] is
    /// given up.
    async fn end(&self, _far_id: &str, _reason: CancelReason) -> Result<(), Fault> {
        Ok(())
    }

    /// How often a run may be tried. One, unless trying again does no harm: agents with side
    /// effects keep this.
    fn max_attempts(&self) -> u32 {
        1
    }

    /// How many tokens its upstream counts in what it would be asked; `None` if nobody there
    /// counts.
    async fn count_tokens(&self, _turn: Turn) -> Option<Result<u64, Fault>> {
        None
    }

    /// What traces say of it.
    fn about(&self) -> About {
        About::default()
    }

    /// Where its upstream is, if that is elsewhere.
    fn endpoint(&self) -> Option<Endpoint> {
        None
    }

    /// The members of a route, and how each stands; no other agent has any.
    fn members(&self) -> Vec<MemberState> {
        Vec::new()
    }
}

/// An agent that was chosen at run time, by a configuration for example.
#[async_trait]
impl Agent for Box<dyn Agent> {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        (**self).run(turn, out).await
    }

    async fn end(&self, far_id: &str, reason: CancelReason) -> Result<(), Fault> {
        (**self).end(far_id, reason).await
    }

    fn max_attempts(&self) -> u32 {
        (**self).max_attempts()
    }

    async fn count_tokens(&self, turn: Turn) -> Option<Result<u64, Fault>> {
        (**self).count_tokens(turn).await
    }

    fn about(&self) -> About {
        (**self).about()
    }

    fn endpoint(&self) -> Option<Endpoint> {
        (**self).endpoint()
    }

    fn members(&self) -> Vec<MemberState> {
        (**self).members()
    }
}

/// How an attempt ended.
pub type Outcome = Result<(), Failure>;

/// A fault on its way out of an agent. Any error becomes one with `?`.
#[derive(Debug)]
pub struct Failure {
    // Boxed, because every step of every agent returns room for it.
    fault: Box<Fault>,
    is_final: bool,
}

impl Failure {
    /// A fault after which trying again at once is of no use, as the agent knows. If it is
    /// TRANSIENT and attempts are left, the gateway makes none of its own accord: the run waits for
    /// its client to come back. A flag of its own, because a fault's details are for the client to
    /// read.
    pub fn last(fault: Fault) -> Self {
        Self { fault: Box::new(fault), is_final: true }
    }

    /// Whether another attempt must wait for the client.
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// The fault, to look at.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// The fault.
    pub fn into_fault(self) -> Fault {
        *self.fault
    }
}

// `Failure` is no `Error` itself, so that this covers every error, faults included.
impl<E: std::error::Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { fault: Box::new(Fault::from_error(error)), is_final: false }
    }
}

/// The guide's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/migration.md")]
struct Migration;
