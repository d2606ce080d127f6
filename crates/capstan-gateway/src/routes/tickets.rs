//! `POST /v1/streams/{id}/ticket`: for pages whose EventSource cannot send a key.

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use capstan_protocol::Timestamp;
use http::{HeaderValue, header};
use serde_json::json;

use super::streams::own_run;
use crate::access::Caller;
use crate::app::App;
use crate::refusal::Refusal;
use crate::tickets::Tickets;

/// A read-only ticket for one stream, and the URL to open with it.
pub(crate) async fn issue(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let run = own_run(&app, &caller, &id).await?;
    let ticket = Tickets::of(&app).await?.issue(&run.tenant, run.stream_id, Timestamp::now());
    let url = format!("/v1/streams/{}?ticket={}", run.stream_id, ticket.text);
    let answer = json!({ "stream_id": run.stream_id, "ticket": ticket.text, "expires_at": ticket.expires_at, "url": url });
    let mut response = Json(answer).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    ticket.put_into(&mut response);
    Ok(response)
}
