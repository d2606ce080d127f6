//! Health: `/health`, `/livez`, `/readyz`, `/metrics`, and a plain page at `/`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{ConnectInfo, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use capstan_protocol::{FaultKind, HealthCheckResponse, HealthStatus};
use http::{HeaderMap, StatusCode, Uri, header};

use crate::access::Access;
use crate::html;
use crate::metrics::Metrics;
use crate::refusal::Refusal;
use capstan_engine::Engine;
use capstan_kit::openapi::{Answer, Content, Row, Tag, model};

/// The state of the health routes.
#[derive(Clone)]
pub(crate) struct Monitor {
    pub(crate) engine: Engine,
    pub(crate) access: Access,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) started: Instant,
}

pub(crate) const HEALTH: Row = Row {
    tag: &Tag::SERVER,
    summary: "The health of the server",
    says: "The data contract's health check. It answers 200 as long as the process can answer; \
     its `status` tells the rest.",
    answers: &[Answer::ok("How it feels.", &[Content::Json(model::<HealthCheckResponse>)])],
    ..Row::NONE
};

pub(crate) const LIVE: Row = Row {
    tag: &Tag::SERVER,
    summary: "Is the process alive?",
    says: "For programs that restart the server. It fails if the journal cannot recover; the \
     process then ends.",
    answers: &[Answer::ok("It is.", &[])],
    faults: &[FaultKind::JournalUnavailable],
    ..Row::NONE
};

pub(crate) const READY: Row = Row {
    tag: &Tag::SERVER,
    summary: "Does it take new runs?",
    says: "For load balancers. It fails while the server drains, and while its journal accepts no \
     writes or its disk is nearly full. Open streams are served nevertheless.",
    answers: &[Answer::ok("It does.", &[])],
    faults: &[FaultKind::ServiceUnavailable, FaultKind::JournalUnavailable],
    ..Row::NONE
};

pub(crate) const METRICS: Row = Row {
    tag: &Tag::SERVER,
    summary: "Metrics",
    says: "For loopback, and for callers that send the metrics key, or the key of an operator with \
     the right `look`, as `Authorization: Bearer`.",
    answers: &[Answer::ok("In the text format of OpenMetrics.", &[Content::Text(METRICS_TYPE)])],
    ..Row::NONE
};

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The data contract's health check.
pub(crate) async fn health(State(monitor): State<Monitor>) -> Json<HealthCheckResponse> {
    let status = match (monitor.engine.is_draining(), monitor.engine.unready()) {
        (true, _) => HealthStatus::Maintenance,
        (false, Some(_)) => HealthStatus::Degraded,
        (false, None) => HealthStatus::Ok,
    };
    Json(HealthCheckResponse {
        status,
        agent_id: monitor.engine.default_agent().map(|agent| agent.id).unwrap_or_default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: monitor.started.elapsed().as_secs_f64(),
    })
}

/// Whether the process is alive and can recover from its failures.
pub(crate) async fn live(State(monitor): State<Monitor>) -> Result<StatusCode, Refusal> {
    if monitor.engine.is_broken() {
        Err(FaultKind::JournalUnavailable.into())
    } else {
        Ok(StatusCode::OK)
    }
}

/// Whether the process accepts new runs.
pub(crate) async fn ready(State(monitor): State<Monitor>) -> Result<StatusCode, Refusal> {
    monitor.engine.unready().map_or(Ok(StatusCode::OK), |fault| Err(fault.into()))
}

/// For loopback, and for callers with the metrics key or an operator's key.
pub(crate) async fn metrics(
    State(monitor): State<Monitor>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    monitor.access.check_monitor(peer, &uri, &headers)?;
    monitor.engine.observed().await;
    monitor.metrics.journal.ask(&**monitor.engine.store());
    monitor
        .engine
        .agents()
        .for_each(|named| monitor.metrics.routes.set_states(&named.name, &named.agent.members()));
    monitor.metrics.read(&monitor.engine);
    Ok(([(header::CONTENT_TYPE, METRICS_TYPE)], monitor.metrics.encode()).into_response())
}

/// The page if the console was not built.
pub(crate) fn no_console() -> Response {
    html::page(
        "Capstan: console",
        "<main><h1>Console</h1><p>This build holds no console. To get it, install Node 20 or \
         later and run <code>make run</code>, \
         or <code>cd web && npm ci && npm run build</code> and build again.</p>\
         <p>Its questions are answered all the same: <a href=/docs>/docs</a>.</p></main>",
    )
}

/// The plain page.
pub(crate) fn page() -> Response {
    html::page(
        "Capstan",
        "<main><h1>Capstan</h1><p>The run contract for AI agents: start once, stream, fail in \
         types, resume anywhere, stop on purpose.</p>\
         <ul><li><code>POST /v1/assist</code> starts a run or attaches to it</li><li><a \
         href=/docs>/docs</a>, all routes</li>\
         <li><a href=/v1/streams>/v1/streams</a></li><li><a href=/v1/errors>/v1/errors</a>, the \
         catalogue of faults</li>\
         <li><a href=/health>/health</a>, <a href=/metrics>/metrics</a></li></ul>\
         <p>This build holds no playground. To get it, install Node 20 or later and run \
         <code>make run</code>, \
         or <code>cd web && npm ci && npm run build</code> and build again.</p></main>",
    )
}
