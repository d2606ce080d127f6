//! The log of runs: a line for each failed attempt, each end, and each request that attaches.

use capstan_journal::{ContinuedBy, Run};
use capstan_protocol::Exposure;

use capstan_engine::events::{Happened, RunEvent, RunObserver};
use capstan_engine::loggable;

pub(crate) struct RunLog(pub(crate) Exposure);

impl RunObserver for RunLog {
    fn name(&self) -> &'static str {
        "log"
    }

    #[allow(clippy::wildcard_enum_match_arm)] // Most of what happens is no line of the log.
    fn observe(&self, event: &RunEvent) {
        let run = &event.run;
        match &event.what {
            // One line with all facts that an operator needs. The upstream's text goes to the log
            // only.
            Happened::AttemptFailed { fault } => {
                let upstream = fault.upstream().cloned().unwrap_or_default();
                tracing::warn!(stream = %run.stream_id, tenant = %run.tenant, agent = %run.agent,
                attempt = run.attempt, code = fault.code(),
                    severity = %fault.severity(), host = upstream.host, status = upstream.status,
                    upstream_request_id = upstream.request_id,
                    cause = loggable(fault, self.0), stderr = upstream.stderr, "attempt failed");
            }
            Happened::Attached { after, behind } => {
                tracing::info!(stream = %run.stream_id, tenant = %run.tenant, agent = %run.agent,
                attempts = run.attempt, packets = run.last_seq, after, behind, "request attached");
            }
            Happened::Ended => {
                let reason = run.reason.as_deref().unwrap_or_default();
                tracing::info!(stream = %run.stream_id, tenant = %run.tenant, key = %run.key,
                agent = %run.agent, attempts = run.attempt, continued_by = continued_by(run),
                    packets = run.last_seq, reason, fault = run.fault.as_deref().unwrap_or("none"),
                    "run ended");
            }
            _ => {}
        }
    }
}

/// The ways in which the attempts of a run continued its answer, in order.
fn continued_by(run: &Run) -> String {
    let ways = run.attempts.iter().filter_map(|attempt| attempt.continued_by);
    let ways: Vec<_> = ways.map(ContinuedBy::as_str).collect();
    if ways.is_empty() { "none".into() } else { ways.join(",") }
}
