//! Who may do what: whose request it is, loopback mode, cross-origin rules.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use capstan_protocol::{Fault, FaultKind};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use crate::app::App;
use crate::refusal::Refusal;

/// The tenant of a gateway without tenants.
pub(crate) const LOCAL: &str = "local";

/// The tenant that a request belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) tenant: String,
}

/// Finds out whose request it is, or refuses it.
pub(crate) async fn authenticate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    match caller(&app, request.headers()) {
        Ok(caller) => {
            tracing::Span::current().record("tenant", caller.tenant.as_str());
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(fault) => Refusal(fault).into_response(),
    }
}

fn caller(app: &App, headers: &HeaderMap) -> Result<Caller, Fault> {
    let tenants = &app.settings.tenants;
    if tenants.is_empty() {
        return Ok(Caller { tenant: LOCAL.to_owned() });
    }
    let key = bearer(headers).ok_or_else(|| Fault::new(FaultKind::TenantRequired))?;
    let tenant = tenants.holder_of(key).ok_or_else(|| Fault::new(FaultKind::TenantUnauthorized))?;
    match headers.get("x-tenant-id").map(HeaderValue::as_bytes) {
        Some(claimed) if claimed != tenant.name.as_bytes() => Err(Fault::new(FaultKind::TenantUnauthorized)),
        _ => Ok(Caller { tenant: tenant.name }),
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim()).filter(|key| !key.is_empty())
}

/// Without tenants only this machine may ask: a foreign Host is DNS rebinding, a foreign Origin another site's page.
/// A server that is open to everybody has nothing to guard in this way; [`cors`] still holds.
pub(crate) async fn guard_loopback(State(app): State<App>, request: Request, next: Next) -> Response {
    if app.settings.tenants.is_empty() && !app.settings.open {
        let headers = request.headers();
        let host = request.uri().host().map(str::to_owned).or_else(|| host_of(headers));
        let is_foreign_host = host.is_some_and(|host| !is_loopback(&host));
        let is_foreign_origin = headers.get(header::ORIGIN).is_some_and(|origin| !app.allows_origin(origin));
        if is_foreign_host || is_foreign_origin {
            let fault = Fault::new(FaultKind::TenantUnauthorized).with_message(
                "Without tenants this server answers only to this machine: check Host and Origin.",
            );
            return Refusal(fault).into_response();
        }
    }
    next.run(request).await
}

fn host_of(headers: &HeaderMap) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let authority: http::uri::Authority = host.parse().ok()?;
    Some(authority.host().to_owned())
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl App {
    /// Whether a page of this origin may call.
    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        if self.settings.cors_origins.iter().any(|known| known == origin || known == "*") {
            return true;
        }
        let uri = origin.parse::<http::Uri>().ok();
        self.settings.tenants.is_empty() && uri.as_ref().and_then(http::Uri::host).is_some_and(is_loopback)
    }
}

/// What a page may send and read across origins.
const ALLOWED: &str =
    "authorization, content-type, last-event-id, x-request-id, x-tenant-id, x-run-id, x-cap-accept";
const EXPOSED: &str = "x-request-id, x-stream-id, x-stream-ticket, retry-after";
const METHODS: &str = "GET, POST, DELETE";

/// Answers preflights and marks responses, for allowed origins only.
pub(crate) async fn cors(State(app): State<App>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).filter(|origin| app.allows_origin(origin)).cloned();
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match (is_preflight, &origin) {
        (true, Some(_)) => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    let Some(origin) = origin else { return response };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::VARY, HeaderValue::from_static("origin"));
    let mut set = |name: HeaderName, value| headers.insert(name, HeaderValue::from_static(value));
    if is_preflight {
        set(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED);
        set(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        set(header::ACCESS_CONTROL_MAX_AGE, "600");
    } else {
        set(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "LOCALHOST"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["example.org", "10.0.0.1", "localhost.example.org", "0.0.0.0", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
