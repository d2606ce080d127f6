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
pub mod sealed;
mod trace;
mod turn;
mod writer;

pub use about::{About, Endpoint, Work};
pub use async_trait::async_trait;
pub use calls::{
    BreakerState, CallBegan, CallEnded, CallOutcome, CallsMade, MemberCalls, MemberState, Receipt,
};
pub use cancel::{Cancel, CancelReason, Canceller};
pub use capstan_protocol::agui::{Context, Interrupt, ResumeEntry, ResumeStatus, Tool};
use capstan_protocol::{Dialect, Fault, NativeOrigin};
pub use clock::{Clock, Timer};
pub use output::{Continued, Output, Stopped};
pub use queue::Inbox;
use std::time::Duration;
pub use trace::TraceParent;
pub use turn::{Sent, Turn};
pub use writer::{WriteError, Writer, channel};

/// The time limit for ending work that an agent started elsewhere. A drain waits for it.
pub const END_LIMIT: Duration = Duration::from_secs(10);

/// Produces the packets of runs.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Answers one turn. Called once per attempt; a dropped future means that the run was stopped
    /// or timed out.
    ///
    /// An agent may simply return errors with `?`: they are classified by the catalogue. A panic
    /// becomes `agent_execution_error`.
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome;

    /// Ends the work that an attempt of this agent has started elsewhere, under the id that it
    /// passed to [`Writer::far_id`]. The gateway calls it when a run has ended without success,
    /// possibly in another process than the attempt's. It gives up after [`END_LIMIT`].
    async fn end(&self, _far_id: &str, _reason: CancelReason) -> Result<(), Fault> {
        Ok(())
    }

    /// The number of attempts of a run. Keep the default of one if the agent has side effects.
    fn max_attempts(&self) -> u32 {
        1
    }

    /// The tokens of a turn as its upstream counts them; `None` if the upstream cannot count.
    async fn count_tokens(&self, _turn: Turn) -> Option<Result<u64, Fault>> {
        None
    }

    /// Its description for traces.
    fn about(&self) -> About {
        About::default()
    }

    /// The address of its upstream, if it has one.
    fn endpoint(&self) -> Option<Endpoint> {
        None
    }

    /// The members of a route, and how each stands; no other agent has any.
    fn members(&self) -> Vec<MemberState> {
        Vec::new()
    }

    /// The provider and model whose reasoning its answers hold, if its protocol is a provider's.
    fn origin(&self) -> Option<NativeOrigin> {
        None
    }

    /// Whether it reads what clients of this protocol wrote, as native parts of earlier messages.
    fn reads(&self, dialect: Dialect) -> bool {
        self.origin().is_some_and(|origin| origin.dialect == dialect)
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

    fn origin(&self) -> Option<NativeOrigin> {
        (**self).origin()
    }

    fn reads(&self, dialect: Dialect) -> bool {
        (**self).reads(dialect)
    }
}

/// The end of an attempt.
pub type Outcome = Result<(), Failure>;

/// A fault on its way out of an agent. Any error becomes one with `?`.
#[derive(Debug)]
pub struct Failure {
    // Boxed, because every step of every agent returns room for it.
    fault: Box<Fault>,
    is_final: bool,
}

impl Failure {
    /// A fault after which an immediate retry is useless, as the agent knows. If it is TRANSIENT
    /// and attempts are left, the gateway makes no attempt by itself: the run waits for its client.
    /// This is a flag of its own, because a fault's details are for clients.
    pub fn last(fault: Fault) -> Self {
        Self { fault: Box::new(fault), is_final: true }
    }

    /// Whether the next attempt must wait for the client.
    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// The fault.
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
