//! The routes and the layers around them, in one expression.

use axum::Router;
use axum::middleware::{from_fn_with_state, map_response};
use axum::response::Response;
use axum::routing::{get, post};
use http::HeaderValue;

use crate::app::App;
use crate::routes::{agents, agui, assist, errors, health, page, sessions, streams, tickets};
use crate::{access, refusal};

pub(crate) fn router(app: &App) -> Router {
    let for_tenants = Router::new()
        .route("/assist", post(assist::post))
        .route("/v1/assist", post(assist::post))
        .route("/v1/agents/{name}/assist", post(assist::post_to))
        .route("/v1/ag-ui", post(agui::post).get(agui::join))
        .route("/v1/agents/{name}/ag-ui", post(agui::post_to).get(agui::join_of))
        .route("/v1/agents", get(agents::list))
        .route("/v1/streams", get(streams::list))
        .route(access::WATCH, get(streams::watch).delete(streams::stop))
        .route("/v1/streams/{id}/packets", get(streams::packets))
        .route("/v1/streams/{id}/ticket", post(tickets::issue))
        .route("/v1/sessions/{id}", get(sessions::turns).delete(sessions::purge))
        // Whose request is it?
        .route_layer(from_fn_with_state(app.clone(), access::authenticate));
    Router::new()
        .route("/", get(page::index))
        .route("/assets/{name}", get(page::asset))
        .route("/health", get(health::health))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .route("/v1/errors", get(errors::list))
        .route("/errors/{slug}", get(errors::page))
        .merge(for_tenants)
        // Browsers guess types of what they should not run.
        .layer(map_response(no_sniffing))
        // Without tenants only this machine may ask.
        .layer(from_fn_with_state(app.clone(), access::guard_loopback))
        // Pages of allowed origins may ask.
        .layer(from_fn_with_state(app.clone(), access::cors))
        // Everything that was refused becomes a problem, here and nowhere else.
        .layer(from_fn_with_state(app.clone(), refusal::render))
        .with_state(app.clone())
}

async fn no_sniffing(mut response: Response) -> Response {
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
