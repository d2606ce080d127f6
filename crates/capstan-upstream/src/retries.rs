//! The retry policy of all kinds: how often an upstream is called, and when.
//!
//! A run has a budget of calls over all its attempts. A fixed rule divides it, so that it holds
//! across restarts: each attempt after the first makes one call, and the first makes the rest.
//! Unused calls are not carried over.

use std::time::Duration;

use capstan_agent::Turn;
use capstan_protocol::{Backoff, Dialect, ErrorSeverity, Fault, FaultKind};
use serde::Deserialize;

use crate::failed_call::FailedCall;

/// Calls of one run: enough for a short failure and a restart, too few to harm a provider that is
/// down.
pub const MAX_CALLS: u32 = 4;
/// The attempt itself waits up to this long when a provider asks it to. For a longer wait the
/// attempt ends, and the gateway waits.
pub(crate) const SHORT_WAIT: Duration = Duration::from_secs(5);

/// The reaction to an answer that breaks off after its first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnCut {
    /// Make another attempt, and hide what it repeats.
    #[default]
    Restart,
    /// The run fails.
    Fail,
}

/// The retry policy of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// The most attempts of a run.
    pub attempts: u32,
    /// The most calls of a run, over all attempts.
    pub max_calls: u32,
    /// The reaction to a cut after the first token.
    pub on_cut: OnCut,
    /// Whether a call that may have reached the upstream can be repeated. A request to a model can;
    /// a request to an agent with side effects cannot.
    pub is_repeatable: bool,
}

impl Retries {
    /// For model providers: a repeat does no harm.
    pub const PROVIDER: Self =
        Self { attempts: 3, max_calls: MAX_CALLS, on_cut: OnCut::Restart, is_repeatable: true };
    /// For agents that may have side effects.
    pub const CAREFUL: Self =
        Self { attempts: 1, max_calls: MAX_CALLS, on_cut: OnCut::Restart, is_repeatable: false };

    /// The most calls of an attempt. Over all attempts their sum is at most `max_calls`.
    ///
    /// ```
    /// use capstan_upstream::Retries;
    /// let calls: Vec<u32> = (1..=3).map(|attempt| Retries::PROVIDER.calls(attempt)).collect();
    /// assert_eq!(calls, [2, 1, 1]);
    /// ```
    pub fn calls(&self, attempt: u32) -> u32 {
        if attempt > 1 {
            1
        } else {
            self.max_calls.saturating_sub(self.attempts.saturating_sub(1)).max(1)
        }
    }

    /// The wait before the next call, if the attempt may make one: it has made `made` calls and has
    /// no output.
    pub(crate) fn wait(&self, failed: &FailedCall, attempt: u32, made: u32) -> Option<Duration> {
        let passes = failed.fault.severity() == ErrorSeverity::Transient;
        let is_safe = self.is_repeatable || failed.is_refusal;
        if !passes || !is_safe || made >= self.calls(attempt) {
            return None;
        }
        // After a timeout, one more call is made in a run: by the next attempt if there may be one,
        // else by this one.
        if failed.fault.kind() == FaultKind::UpstreamTimeout && (self.attempts > 1 || made > 1) {
            return None;
        }
        let wait = failed.wait.unwrap_or_default();
        (wait <= SHORT_WAIT)
            .then(|| wait.max(Backoff::DEFAULT.delay(made.saturating_sub(1), fastrand::f64())))
    }

    /// Adjusts the fault with which an attempt ends.
    pub(crate) fn verdict(&self, fault: Fault, attempt: u32, has_written: bool) -> Fault {
        // After a second timeout, nobody would wait for a third one.
        let has_stalled_again = fault.kind() == FaultKind::UpstreamTimeout && attempt > 1;
        if has_stalled_again && self.is_repeatable {
            return fault.with_severity(ErrorSeverity::Fatal);
        }
        match self.on_cut {
            OnCut::Fail if has_written => fault.with_severity(ErrorSeverity::Fatal),
            OnCut::Fail | OnCut::Restart => fault,
        }
    }
}

/// Whether the client should retry instead of the gateway. True if the provider refused the call
/// before the answer began and this protocol's clients retry automatically: both retries would
/// multiply.
pub(crate) fn is_for_the_client(turn: &Turn, fault: &Fault) -> bool {
    let repeats =
        matches!(turn.dialect, Some(Dialect::AnthropicMessages | Dialect::OpenaiResponses));
    let has_begun = !turn.sent.text.is_empty() || turn.sent.events > 0;
    repeats && !has_begun && fault.details().contains_key("upstream_status")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: FaultKind) -> FailedCall {
        FailedCall::from(Fault::new(kind))
    }

    #[test]
    fn a_run_never_makes_more_calls_than_it_may() {
        for (attempts, max_calls) in [(1, 1), (1, 4), (3, 3), (3, 4), (4, 4), (2, 9)] {
            let retries = Retries { attempts, max_calls, ..Retries::PROVIDER };
            let calls: u32 = (1..=attempts).map(|attempt| retries.calls(attempt)).sum();
            assert_eq!(calls, max_calls, "{attempts} attempts");
        }
    }

    #[test]
    fn only_transient_failures_with_short_waits_are_retried() {
        let retries = Retries::PROVIDER;
        let wait = retries.wait(&failed(FaultKind::UpstreamError), 1, 1).unwrap();
        assert!((250..=500).contains(&wait.as_millis()), "{wait:?}");
        assert_eq!(retries.wait(&failed(FaultKind::UpstreamAuth), 1, 1), None, "FATAL");
        assert_eq!(
            retries.wait(&failed(FaultKind::UpstreamError), 1, 2),
            None,
            "the calls are spent"
        );
        assert_eq!(
            retries.wait(&failed(FaultKind::UpstreamError), 2, 1),
            None,
            "so are a later attempt's"
        );
        let asking_for = |seconds| FailedCall {
            wait: Some(Duration::from_secs(seconds)),
            ..failed(FaultKind::UpstreamError)
        };
        assert_eq!(retries.wait(&asking_for(2), 1, 1), Some(Duration::from_secs(2)));
        assert_eq!(retries.wait(&asking_for(30), 1, 1), None, "the gateway waits, not the attempt");
    }

    #[test]
    fn an_agent_with_side_effects_is_called_again_only_if_it_did_not_begin() {
        let careful = Retries::CAREFUL;
        assert_eq!(careful.wait(&failed(FaultKind::UpstreamTruncated), 1, 1), None);
        assert!(careful.wait(&failed(FaultKind::UpstreamUnreachable).refused(), 1, 1).is_some());
    }

    #[test]
    fn a_stalled_call_is_retried_once() {
        let (stall, retries) = (failed(FaultKind::UpstreamTimeout), Retries::PROVIDER);
        assert_eq!(retries.wait(&stall, 1, 1), None, "the next attempt's");
        assert_eq!(
            retries.verdict(stall.fault.clone(), 1, true).severity(),
            ErrorSeverity::Transient
        );
        assert_eq!(retries.verdict(stall.fault.clone(), 2, true).severity(), ErrorSeverity::Fatal);
        let alone = Retries { attempts: 1, ..retries };
        assert!(alone.wait(&stall, 1, 1).is_some() && alone.wait(&stall, 1, 2).is_none());
    }

    #[test]
    fn a_cut_is_fatal_if_the_configuration_says_so() {
        let fails = Retries { on_cut: OnCut::Fail, ..Retries::PROVIDER };
        let fault = Fault::new(FaultKind::UpstreamTruncated);
        assert_eq!(fails.verdict(fault.clone(), 1, true).severity(), ErrorSeverity::Fatal);
        assert_eq!(fails.verdict(fault.clone(), 1, false).severity(), ErrorSeverity::Transient);
        assert_eq!(Retries::PROVIDER.verdict(fault, 1, true).severity(), ErrorSeverity::Transient);
    }
}
