//! Agent cards: what an agent can do and where. The public card needs no key. The extended card
//! does, and has more.

use axum::Json;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::{Fault, FaultKind};
use http::request::Parts;
use http::{StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::call::Call;
use super::version::{Version, with};
use super::{push, rows};
use crate::face::FaceContext;
use crate::openapi::Routes;
use crate::refusal::Refusal;

/// The extension for resuming a stream that was cut.
const RESUME: &str = "https://github.com/capstan-run/capstan/blob/main/docs/a2a.md#last-event-id";

/// Members of 0.3 that 1.0 does not have. The public card has both, because its client has not
/// named its version.
const OLD: [&str; 5] = [
    "protocolVersion",
    "url",
    "preferredTransport",
    "additionalInterfaces",
    "supportsAuthenticatedExtendedCard",
];

/// How long clients may cache a card. Agents change with a restart.
const FRESH: &str = "public, max-age=60";

/// Public.
pub(super) fn open_routes() -> Routes<FaceContext> {
    Routes::default().get("/.well-known/agent-card.json", of_default, &rows::CARD).get(
        "/v1/agents/{name}/a2a/.well-known/agent-card.json",
        of_agent,
        &rows::CARD_OF_AGENT,
    )
}

/// For clients with a key.
pub(super) fn routes() -> Routes<FaceContext> {
    Routes::default()
        .get("/v1/a2a/extendedAgentCard", more_of_default, &rows::EXTENDED_CARD)
        .get("/v1/a2a/v1/card", more_of_default, &rows::EXTENDED_CARD)
        .get(
            "/v1/agents/{name}/a2a/extendedAgentCard",
            more_of_agent,
            &rows::EXTENDED_CARD_OF_AGENT,
        )
        .get("/v1/agents/{name}/a2a/v1/card", more_of_agent, &rows::EXTENDED_CARD_OF_AGENT)
}

async fn of_default(
    State(cx): State<FaceContext>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    Ok(cacheable(&parts, &public(&cx, None, &parts)?))
}

async fn of_agent(
    State(cx): State<FaceContext>,
    Path(name): Path<String>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    Ok(cacheable(&parts, &public(&cx, Some(&name), &parts)?))
}

async fn more_of_default(
    State(cx): State<FaceContext>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    Ok(Json(extended(&cx, None, Call::at(parts.uri.path()).version, &parts)?).into_response())
}

async fn more_of_agent(
    State(cx): State<FaceContext>,
    Path(name): Path<String>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    Ok(Json(extended(&cx, Some(&name), Call::at(parts.uri.path()).version, &parts)?)
        .into_response())
}

/// A card with an `ETag`, which is not sent to clients that have it.
fn cacheable(parts: &Parts, card: &Value) -> Response {
    let text = card.to_string();
    let hash: String =
        Sha256::digest(text.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let tag = format!("\"{hash}\"");
    let known = parts.headers.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    let is_known = known.is_some_and(|known| {
        known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag)
    });
    let headers = [(header::CACHE_CONTROL, FRESH.to_owned()), (header::ETAG, tag)];
    if is_known {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    let json = (header::CONTENT_TYPE, "application/json".to_owned());
    (headers, [json], text).into_response()
}

/// The public card of an agent, or of the default agent.
fn public(cx: &FaceContext, name: Option<&str>, parts: &Parts) -> Result<Value, Fault> {
    let agent = name.map_or_else(|| cx.engine.default_agent(), |name| cx.engine.agent(name));
    let none =
        || name.map_or_else(|| FaultKind::AgentNotFound.into(), |name| cx.engine.no_agent(name));
    let agent = agent.ok_or_else(none)?;
    let base = base(cx, parts);
    let url = match name {
        None => format!("{base}/v1/a2a"),
        Some(_) => place(&base, &agent.name),
    };
    Ok(card(cx, &agent.name, &url))
}

fn place(base: &str, agent: &str) -> String {
    format!("{base}/v1/agents/{agent}/a2a")
}

/// The extended card, for clients with a key. It names the other agents of this server, and the
/// addresses of their cards.
pub(super) fn extended(
    cx: &FaceContext,
    name: Option<&str>,
    version: Version,
    parts: &Parts,
) -> Result<Value, Fault> {
    let mut card = public(cx, name, parts)?;
    if let (Version::V1, Some(members)) = (version, card.as_object_mut()) {
        members.retain(|name, _| !OLD.contains(&name.as_str()));
    }
    let own = card.get("name").cloned().unwrap_or_default();
    let base = base(cx, parts);
    let mut others: Vec<&str> =
        cx.engine.agents().map(|agent| &*agent.name).filter(|name| own != *name).collect();
    others.sort_unstable();
    let others = others.into_iter().map(|name| {
        let place = place(&base, name);
        let says = format!(
            "Another agent of this server. Its card is at {place}/.well-known/agent-card.json."
        );
        json!({ "id": name, "name": name, "description": says, "tags": ["agent", "elsewhere"] })
    });
    if let Some(skills) = card.get_mut("skills").and_then(Value::as_array_mut) {
        skills.extend(others);
    }
    Ok(card)
}

/// The address of this server: the configured one, else the request's Host.
fn base(cx: &FaceContext, parts: &Parts) -> String {
    if let Some(url) = &cx.site.public_url {
        return url.trim_end_matches('/').to_owned();
    }
    let scheme = if cx.site.is_tls { "https" } else { "http" };
    let named = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = named.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str));
    format!("{scheme}://{}", host.unwrap_or("localhost"))
}

fn card(cx: &FaceContext, name: &str, url: &str) -> Value {
    let interface = |binding: &str, version: &str| {
        json!({ "url": url, "protocolBinding": binding,
    "protocolVersion": version })
    };
    let modes = json!(["text/plain", "application/json"]);
    let mut card = json!({
        "name": name,
        "description": format!("The agent {name:?} behind Capstan. Its tasks start at most once, \
         are stored, and can be resumed after a cut."),
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [interface("JSONRPC", "1.0"), interface("HTTP+JSON", "1.0"),
        interface("JSONRPC", "0.3"),
            interface("HTTP+JSON", "0.3")],
        "capabilities": { "streaming": true, "pushNotifications": push::is_possible(cx),
        "extendedAgentCard": true, "extensions": [{
            "uri": RESUME,
            "description": "Events have ids. A subscription with Last-Event-ID resumes right after \
             that event, also when the task has ended.",
            "required": false }] },
        "defaultInputModes": modes,
        "defaultOutputModes": modes,
        "skills": [{ "id": name, "name": name, "description": format!("All abilities of the agent \
         {name:?}."), "tags": ["agent"] }],
        // For clients of 0.3.
        "protocolVersion": "0.3.0",
        "url": url,
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [{ "url": url, "transport": "JSONRPC" }, { "url": url,
        "transport": "HTTP+JSON" }],
        "supportsAuthenticatedExtendedCard": true,
    });
    if !cx.is_local() {
        let bearer = json!({ "key": { "httpAuthSecurityScheme": { "scheme": "Bearer" } } });
        card = with(card, "securitySchemes", bearer);
        card =
            with(card, "securityRequirements", json!([{ "schemes": { "key": { "list": [] } } }]));
    }
    card
}
