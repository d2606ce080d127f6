//! A failed attempt is counted and logged here, whoever noticed it: the relay, a drain, or recovery after a restart.

use capstan_journal::Run;
use capstan_protocol::Fault;

use crate::app::App;

/// One line with everything that tells an operator why. The words of an upstream go to the log alone.
pub(super) fn record(app: &App, run: &Run, fault: &Fault) {
    app.metrics.fault(fault.kind(), app.agent_label(&run.agent));
    let upstream = fault.upstream().cloned().unwrap_or_default();
    tracing::warn!(stream = %run.stream_id, tenant = %run.tenant, agent = %run.agent, attempt = run.attempt, code = fault.code(),
        severity = %fault.severity(), host = upstream.host, status = upstream.status, upstream_request_id = upstream.request_id,
        cause = app.loggable(fault), stderr = upstream.stderr, "attempt failed");
}
