//! An upstream as a route sees it: something of which one call can be made.

use std::time::Duration;

use async_trait::async_trait;
use capstan_agent::{Agent, Turn};

use crate::attempt_writer::AttemptWriter;
use crate::failed_call::FailedCall;
use crate::prefill::Prefill;

/// What one call is about.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) turn: &'a Turn,
    /// What the answer is to go on from, and how that is said.
    pub(crate) prefill: Option<(Prefill, &'a str)>,
    /// How long a first token may take, if not as long as the upstream's own limit has it.
    pub(crate) first_token: Option<Duration>,
}

/// An agent that can also be called once.
#[async_trait]
pub(crate) trait Callee: Agent {
    /// One call, without a second try.
    async fn call(&self, ask: Ask<'_>, out: &mut AttemptWriter<'_>) -> Result<(), FailedCall>;

    /// Whether a call that may have reached it can be made again, there or elsewhere.
    fn is_repeatable(&self) -> bool;

    /// How an answer is continued.
    fn prefill(&self) -> Prefill {
        Prefill::Off
    }
}

/// An agent from elsewhere writes by itself, so what it says is not held back.
#[async_trait]
impl Callee for Box<dyn Agent> {
    async fn call(&self, ask: Ask<'_>, out: &mut AttemptWriter<'_>) -> Result<(), FailedCall> {
        let ended = self.run(ask.turn.clone(), out.open().await?).await;
        out.note_written();
        ended.map_err(|failure| failure.into_fault().into())
    }

    fn is_repeatable(&self) -> bool {
        true
    }
}
