//! Responses over a WebSocket. Each `response.create` frame is handled like a POST, and each event
//! of its answer is a frame. The connection remembers its last answer, so that a client with
//! `store: false` sends only new items.

mod answer;
mod client;
mod connection;
mod create;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, FromRequestParts as _, Request as HttpRequest};
use axum::response::{IntoResponse as _, Response};
use capstan_protocol::{Fault, FaultKind};
use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;
use tracing::Instrument as _;

use self::client::Client;
use self::connection::Connection;
use super::super::errors::{self, ErrorBody, REFUSALS};
use super::super::models::TAG;
use super::Responses;
use crate::face::FaceContext;
use crate::face::post::header_lists;
use crate::face::{self, RefusalTarget};
use crate::identity::caller::Caller;
use crate::identity::scopes::Operation;
use crate::openapi::{Answer, Content, Does, Row, model};
use crate::refusal::{Refusal, RequestId};

/// The size of a connection's buffers, in bytes for each direction. Frames are short, and a
/// connection may last for hours.
const BUFFER: usize = 8 * 1024;

/// Opens a connection. A refusal makes clients use POST.
pub(super) async fn open(
    face: Arc<Responses>,
    cx: FaceContext,
    caller: Caller,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let mut parts = request.into_parts().0;
    if !header_lists(&parts.headers, header::UPGRADE.as_str(), "websocket") {
        // A proxy that does not forward upgrades removes the header, but not the key of the
        // handshake.
        if parts.headers.contains_key(header::SEC_WEBSOCKET_KEY) {
            return Ok(no_websocket());
        }
        return Err(refused(&cx, &face, &parts, FaultKind::MethodNotAllowed.into()));
    }
    if !face.has_websocket {
        return Ok(no_websocket());
    }
    if cx.engine.is_draining() {
        let fault = Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0);
        return Err(refused(&cx, &face, &parts, fault));
    }
    let limits = &cx.engine.settings().limits;
    // A connection counts as an open response, even if it is idle.
    let slot = cx.engine.take_reader(&caller.tenant);
    let slot = slot.map_err(|fault| refused(&cx, &face, &parts, fault))?;
    let head = head_of(&parts, &caller);
    let Ok(upgrade) = WebSocketUpgrade::from_request_parts(&mut parts, &()).await else {
        let fault = Fault::new(FaultKind::InvalidRequest)
            .with_message("The WebSocket handshake is not complete, or not one of version 13.");
        return Err(refused(&cx, &face, &parts, fault));
    };
    let upgrade = upgrade
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_message_size(limits.body_bytes)
        .max_frame_size(limits.body_bytes);
    let span = tracing::Span::current();
    Ok(upgrade.on_upgrade(move |socket| {
        let (engine, tenant) = (cx.engine.clone(), caller.tenant.clone());
        let client = Client { face, cx, caller, head };
        let serving = Connection::new(client, socket, slot).serve();
        engine.of_tenant(&tenant, Box::pin(serving.instrument(span)))
    }))
}

/// Headers of the handshake that the requests of the connection do not get.
const OF_HANDSHAKE: [HeaderName; 9] = [
    header::CONNECTION,
    header::UPGRADE,
    header::SEC_WEBSOCKET_KEY,
    header::SEC_WEBSOCKET_VERSION,
    header::SEC_WEBSOCKET_EXTENSIONS,
    header::SEC_WEBSOCKET_PROTOCOL,
    header::CONTENT_LENGTH,
    header::ACCEPT,
    HeaderName::from_static("idempotency-key"),
];

/// Makes the head of every request of a connection: a POST with the headers of the handshake.
fn head_of(handshake: &Parts, caller: &Caller) -> Parts {
    let mut head = http::Request::new(()).into_parts().0;
    (head.method, head.uri) = (Method::POST, handshake.uri.clone());
    let is_kept = |name: &HeaderName| !OF_HANDSHAKE.contains(name);
    let kept = handshake.headers.iter().filter(|(name, _)| is_kept(name));
    head.headers = kept.map(|(name, value)| (name.clone(), value.clone())).collect::<HeaderMap>();
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.extensions.insert(caller.clone());
    let extensions = &handshake.extensions;
    extensions.get::<RequestId>().cloned().map(|id| head.extensions.insert(id));
    extensions.get::<ConnectInfo<SocketAddr>>().copied().map(|peer| head.extensions.insert(peer));
    head
}

/// The response where WebSockets are switched off or a proxy blocks them. Clients then use POST at
/// once.
fn no_websocket() -> Response {
    let error = json!({ "error": {
        "message": "There is no WebSocket at /v1/responses here: send a POST.",
        "type": "invalid_request_error", "code": "upgrade_required", "param": null } });
    let mut response = (StatusCode::UPGRADE_REQUIRED, Json(error)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("HTTP/1.1"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    response
}

fn refused(cx: &FaceContext, face: &Responses, parts: &Parts, fault: Fault) -> Refusal {
    if fault.kind() != FaultKind::MethodNotAllowed {
        return face::refusal(cx, face, fault, RefusalTarget::Viewer(parts));
    }
    let mut shape = errors::response(cx, &fault, RefusalTarget::Viewer(parts));
    shape.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    Refusal::from(fault).shaped_as(Some(shape))
}

pub(super) const ROW: Row = Row {
    tag: &TAG,
    summary: "Open a WebSocket for responses",
    says: "Each text frame `{\"type\": \"response.create\", …}` is handled like a POST with that \
     body, one at a time. Each event of the answer is a text frame. `previous_response_id` may \
     name the last answer of the connection, stored or not. `generate: false` starts no run: the \
     connection only remembers the input. A refusal is a frame of type `error` with `status`, \
     `error` and `headers`. Without the header `Upgrade` the path has no such method.",
    answers: &[
        Answer { status: 101, says: "The connection is a WebSocket.", ..Answer::ok("", &[]) },
        Answer {
            status: 426,
            says: "WebSockets are switched off, or a proxy has removed the header `Upgrade`.",
            ..Answer::ok("", &[Content::Json(model::<ErrorBody>)])
        },
    ],
    faults: &[
        FaultKind::InvalidRequest,
        FaultKind::MethodNotAllowed,
        FaultKind::ServiceUnavailable,
    ],
    refusals: Some(&REFUSALS),
    does: Does::This(Operation::Start),
    ..Row::NONE
};
