//! The routes and the layers around them. Each route comes with the row that describes it.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::Response;
use capstan_protocol::{Fault, FaultKind};
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::access::Access;
use crate::face::FaceContext;
use crate::faces;
use crate::identity::tickets as ticket;
use crate::refusal::Refusal;
use crate::routes::health::Monitor;
use crate::routes::page::Pages;
use crate::routes::streams::Streams;
use crate::routes::{agents, docs, errors, health, page, replicas, sessions, streams, tickets};
use crate::services::Services;
use crate::{access, accounted_body, error_responses, replica_forwarding};
use capstan_engine::Engine;
use capstan_faces::FaceSettings;
use capstan_journal::Cluster;
use capstan_kit::openapi::{Described, Routes, document};

/// The routes of streams, for runs of any face.
fn of_streams() -> Routes<Streams> {
    Routes::default()
        .get("/v1/streams", streams::list, &streams::LIST)
        .get(ticket::STREAM, streams::watch, &streams::WATCH)
        .delete(ticket::STREAM, streams::stop, &streams::STOP)
        .get("/v1/streams/{id}/packets", streams::packets, &streams::PACKETS)
}

fn of_tickets() -> Routes<Engine> {
    Routes::default().post("/v1/streams/{id}/ticket", tickets::issue, &tickets::ISSUE)
}

fn of_sessions() -> Routes<FaceContext> {
    Routes::default().get("/v1/sessions/{id}", sessions::turns, &sessions::TURNS).delete(
        "/v1/sessions/{id}",
        sessions::purge,
        &sessions::PURGE,
    )
}

fn list_of_agents() -> Routes<Engine> {
    Routes::default().get("/v1/agents", agents::list, &agents::LIST)
}

/// The routes of the fault catalogue.
fn of_errors() -> Routes<()> {
    Routes::default().get("/v1/errors", errors::list, &errors::LIST).get(
        "/errors/{slug}",
        errors::page,
        &errors::PAGE,
    )
}

/// The health routes.
fn of_health() -> Routes<Monitor> {
    Routes::default()
        .get("/health", health::health, &health::HEALTH)
        .get("/livez", health::live, &health::LIVE)
        .get("/readyz", health::ready, &health::READY)
}

/// The health routes that need permission.
fn of_monitor() -> Routes<Monitor> {
    of_health().get("/metrics", health::metrics, &health::METRICS)
}

fn list_of_replicas() -> Routes<Access> {
    Routes::default().get("/v1/replicas", replicas::list, &replicas::LIST)
}

fn of_assets() -> Routes<Pages> {
    Routes::default().get("/assets/{name}", page::asset, &page::ASSET)
}

fn of_page() -> Routes<Pages> {
    Routes::default().get("/", page::index, &page::INDEX).merge(of_assets())
}

fn of_docs() -> Routes<docs::Document> {
    Routes::default()
        .get("/openapi.json", docs::openapi, &docs::OPENAPI)
        .get("/docs", docs::page, &docs::PAGE)
        .get("/docs/style.css", docs::style, &docs::STYLE)
}

/// The descriptions of all routes.
fn described() -> Vec<Described> {
    let faces = faces::all(&FaceSettings::default());
    let of_faces = faces.iter().flat_map(|face| face.clone().routes().described(true));
    let open_of_faces = faces.iter().flat_map(|face| face.clone().open_routes().described(false));
    of_streams()
        .described(true)
        .chain(of_tickets().described(true))
        .chain(of_sessions().described(true))
        .chain(of_faces)
        .chain(list_of_agents().described(true))
        .chain(capstan_console::routes().described(true))
        .chain(of_errors().described(false))
        .chain(of_monitor().described(false))
        .chain(list_of_replicas().described(false))
        .chain(of_page().described(false))
        .chain(of_docs().described(false))
        .chain(open_of_faces)
        .chain(console_pages().described(false))
        .collect()
}

/// The OpenAPI 3.1 document of every gateway of this version, as `GET /openapi.json` serves it.
pub fn openapi() -> Value {
    document(&described())
}

/// The routes of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// All routes.
    All,
    /// All routes except the console's, which has its own listener.
    NoConsole,
    /// The console's routes, and the health routes.
    Console,
}

pub(crate) fn router(services: &Services, behind: Behind) -> Router {
    let routes = match behind {
        Behind::All => for_all(services).merge(of_console(services)),
        Behind::NoConsole => for_all(services),
        Behind::Console => of_console(services)
            .merge(of_health().with_state(services.monitor.clone()).into_router())
            .merge(of_errors().into_router())
            .merge(of_assets().with_state(services.pages.clone()).into_router()),
    };
    layered(services, routes)
}

/// The console's queries and its page. Each query authenticates its operator.
fn of_console(services: &Services) -> Router {
    let console = services.console.clone();
    let questions = capstan_console::routes().with_state(console.clone()).into_router();
    questions
        // Without this limit, page loads would wait for a database that is down.
        .route_layer(from_fn_with_state(console, capstan_console::limit))
        .merge(console_pages().with_state(services.pages.clone()).into_router())
}

fn console_pages() -> Routes<Pages> {
    Routes::default().get("/console", page::console, &page::CONSOLE).get(
        "/console/{*rest}",
        page::console,
        &page::CONSOLE_VIEW,
    )
}

fn for_all(services: &Services) -> Router {
    let Services { engine, cx, faces, access, forwarding, .. } = services;
    let with_cx = |routes: Routes<FaceContext>| routes.with_state(cx.clone());
    let for_tenants = of_streams()
        .with_state(services.streams())
        .merge(of_tickets().with_state(engine.clone()))
        .merge(with_cx(of_sessions()))
        .merge(list_of_agents().with_state(engine.clone()));
    let of_faces = faces.iter().map(|face| with_cx(face.clone().routes()));
    let for_tenants = of_faces
        .fold(for_tenants, Routes::merge)
        .into_router()
        // Requests of `no_store` tenants go to their host.
        .route_layer(from_fn_with_state(forwarding.clone(), replica_forwarding::forward))
        .route_layer(from_fn_with_state(access.clone(), access::authenticate));
    let open = of_errors()
        .merge(of_docs().with_state(openapi as docs::Document))
        .merge(of_monitor().with_state(services.monitor.clone()))
        .merge(list_of_replicas().with_state(access.clone()))
        .merge(of_page().with_state(services.pages.clone()));
    let of_faces = faces.iter().map(|face| with_cx(face.clone().open_routes()));
    of_faces.fold(open, Routes::merge).into_router().merge(for_tenants)
}

fn layered(services: &Services, routes: Router) -> Router {
    let Services { engine, access, .. } = services;
    routes
        // Without tenants, only requests from this machine are allowed.
        .layer(from_fn_with_state(access.clone(), access::guard_loopback))
        // CORS: pages of allowed origins may send requests.
        .layer(from_fn_with_state(access.clone(), access::cors))
        // The name of the gateway that answered, because several gateways give the same answers.
        .layer(from_fn_with_state(engine.clone(), served_by))
        // Browsers must not guess content types.
        .layer(map_response(no_sniffing))
        // JSON responses contain a tenant's data, so caches must not store them.
        .layer(map_response(no_storing))
        // A collected response counts as memory of its tenant.
        .layer(from_fn_with_state(engine.clone(), accounted_body::count))
        // Refusals become problem details here and nowhere else.
        .layer(from_fn_with_state(services.error_responses(), error_responses::render))
}

/// The routes of reserved connections, beyond the connection limit.
pub(crate) fn health(services: &Services) -> Router {
    let full = || async {
        let fault = Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0);
        Refusal::from(fault.with_message("There are too many connections."))
    };
    Router::new()
        .merge(of_monitor().with_state(services.monitor.clone()).into_router())
        .fallback(full)
        // The connection is closed soon, so clients should not reuse it.
        .layer(map_response(last_answer))
        .layer(from_fn_with_state(services.access.clone(), access::guard_loopback))
        .layer(map_response(no_sniffing))
        .layer(map_response(no_storing))
        .layer(from_fn_with_state(services.error_responses(), error_responses::render))
}

/// A forwarded response has the header already.
async fn served_by(State(engine): State<Engine>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Some(name) = engine.store().cluster().map(Cluster::replica_name)
        && let Ok(name) = HeaderValue::from_str(name)
    {
        response.headers_mut().entry(SERVED_BY).or_insert(name);
    }
    response
}

/// The id of the gateway that answered.
const SERVED_BY: HeaderName = HeaderName::from_static("x-served-by");

async fn last_answer(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

async fn no_storing(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let content =
        headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_json = content.starts_with("application/") && content.contains("json");
    if is_json && !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

async fn no_sniffing(mut response: Response) -> Response {
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
