//! Routes of OpenAI's API that start no run (embeddings, files, audio, …). The gateway forwards
//! them to the provider of an agent that allows it, and stores nothing.
//!
//! Keys, scopes, rates and the limit of open responses apply. Bodies are streamed both ways. Only a
//! JSON body is read first, because it names the model.

mod model;
mod rows;

use std::pin::Pin;

use axum::Extension;
use axum::body::{Body, BodyDataStream, HttpBody as _};
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use capstan_engine::Engine;
use capstan_engine::limits::Slot;
use capstan_protocol::{Fault, FaultKind};
use futures_util::StreamExt as _;
use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{HeaderValue, Method};
use tokio_util::sync::WaitForCancellationFutureOwned;

pub(super) use self::rows::routes;
use crate::face::{FaceContext, post};
use crate::identity::caller::Caller;
use crate::refusal::{Forwarded, Refusal};
use capstan_kit::hop_by_hop::drop_hop_by_hop;

/// Forwards a request, and its answer back.
async fn pass(
    State(cx): State<FaceContext>,
    Extension(caller): Extension<Caller>,
    group: &'static str,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    Ok(Box::pin(carry(&cx, &caller, group, parts, body)).await?)
}

async fn carry(
    cx: &FaceContext,
    caller: &Caller,
    group: &'static str,
    mut parts: Parts,
    body: Body,
) -> Result<Response, Fault> {
    let engine = &cx.engine;
    check_path(parts.uri.path())?;
    // A client without permission gets the reason first.
    if !cx.passthrough.has(group) {
        cx.passthrough.choose(engine, group, None)?;
    }
    // No run starts, so recovery and the journal do not matter.
    if engine.is_draining() {
        return Err(Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0));
    }
    let slot = engine.take_reader(&caller.tenant)?;
    engine.take_rate(&caller.tenant)?;
    let (read, _load) = read(cx, caller, &parts, body).await?;
    let chosen = cx.passthrough.choose(engine, group, read.model.as_deref())?;
    let body = read.into_body(chosen.model.as_deref(), &mut parts.headers);
    let method = parts.method.clone();
    let request = outgoing(parts, body);
    let answered = tokio::select! {
        answered = chosen.agent.pass(request) => answered?,
        () = engine.until_ended() => {
            return Err(Fault::new(FaultKind::ServiceUnavailable).with_retry_after(1.0));
        }
    };
    tracing::info!(agent = chosen.name, group, %method, status = answered.status().as_u16(),
        "request passed on");
    Ok(returned(engine, answered, slot))
}

/// Whether an id in the path is a plain word. Anything else could lead to another route.
fn check_path(path: &str) -> Result<(), Fault> {
    let is_plain = |segment: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !segment.is_empty() && segment.chars().all(is_plain) && segment.chars().any(|c| c != '.')
    };
    match path.trim_start_matches('/').split('/').all(is_plain) {
        true => Ok(()),
        false => Err(Fault::new(FaultKind::InvalidRequest)
            .with_message("path: an id holds letters, digits, '-', '_' and '.' only")),
    }
}

/// A body, read as far as necessary.
struct Read {
    /// The body, or its beginning.
    begun: Bytes,
    /// The rest, not read yet.
    rest: Option<BodyDataStream>,
    /// The length of the body, if it is known.
    length: Option<u64>,
    /// The model that the body names.
    model: Option<String>,
    /// The place of the model's name.
    place: Option<std::ops::Range<usize>>,
    is_json: bool,
}

async fn read(
    cx: &FaceContext,
    caller: &Caller,
    parts: &Parts,
    body: Body,
) -> Result<(Read, Option<capstan_engine::limits::MemoryReservation>), Fault> {
    let length = body.size_hint().exact();
    if parts.method != Method::POST {
        return Ok((Read::unread(body, length), None));
    }
    let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default();
    if model::is_json(kind) {
        let mut load = cx.engine.reserve(&caller.tenant);
        let begun = post::read_body(cx, &caller.tenant, body, &mut load).await?;
        let (model, place) = model::in_json(&begun)?;
        let length = Some(begun.len() as u64);
        let read = Read { begun, rest: None, length, model, place, is_json: true };
        return Ok((read, Some(load)));
    }
    let Some(boundary) = model::boundary(kind) else {
        return Ok((Read::unread(body, length), None));
    };
    let mut rest = body.into_data_stream();
    let begun = model::beginning(&mut rest, &boundary).await?;
    let found = model::in_form(&begun, &boundary);
    let (model, place) = found.map_or((None, None), |(model, place)| (Some(model), Some(place)));
    Ok((Read { begun, rest: Some(rest), length, model, place, is_json: false }, None))
}

impl Read {
    fn unread(body: Body, length: Option<u64>) -> Self {
        let rest = Some(body.into_data_stream());
        Self { begun: Bytes::new(), rest, length, model: None, place: None, is_json: false }
    }

    /// Joins the body again, with another model's name. Writes its length into the headers if it is
    /// known.
    fn into_body(self, model: Option<&str>, headers: &mut HeaderMap) -> Body {
        let (mut begun, mut length) = (self.begun, self.length);
        if let (Some(model), Some(place)) = (model, self.place) {
            let model = if self.is_json {
                serde_json::Value::from(model).to_string()
            } else {
                model.to_owned()
            };
            let before = begun.get(..place.start).unwrap_or_default();
            let after = begun.get(place.end..).unwrap_or_default();
            let replaced = [before, model.as_bytes(), after].concat();
            let grown =
                |length: u64| (length + replaced.len() as u64).saturating_sub(begun.len() as u64);
            length = length.map(grown);
            begun = replaced.into();
        }
        headers.remove(header::CONTENT_LENGTH);
        if let Some(length) = length.filter(|length| *length > 0) {
            headers.insert(header::CONTENT_LENGTH, length.into());
        }
        match self.rest {
            None => Body::from(begun),
            Some(_) if length == Some(0) => Body::empty(),
            Some(rest) => {
                let begun = futures_util::stream::iter(Some(Ok(begun)).filter(has_bytes));
                Body::from_stream(begun.chain(rest))
            }
        }
    }
}

fn has_bytes(piece: &Result<Bytes, axum::Error>) -> bool {
    piece.as_ref().is_ok_and(|bytes| !bytes.is_empty())
}

/// Headers of a request that the provider does not get: about the client, the connection, and
/// credentials.
const OURS: [&str; 16] = [
    "accept-charset",
    "authorization",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "last-event-id",
    "openai-organization",
    "openai-project",
    "origin",
    "proxy-connection",
    "referer",
    "via",
    "x-real-ip",
    "x-request-id",
    "x-tenant-id",
];
/// Parts of the names of further such headers.
const CREDENTIALS: [&str; 8] =
    ["api-key", "apikey", "auth", "credential", "password", "secret", "token", "x-forwarded-"];

fn outgoing(parts: Parts, body: Body) -> http::Request<Body> {
    let mut headers = parts.headers;
    drop_hop_by_hop(&mut headers);
    let is_ours = |name: &HeaderName| {
        let name = name.as_str();
        OURS.contains(&name) || CREDENTIALS.iter().any(|part| name.contains(part))
    };
    let ours: Vec<HeaderName> = headers.keys().filter(|name| is_ours(name)).cloned().collect();
    ours.iter().for_each(|name| drop(headers.remove(name)));
    let mut request = http::Request::new(body);
    *request.method_mut() = parts.method;
    *request.uri_mut() = parts.uri;
    *request.headers_mut() = headers;
    request
}

/// Headers of an answer that are about the provider's account, or that the gateway sets itself.
const THEIRS: [&str; 9] = [
    "alt-svc",
    "openai-organization",
    "openai-project",
    "proxy-connection",
    "server",
    "set-cookie",
    "strict-transport-security",
    "vary",
    "x-request-id",
];

/// The provider's answer. It is cut when the server shuts down.
fn returned(engine: &Engine, response: http::Response<Body>, slot: Slot) -> Response {
    let (mut head, body) = response.into_parts();
    drop_hop_by_hop(&mut head.headers);
    THEIRS.iter().for_each(|name| drop(head.headers.remove(*name)));
    let cors: Vec<HeaderName> = head
        .headers
        .keys()
        .filter(|name| name.as_str().starts_with("access-control-"))
        .cloned()
        .collect();
    cors.iter().for_each(|name| drop(head.headers.remove(name)));
    if let Some(length) = body.size_hint().exact() {
        head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    let through = Through {
        ended: Box::pin(engine.until_ended_owned()),
        pieces: body.into_data_stream(),
        _slot: slot,
    };
    let pieces = futures_util::stream::unfold(Some(through), |through| async {
        let mut through = through?;
        let piece = tokio::select! {
            piece = through.pieces.next() => piece?,
            () = through.ended.as_mut() => Err(axum::Error::new("this server ends")),
        };
        let next = piece.is_ok().then_some(through);
        Some((piece, next))
    });
    let mut response = Response::from_parts(head, Body::from_stream(pieces));
    response.extensions_mut().insert(Forwarded);
    response
}

struct Through {
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
    pieces: BodyDataStream,
    /// Holds a place among the tenant's open responses.
    _slot: Slot,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_no_other_route() {
        for path in ["/v1/files/file-1", "/v1/files/a.b_C/content"] {
            assert!(check_path(path).is_ok(), "{path}");
        }
        for path in
            ["/v1/files/..", "/v1/files/%2e%2e", "/v1/files//x", "/v1/files/a%2Fb", "/v1/files/."]
        {
            assert!(check_path(path).is_err(), "{path}");
        }
    }
}
