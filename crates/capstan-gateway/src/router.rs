//! The routes and the layers around them. Each route comes with the row that describes it.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::get;
use capstan_protocol::{Fault, FaultKind};
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::app::App;
use crate::console::patience;
use crate::face::{self, FaceSettings};
use crate::identity::tickets as ticket;
use crate::openapi::{Described, Routes, document};
use crate::refusal::Refusal;
use crate::routes::{
    agents, console, docs, errors, health, page, replicas, sessions, streams, tickets,
};
use crate::{access, accounted_body, error_responses, replica_forwarding};

/// Routes that ask whose request it is: those of the faces, and those that serve all of them.
fn for_tenants() -> Routes<App> {
    Routes::default()
        .get("/v1/streams", streams::list, &streams::LIST)
        .get(ticket::STREAM, streams::watch, &streams::WATCH)
        .delete(ticket::STREAM, streams::stop, &streams::STOP)
        .get("/v1/streams/{id}/packets", streams::packets, &streams::PACKETS)
        .post("/v1/streams/{id}/ticket", tickets::issue, &tickets::ISSUE)
        .get("/v1/sessions/{id}", sessions::turns, &sessions::TURNS)
        .delete("/v1/sessions/{id}", sessions::purge, &sessions::PURGE)
}

fn list_of_agents() -> Routes<App> {
    Routes::default().get("/v1/agents", agents::list, &agents::LIST)
}

/// Routes that are open to everybody.
fn open() -> Routes<App> {
    Routes::default()
        .get("/v1/errors", errors::list, &errors::LIST)
        .get("/errors/{slug}", errors::page, &errors::PAGE)
        .get("/health", health::health, &health::HEALTH)
        .get("/livez", health::live, &health::LIVE)
        .get("/readyz", health::ready, &health::READY)
        .get("/metrics", health::metrics, &health::METRICS)
        .get("/v1/replicas", replicas::list, &replicas::LIST)
        .get("/", page::index, &page::INDEX)
        .get("/assets/{name}", page::asset, &page::ASSET)
        .get("/openapi.json", docs::openapi, &docs::OPENAPI)
        .get("/docs", docs::page, &docs::PAGE)
        .get("/docs/style.css", docs::style, &docs::STYLE)
}

/// What all routes say of themselves.
fn described() -> Vec<Described> {
    let faces = face::all(&FaceSettings::default());
    let of_faces = faces.iter().flat_map(|face| face.clone().routes().described(true));
    let open_of_faces = faces.iter().flat_map(|face| face.clone().open_routes().described(false));
    for_tenants()
        .described(true)
        .chain(of_faces)
        .chain(list_of_agents().described(true))
        .chain(console::routes().described(true))
        .chain(open().described(false))
        .chain(open_of_faces)
        .chain(console_pages().described(false))
        .collect()
}

/// The OpenAPI 3.1 document of every gateway of this version, as `GET /openapi.json` serves it.
pub fn openapi() -> Value {
    document(&described())
}

/// What is behind a door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// Everything.
    All,
    /// Everything but the console, which has a door of its own.
    NoConsole,
    /// The console, and how the server feels.
    Console,
}

pub(crate) fn router(app: &App, behind: Behind) -> Router {
    let routes = match behind {
        Behind::All => for_all(app).merge(console_routes(app)),
        Behind::NoConsole => for_all(app),
        Behind::Console => {
            let health = Routes::default()
                .get("/health", health::health, &health::HEALTH)
                .get("/livez", health::live, &health::LIVE)
                .get("/readyz", health::ready, &health::READY)
                .get("/v1/errors", errors::list, &errors::LIST)
                .get("/errors/{slug}", errors::page, &errors::PAGE)
                .get("/assets/{name}", page::asset, &page::ASSET);
            console_routes(app).merge(health.into_router())
        }
    };
    layered(app, routes)
}

/// What the console asks, and its page. Each question asks for itself who looks.
fn console_routes(app: &App) -> Router<App> {
    let questions = console::routes().into_router();
    questions
        // Nobody looks at an empty page until a database is back.
        .route_layer(from_fn_with_state(app.clone(), patience::limit))
        .merge(console_pages().into_router())
}

fn console_pages() -> Routes<App> {
    Routes::default().get("/console", page::console, &page::CONSOLE).get(
        "/console/{*rest}",
        page::console,
        &page::CONSOLE_VIEW,
    )
}

fn for_all(app: &App) -> Router<App> {
    // Whose request is it?
    let of_faces = app.faces.iter().map(|face| face.clone().routes().with_state(app.cx.clone()));
    let for_tenants = of_faces
        .fold(for_tenants().merge(list_of_agents()), Routes::merge)
        .into_router()
        // Whoever is not stored lives in one process.
        .route_layer(from_fn_with_state(app.clone(), replica_forwarding::pass_on))
        .route_layer(from_fn_with_state(app.clone(), access::authenticate));
    let of_faces = app.faces.iter().map(|face| face.clone().open_routes());
    let open = of_faces.fold(open(), |open, face| open.merge(face.with_state(app.cx.clone())));
    open.into_router().merge(for_tenants)
}

fn layered(app: &App, routes: Router<App>) -> Router {
    routes
        // Without tenants only this machine may ask.
        .layer(from_fn_with_state(app.clone(), access::guard_loopback))
        // Pages of allowed origins may ask.
        .layer(from_fn_with_state(app.clone(), access::cors))
        // Whose answer this is, where several gateways give the same.
        .layer(from_fn_with_state(app.clone(), served_by))
        // Browsers guess types of what they should not run.
        .layer(map_response(no_sniffing))
        // What is said in JSON is somebody's own.
        .layer(map_response(no_storing))
        // What is answered in one piece is its asker's memory.
        .layer(from_fn_with_state(app.engine.clone(), accounted_body::count))
        // Everything that was refused becomes a problem, here and nowhere else.
        .layer(from_fn_with_state(app.clone(), error_responses::render))
        .with_state(app.clone())
}

/// What a connection may ask for beyond the number of those that may ask for everything.
pub(crate) fn health(app: &App) -> Router {
    let full = || async {
        let fault = Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0);
        Refusal::from(fault.with_message("There are too many connections."))
    };
    Router::new()
        .route("/health", get(health::health))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .fallback(full)
        // It is cut soon, so nobody should ask on it again.
        .layer(map_response(last_answer))
        .layer(from_fn_with_state(app.clone(), access::guard_loopback))
        .layer(map_response(no_sniffing))
        .layer(map_response(no_storing))
        .layer(from_fn_with_state(app.clone(), error_responses::render))
        .with_state(app.clone())
}

/// One that was passed on says it already.
async fn served_by(State(app): State<App>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Some(name) = app.journal.store().replica_name()
        && let Ok(name) = HeaderValue::from_str(name)
    {
        response.headers_mut().entry(SERVED_BY).or_insert(name);
    }
    response
}

/// The name of the process that has answered.
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
