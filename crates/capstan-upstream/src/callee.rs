//! The upstreams of a route: agents that can make a single call.

use std::time::Duration;

use async_trait::async_trait;
use capstan_agent::{Agent, Turn};

use crate::attempt_writer::AttemptWriter;
use crate::failed_call::FailedCall;
use crate::prefill::Prefill;

/// The request for one call.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) turn: &'a Turn,
    /// The text that the answer continues, and how the server is asked to continue.
    pub(crate) prefill: Option<(Prefill, &'a str)>,
    /// The limit for the first token, if it differs from the upstream's own.
    pub(crate) first_token: Option<Duration>,
}

/// An agent that can make a single call.
#[async_trait]
pub(crate) trait Callee: Agent {
    /// Makes one call, without a retry.
    async fn call(&self, ask: Ask<'_>, out: &mut AttemptWriter<'_>) -> Result<(), FailedCall>;

    /// Whether a call that may have reached the upstream can be repeated, there or at another one.
    fn is_repeatable(&self) -> bool;

    /// How an answer is continued.
    fn prefill(&self) -> Prefill {
        Prefill::Off
    }
}

/// An agent of another crate uses the writer itself, so its output cannot be held back.
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
