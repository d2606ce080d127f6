//! How the server feels: `/health`, `/livez`, `/readyz`, `/metrics`, and a plain page at `/`.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, State};
use axum::response::{Html, IntoResponse, Response};
use axum::{Extension, Json};
use capstan_protocol::{Fault, FaultKind, HealthCheckResponse, HealthStatus};
use http::{HeaderMap, StatusCode, header};

use crate::access::bearer;
use crate::app::App;
use crate::refusal::Refusal;
use crate::tenants::KeyHash;

fn is_ready(app: &App) -> bool {
    !app.draining.is_cancelled() && !app.broken.is_cancelled()
}

/// The data contract's health check.
pub(crate) async fn health(State(app): State<App>) -> Json<HealthCheckResponse> {
    let status = match (app.draining.is_cancelled(), app.broken.is_cancelled()) {
        (_, true) => HealthStatus::Degraded,
        (true, _) => HealthStatus::Maintenance,
        (false, false) => HealthStatus::Ok,
    };
    Json(HealthCheckResponse {
        status,
        agent_id: app.default_agent().map(|agent| agent.id).unwrap_or_default(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        uptime_seconds: app.started.elapsed().as_secs_f64(),
    })
}

/// The process is alive.
pub(crate) async fn live() -> StatusCode {
    StatusCode::OK
}

/// The process takes new runs.
pub(crate) async fn ready(State(app): State<App>) -> Result<StatusCode, Refusal> {
    if is_ready(&app) { Ok(StatusCode::OK) } else { Err(Fault::new(FaultKind::ServiceUnavailable).into()) }
}

/// For loopback, or whoever has the metrics key.
pub(crate) async fn metrics(
    State(app): State<App>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let presented = bearer(&headers).map(KeyHash::of);
    let has_key = presented.is_some() && presented == app.settings.metrics_key;
    // A server that does not say who asks is taken at its least.
    let is_near = peer.is_some_and(|Extension(ConnectInfo(peer))| peer.ip().is_loopback());
    if !is_near && !has_key {
        return Err(FaultKind::TenantUnauthorized.into());
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], app.metrics.encode()).into_response())
}

/// What a browser sees.
pub(crate) async fn page() -> Html<&'static str> {
    Html(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'><title>Capstan</title>\
         <style>body{font:16px/1.5 system-ui;max-width:42rem;margin:3rem auto;padding:0 1rem}code{background:#8882;padding:.1em .3em}</style>\
         <h1>Capstan</h1><p>The run contract for AI agents: start once, stream, fail in types, resume anywhere, stop on purpose.</p>\
         <ul><li><code>POST /v1/assist</code> starts a run or attaches to it</li><li><a href=/v1/streams>/v1/streams</a></li>\
         <li><a href=/v1/errors>/v1/errors</a>, the catalogue of faults</li><li><a href=/health>/health</a>, \
         <a href=/metrics>/metrics</a></li></ul>\
         <p>This build holds no playground. To get it, install Node 20 or later and run <code>make run</code>, \
         or <code>cd web && npm ci && npm run build</code> and build again.</p>",
    )
}
