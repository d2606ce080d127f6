//! Cards: what an agent can do and where, for everybody who asks.

use axum::Json;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::{Fault, FaultKind};
use http::header;
use serde_json::{Value, json};

use super::words::with;
use super::{push, rows};
use crate::app::App;
use crate::openapi::Routes;
use crate::refusal::Refusal;

/// The extension by which a stream that was cut is read on.
const RESUME: &str = "https://github.com/capstan-run/capstan/blob/main/docs/a2a.md#last-event-id";

pub(super) fn routes() -> Routes {
    Routes::default().get("/.well-known/agent-card.json", of_default, &rows::CARD).get(
        "/v1/agents/{name}/a2a/.well-known/agent-card.json",
        of_agent,
        &rows::CARD_OF_AGENT,
    )
}

async fn of_default(State(app): State<App>, request: HttpRequest) -> Result<Response, Refusal> {
    let agent = app.default_agent().ok_or_else(|| Fault::new(FaultKind::AgentNotFound))?;
    let url = format!("{}/v1/a2a", base(&app, &request));
    Ok(Json(card(&app, &agent.name, &url)).into_response())
}

async fn of_agent(
    State(app): State<App>,
    Path(name): Path<String>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let agent = app.agent(&name).ok_or_else(|| Fault::new(FaultKind::AgentNotFound))?;
    let url = format!("{}/v1/agents/{}/a2a", base(&app, &request), agent.name);
    Ok(Json(card(&app, &agent.name, &url)).into_response())
}

/// Where this server is: as it was set, else as the request calls it.
fn base(app: &App, request: &HttpRequest) -> String {
    if let Some(url) = &app.settings.public_url {
        return url.trim_end_matches('/').to_owned();
    }
    let scheme = if app.settings.tls.is_some() { "https" } else { "http" };
    let named = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = named.or_else(|| request.uri().authority().map(http::uri::Authority::as_str));
    format!("{scheme}://{}", host.unwrap_or("localhost"))
}

fn card(app: &App, name: &str, url: &str) -> Value {
    let interface = |binding: &str, version: &str| json!({ "url": url, "protocolBinding": binding, "protocolVersion": version });
    let modes = json!(["text/plain", "application/json"]);
    let mut card = json!({
        "name": name,
        "description": format!("The agent {name:?} behind Capstan: its tasks are started once, kept, and read on after a cut."),
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [interface("JSONRPC", "1.0"), interface("HTTP+JSON", "1.0"), interface("JSONRPC", "0.3")],
        "capabilities": { "streaming": true, "pushNotifications": push::is_possible(app), "extensions": [{
            "uri": RESUME,
            "description": "Events have ids. A subscription with Last-Event-ID goes on right after that event, also when the task is over.",
            "required": false }] },
        "defaultInputModes": modes,
        "defaultOutputModes": modes,
        "skills": [{ "id": name, "name": name, "description": format!("Whatever the agent {name:?} can do."), "tags": ["agent"] }],
        // For clients of 0.3.
        "protocolVersion": "0.3.0",
        "url": url,
        "preferredTransport": "JSONRPC",
    });
    if !app.settings.is_local() {
        let bearer = json!({ "key": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
        card = with(card, "securitySchemes", bearer);
        card = with(card, "securityRequirements", json!([{ "schemes": { "key": { "list": [] } } }]));
    }
    card
}
