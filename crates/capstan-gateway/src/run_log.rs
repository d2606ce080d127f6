//! The log of runs: a line for each failed attempt and each end.

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
            Happened::Ended => {
                let reason = run.reason.as_deref().unwrap_or_default();
                tracing::info!(stream = %run.stream_id, tenant = %run.tenant, key = %run.key,
                agent = %run.agent, attempts = run.attempt,
                    packets = run.last_seq, reason, fault = run.fault.as_deref().unwrap_or("none"),
                    "run ended");
            }
            _ => {}
        }
    }
}
