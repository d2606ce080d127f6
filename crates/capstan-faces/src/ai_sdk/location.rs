//! Answers with the address of a message in Durable Streams, for the chat transport of its client.
//! That client reads `Location` and ignores the body, so it gets none.

use axum::body::Body;
use axum::response::Response;
use capstan_journal::Run;
use capstan_protocol::Fault;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::face::FaceContext;
use crate::face::{post, reader};
use crate::identity::caller::Caller;
use crate::identity::tickets::{Holder, Tickets};

/// RFC 7240.
pub(super) const PREFER: &str = "prefer";
const ASYNC: &str = "respond-async";

pub(super) fn is_preferred(parts: &Parts) -> bool {
    post::header_lists(&parts.headers, PREFER, ASYNC)
}

/// The answer to a client that reads Durable Streams.
pub(super) async fn response(
    cx: &FaceContext,
    run: &Run,
    parts: &Parts,
) -> Result<Response, Fault> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    headers.insert("preference-applied", HeaderValue::from_static(ASYNC));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    name(cx, run, parts, headers).await?;
    reader::name_stream(run, &mut response);
    Ok(response)
}

/// The address. The client sends no key with it, so it contains a ticket if one is needed.
pub(super) async fn name(
    cx: &FaceContext,
    run: &Run,
    parts: &Parts,
    headers: &mut HeaderMap,
) -> Result<(), Fault> {
    let base = cx.site.public_url.as_deref().unwrap_or_default().trim_end_matches('/');
    let mut place = format!("{base}/v1/durable/{}?face=ai-sdk", run.stream_id);
    if let Some(key) = parts.extensions.get::<Caller>().and_then(|caller| caller.key.as_ref()) {
        let holder = Holder { tenant: &run.tenant, key };
        let ticket =
            Tickets::load(&cx.engine).await?.issue(holder, run.stream_id, cx.engine.wall().unset());
        place.push_str("&ticket=");
        place.push_str(&ticket.text);
    }
    if let Ok(place) = HeaderValue::from_str(&place) {
        headers.insert(header::LOCATION, place);
    }
    Ok(())
}
