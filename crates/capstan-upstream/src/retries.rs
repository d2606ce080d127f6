//! How often an upstream is called, and when: the one retry policy of all kinds.
//!
//! A run has a budget of calls over all its attempts. It is spent by a rule that needs no memory
//! and so holds across restarts: each attempt after the first makes one call, the first makes what
//! is left, and whatever an attempt does not use is not saved up.

use std::time::Duration;

use capstan_agent::Turn;
use capstan_protocol::{Backoff, Dialect, ErrorSeverity, Fault, FaultKind};
use serde::Deserialize;

use crate::failed_call::FailedCall;

/// Calls of one run: enough for a hiccup and a restart, too few to hurt a provider that is down.
pub const MAX_CALLS: u32 = 4;
/// A provider's wait up to this is slept through within the attempt; a longer one is the gateway's
/// to deal with.
pub(crate) const SHORT_WAIT: Duration = Duration::from_secs(5);

/// What happens when an answer breaks off after its first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnCut {
    /// Another attempt; what it says again is swallowed.
    #[default]
    Restart,
    /// The run fails.
    Fail,
}

/// How often and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Attempts of a run.
    pub attempts: u32,
    /// Calls of a run, over all attempts.
    pub max_calls: u32,
    /// After the first token.
    pub on_cut: OnCut,
    /// Whether a call that may have reached the upstream can be made again: a question to a model
    /// can, an order to an agent cannot.
    pub is_repeatable: bool,
}

impl Retries {
    /// For model providers: asking again does no harm.
    pub const PROVIDER: Self =
        Self { attempts: 3, max_calls: MAX_CALLS, on_cut: OnCut::Restart, is_repeatable: true };
    /// For agents that may have side effects.
    pub const CAREFUL: Self =
        Self { attempts: 1, max_calls: MAX_CALLS, on_cut: OnCut::Restart, is_repeatable: false };

    /// Calls that an attempt may make. Over all attempts they come to `max_calls` at most.
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

    /// The wait before the next call of an attempt that has made `made` and said nothing, if there
    /// may be one.
    pub(crate) fn wait(&self, failed: &FailedCall, attempt: u32, made: u32) -> Option<Duration> {
        let passes = failed.fault.severity() == ErrorSeverity::Transient;
        let is_safe = self.is_repeatable || failed.is_refusal;
        if !passes || !is_safe || made >= self.calls(attempt) {
            return None;
        }
        // What has just stalled is tried once more in a run, and then by the next attempt, if there
        // may be one.
        if failed.fault.kind() == FaultKind::UpstreamTimeout && (self.attempts > 1 || made > 1) {
            return None;
        }
        let told = failed.wait.unwrap_or_default();
        (told <= SHORT_WAIT)
            .then(|| told.max(Backoff::DEFAULT.delay(made.saturating_sub(1), fastrand::f64())))
    }

    /// What an attempt ends with.
    pub(crate) fn verdict(&self, fault: Fault, attempt: u32, has_written: bool) -> Fault {
        // Nobody would wait for a third one.
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

/// Whether the client should repeat the call rather than the gateway: the provider refused it
/// before the answer began, and this protocol's clients repeat such a call by themselves. Their
/// repeats would multiply with the gateway's.
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
    fn only_what_passes_is_tried_again_and_only_after_a_short_wait() {
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
        let told = |seconds| FailedCall {
            wait: Some(Duration::from_secs(seconds)),
            ..failed(FaultKind::UpstreamError)
        };
        assert_eq!(retries.wait(&told(2), 1, 1), Some(Duration::from_secs(2)));
        assert_eq!(retries.wait(&told(30), 1, 1), None, "the gateway waits, not the attempt");
    }

    #[test]
    fn an_agent_with_side_effects_is_called_again_only_if_it_did_not_begin() {
        let careful = Retries::CAREFUL;
        assert_eq!(careful.wait(&failed(FaultKind::UpstreamTruncated), 1, 1), None);
        assert!(careful.wait(&failed(FaultKind::UpstreamUnreachable).refused(), 1, 1).is_some());
    }

    #[test]
    fn what_has_stalled_is_tried_once_more() {
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
