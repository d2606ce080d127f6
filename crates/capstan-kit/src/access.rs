//! The layers that identify the caller of a request, guard a gateway without tenants, and apply the
//! rules for other origins.

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{ConnectInfo, MatchedPath, Query, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use capstan_protocol::{Fault, FaultKind};
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};

use crate::accounted_body::Payer;
use crate::cors::CorsHeaders;
use crate::identity::audit::{Actor, Audit, log_id_of};
use crate::identity::caller::Caller;
use crate::identity::jwt::{Jwt, is_token};
use crate::identity::operators::{Operators, Right};
use crate::identity::scopes::Scope;
use crate::identity::tenants::{KeyHash, TenantKey, Tenants};
use crate::identity::tickets::{self, Tickets};
use crate::refusal::{Refusal, ResponseTenant, refused_by_credentials};
use capstan_engine::Engine;
use capstan_engine::tenant_scheduler::TaskSlot;

/// The rules of access to a gateway. Cheap to clone.
#[derive(Clone)]
pub struct Access(Arc<Rules>);

/// The parts of [`Access`].
pub struct Rules {
    pub engine: Engine,
    pub tenants: Tenants,
    pub jwt: Option<Jwt>,
    pub operators: Operators,
    /// A key that may read `/metrics` from other machines.
    pub metrics_key: Option<KeyHash>,
    pub audit: Arc<Audit>,
    /// Without tenants, whether other machines may use the gateway.
    pub is_open: bool,
    /// Origins of pages that may call it.
    pub cors_origins: Vec<String>,
    pub cors: CorsHeaders,
}

impl Deref for Access {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.0
    }
}

/// Routes of the console.
const CONSOLE: &str = "/v1/console/";

/// Names of query parameters that usually hold keys, in any spelling. A key in a URL ends up in
/// logs, browser histories and referrers.
const KEY_NAMES: [&str; 6] = ["key", "token", "auth", "jwt", "password", "secret"];
const IN_KEY_NAMES: [&str; 6] =
    ["apikey", "accesstoken", "authtoken", "authorization", "bearer", "secretkey"];

fn names_a_key(name: &str) -> bool {
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let plain = plain.to_ascii_lowercase();
    KEY_NAMES.contains(&plain.as_str()) || IN_KEY_NAMES.iter().any(|part| plain.contains(part))
}

/// Finds the tenant of a request, or refuses it. The audit records each request that is refused
/// because of its key or token, here or later.
pub async fn authenticate(State(access): State<Access>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let (method, path) = (head.method.clone(), head.uri.path().to_owned());
    let (actor, response) = match caller(&access, &head).await {
        Ok(caller) => {
            tracing::Span::current().record("tenant", caller.tenant.as_str());
            let (actor, tenant) = (Actor::from(&caller), caller.tenant.clone());
            Payer::name(&head.extensions, &tenant);
            head.extensions.insert(caller);
            let is_scheduled = access.engine.enter(&tenant);
            let answering = next.run(Request::from_parts(head, body));
            let mut response = if is_scheduled {
                TaskSlot::next_turn().await;
                answering.await
            } else {
                // This task does not run in the scheduler, so charge the work itself.
                access.engine.of_tenant(&tenant, answering).await
            };
            response.extensions_mut().insert(ResponseTenant(tenant));
            (actor, response)
        }
        Err(fault) => (Actor::unknown(shown(&head.headers)), Refusal::from(fault).into_response()),
    };
    if let Some(fault) = refused_by_credentials(&response) {
        access.audit.refused(actor, fault, &method, &path);
    }
    response
}

pub async fn caller(access: &Access, head: &Parts) -> Result<Caller, Fault> {
    let query = query(&head.uri);
    check_query(&query)?;
    if access.is_local() {
        return Ok(Caller::local());
    }
    let caller = match (shown(&head.headers), ticket(head, &query)) {
        (Some(shown), _) => holder_of(access, shown)?,
        (None, Some((stream, ticket))) => holder_of_ticket(access, stream, ticket).await?,
        (None, None) => return Err(Fault::new(FaultKind::TenantRequired)),
    };
    match head.headers.get("x-tenant-id").map(HeaderValue::as_bytes) {
        Some(claimed) if claimed != caller.tenant.as_bytes() => {
            Err(Fault::new(FaultKind::TenantUnauthorized))
        }
        _ => Ok(caller),
    }
}

/// Refuses a key in a URL.
fn check_query(query: &[(String, String)]) -> Result<(), Fault> {
    if query.iter().any(|(name, _)| names_a_key(name)) {
        return Err(Fault::new(FaultKind::InvalidRequest).with_message(
            "A key does not belong in a URL, which logs keep: send it as `Authorization: Bearer \
             <key>`. \
             For an EventSource, ask for a ticket with POST /v1/streams/{id}/ticket.",
        ));
    }
    Ok(())
}

/// Refuses a key in the URL of a request that belongs to no tenant.
pub fn check_url(uri: &http::Uri) -> Result<(), Fault> {
    check_query(&query(uri))
}

/// Finds the caller by a key or token.
fn holder_of(access: &Access, shown: &str) -> Result<Caller, Fault> {
    let tenants = &access.tenants;
    if let Some((tenant, TenantKey { hash, scopes })) = tenants.holder_of(shown) {
        return Ok(Caller { tenant, log_id: log_id_of(&hash), key: Some(hash), scopes });
    }
    let Some(jwt) = access.jwt.as_ref().filter(|_| is_token(shown)) else {
        return Err(Fault::new(FaultKind::TenantUnauthorized));
    };
    let claims = jwt.check(shown, tenants, access.engine.now())?;
    let log_id = format!("jwt:{}", log_id_of(&claims.subject));
    Ok(Caller { tenant: claims.tenant, key: Some(jwt.ticket_key()), scopes: claims.scopes, log_id })
}

/// The pairs of the query. An invalid query counts as empty; a handler that needs it refuses it.
fn query(uri: &http::Uri) -> Vec<(String, String)> {
    Query::try_from_uri(uri).map(|Query(pairs)| pairs).unwrap_or_default()
}

/// The ticket of a request. It is valid only on routes that watch a stream.
fn ticket<'a>(head: &'a Parts, query: &'a [(String, String)]) -> Option<(&'a str, &'a str)> {
    let route = head.extensions.get::<MatchedPath>()?;
    // Compare the end, because the routes may be mounted below others.
    let shows_stream = tickets::OPENS.iter().any(|path| route.as_str().ends_with(path));
    let is_watching = shows_stream && matches!(head.method, Method::GET | Method::HEAD);
    let (_, ticket) = query.iter().find(|(name, _)| name == "ticket").filter(|_| is_watching)?;
    Some((head.uri.path().rsplit('/').next()?, ticket))
}

/// Finds the caller by a ticket. It must be valid for the stream, and the tenant must still have
/// the key for which it was issued.
async fn holder_of_ticket(access: &Access, stream: &str, ticket: &str) -> Result<Caller, Fault> {
    let tickets = Tickets::load(&access.engine).await?;
    let keys_of = |tenant: &str| {
        let tenants = &access.tenants;
        let names = |jwt: &&Jwt| jwt.takes_any_tenant() || tenants.has(tenant);
        let of_tokens = access.jwt.iter().filter(names).map(Jwt::ticket_key);
        tenants.reading_keys_of(tenant).into_iter().chain(of_tokens).collect()
    };
    let check = |stream| tickets.check(ticket, stream, access.engine.wall().unset(), keys_of);
    let holder = stream.parse().ok().and_then(check);
    let caller = |tenant| Caller {
        tenant,
        key: None,
        scopes: [Scope::Read].into_iter().collect(),
        log_id: "ticket".into(),
    };
    holder.map(caller).ok_or_else(|| {
        Fault::new(FaultKind::TenantUnauthorized).with_message(
            "The ticket is not one for this stream, or has expired: ask for another with POST \
             /v1/streams/{id}/ticket.",
        )
    })
}

pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim()).filter(|key| !key.is_empty())
}

/// The key or token of a request. Clients of Anthropic send it in a header of their own.
fn shown(headers: &HeaderMap) -> Option<&str> {
    let own = || headers.get("x-api-key")?.to_str().ok().map(str::trim);
    bearer(headers).or_else(own).filter(|key| !key.is_empty())
}

/// Without tenants, refuses requests that do not come from this machine. A foreign Host means DNS
/// rebinding, and a foreign Origin means the page of another site. An open server skips this check;
/// [`cors`] still applies.
pub async fn guard_loopback(
    State(access): State<Access>,
    request: Request,
    next: Next,
) -> Response {
    if access.is_local() && !access.is_open {
        let headers = request.headers();
        let is_foreign_origin =
            headers.get(header::ORIGIN).is_some_and(|origin| !access.allows_origin(origin));
        if is_foreign_host(request.uri(), headers) || is_foreign_origin {
            let fault = Fault::new(FaultKind::TenantUnauthorized).with_message(
                "Without tenants this server answers only to this machine: check Host and Origin.",
            );
            return Refusal::from(fault).into_response();
        }
    }
    next.run(request).await
}

/// Whether the request names a host other than this machine.
fn is_foreign_host(uri: &http::Uri, headers: &HeaderMap) -> bool {
    uri.host().is_some_and(|host| !is_loopback(host))
        || headers.get_all(header::HOST).iter().any(|host| !names_loopback(host))
}

/// Whether the host is this machine. A name that cannot be parsed is foreign.
fn names_loopback(host: &HeaderValue) -> bool {
    let authority = host.to_str().ok().and_then(|host| host.parse::<http::uri::Authority>().ok());
    authority.is_some_and(|authority| is_loopback(authority.host()))
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

impl Access {
    pub fn new(rules: Rules) -> Self {
        Self(Arc::new(rules))
    }

    /// Whether there are no tenants. Then everything belongs to one tenant, which needs no key.
    pub fn is_local(&self) -> bool {
        self.tenants.is_empty() && self.jwt.is_none()
    }

    /// Whether pages of this origin may call the gateway.
    fn allows_origin(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        if self.cors_origins.iter().any(|known| known == origin || known == "*") {
            return true;
        }
        let uri = origin.parse::<http::Uri>().ok();
        self.is_local() && uri.as_ref().and_then(http::Uri::host).is_some_and(is_loopback)
    }

    /// Refuses a request that may not see health and metrics. It needs loopback, the metrics key,
    /// or an operator with the right `look`.
    pub fn check_monitor(
        &self,
        peer: Option<Extension<ConnectInfo<SocketAddr>>>,
        uri: &http::Uri,
        headers: &HeaderMap,
    ) -> Result<(), Refusal> {
        let shown = bearer(headers);
        let presented = shown.map(KeyHash::of);
        let operator = shown.and_then(|key| self.operators.holder_of(key));
        let has_key = (presented.is_some() && presented == self.metrics_key)
            || operator.is_some_and(|operator| operator.may(Right::Look));
        // Without a known peer address, assume a remote one.
        let is_near = peer.is_some_and(|Extension(ConnectInfo(peer))| peer.ip().is_loopback());
        // A page of another site may resolve to this machine. Its requests do not count as local.
        if !has_key && (!is_near || is_foreign_host(uri, headers)) {
            let fault = Fault::new(FaultKind::TenantUnauthorized);
            self.audit.refused(Actor::unknown(shown), &fault, &Method::GET, uri.path());
            return Err(fault.into());
        }
        Ok(())
    }
}

const METHODS: &str = "GET, POST, DELETE";

/// Answers preflights and marks responses, for allowed origins only.
pub async fn cors(State(access): State<Access>, request: Request, next: Next) -> Response {
    // Pages of other origins may not use the console.
    let is_console = request.uri().path().contains(CONSOLE);
    let origin =
        request.headers().get(header::ORIGIN).filter(|origin| access.allows_origin(origin));
    let origin = origin.filter(|_| !is_console).cloned();
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match (is_preflight, &origin) {
        (true, Some(_)) => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    let Some(origin) = origin else { return response };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    if is_preflight {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, access.cors.allowed.clone());
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    } else {
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, access.cors.exposed.clone());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_url_is_known_in_any_spelling() {
        for name in [
            "key",
            "KEY",
            "token",
            "Token",
            "apikey",
            "api_key",
            "API-Key",
            "x-api-key",
            "access_token",
            "accessToken",
            "auth",
            "Authorization",
            "bearer",
            "jwt",
            "password",
            "client_secret_key",
            "k.e.y",
        ] {
            assert!(names_a_key(name), "{name}");
        }
        for name in [
            "ticket", "after", "before", "limit", "profile", "face", "from", "purge", "monkey",
            "keys",
        ] {
            assert!(!names_a_key(name), "{name}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "LOCALHOST"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["example.org", "10.0.0.1", "localhost.example.org", "0.0.0.0", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_host_that_cannot_be_read_is_foreign() {
        for host in [&b"localhost"[..], b"127.0.0.1:8787", b"[::1]:8787"] {
            assert!(names_loopback(&HeaderValue::from_bytes(host).unwrap()));
        }
        for host in [&b"\xff"[..], b"", b"localhost, example.org", b"local host", b"example.org:80"]
        {
            assert!(!names_loopback(&HeaderValue::from_bytes(host).unwrap()));
        }
    }
}
