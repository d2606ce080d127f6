//! A call that failed, with what the retry policy needs to know.

use std::time::Duration;

use capstan_agent::{Stopped, Turn};
use capstan_protocol::Fault;

/// A failed call.
#[derive(Debug, Clone)]
pub(crate) struct FailedCall {
    pub(crate) fault: Fault,
    /// The upstream's wait, exactly. The fault has it in whole seconds.
    pub(crate) wait: Option<Duration>,
    /// The upstream refused before it began to work, so a retry cannot repeat an effect.
    pub(crate) is_refusal: bool,
}

impl From<Fault> for FailedCall {
    fn from(fault: Fault) -> Self {
        Self { fault, wait: None, is_refusal: false }
    }
}

impl From<Stopped> for FailedCall {
    fn from(stopped: Stopped) -> Self {
        Self::from(Fault::from_error(stopped))
    }
}

impl FailedCall {
    pub(crate) fn refused(mut self) -> Self {
        self.is_refusal = true;
        self
    }

    /// Logs that a route leaves a member. Nothing else shows this within an attempt.
    pub(crate) fn log_fallback(&self, turn: &Turn, member: &str, made: u32) {
        let (fault, upstream) = (&self.fault, self.fault.upstream().cloned().unwrap_or_default());
        tracing::info!(stream = %turn.run, agent = %turn.agent, member, attempt = turn.attempt,
        call = made, code = fault.code(),
            host = upstream.host, status = upstream.status,
            upstream_request_id = upstream.request_id,
            cause = fault.cause().map(ToString::to_string), "call failed, calling another member");
    }

    /// Logs a failed call. Nothing else shows this within an attempt.
    pub(crate) fn log_retry(&self, turn: &Turn, made: u32, wait: Duration) {
        let (fault, upstream) = (&self.fault, self.fault.upstream().cloned().unwrap_or_default());
        tracing::info!(stream = %turn.run, agent = %turn.agent, attempt = turn.attempt,
        call = made, code = fault.code(),
            host = upstream.host, status = upstream.status,
            upstream_request_id = upstream.request_id,
            cause = fault.cause().map(ToString::to_string), wait_seconds = wait.as_secs_f64(),
            "call failed, to be made again");
    }
}
