//! `GET /v1/durable/{id}`: the items that exist, a long poll, or a live stream.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::Response;
use capstan_journal::{Run, RunState};
use capstan_protocol::{Cursor, Fault, FaultKind, StreamPacket};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::items::{List, Shape};
use super::offset::Offset;
use super::{CLOSED, CURSOR, Durable, NEXT_OFFSET, UP_TO_DATE};
use crate::face::FaceContext;
use crate::face::post;
use crate::face::reader::{self, ViewerKind};
use crate::face::{self, RefusalTarget, ViewRequest};
use crate::identity::caller::Caller;
use crate::identity::tickets::DURABLE_STREAM;
use crate::openapi::{self, Answer, Content, Header, Routes, Row, Tag, model};
use crate::query;
use capstan_engine::lookup;
use capstan_engine::resume::ResumePoint;

/// How long a long poll waits: less than the timeouts of proxies and clients.
const LONG_POLL: Duration = Duration::from_secs(25);

const TAG: Tag =
    Tag { name: "Durable Streams", says: "Any run, for clients of Durable Streams. Read-only." };

/// The query of a read.
#[derive(Debug, Deserialize, JsonSchema)]
struct ReadParams {
    /// `-1` for all items, `now` for later ones, else the value of `Stream-Next-Offset`.
    offset: Option<String>,
    /// Wait for items. Without it, the answer has the items that exist.
    live: Option<Live>,
    /// The value of `Stream-Cursor`. It has no effect here.
    #[expect(dead_code, reason = "for the schema only: clients send it")]
    cursor: Option<String>,
    /// `ai-sdk` for chunks of a UI message in place of packets.
    face: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
enum Live {
    #[serde(rename = "long-poll")]
    LongPoll,
    #[serde(rename = "sse")]
    Sse,
    /// Any live mode.
    #[serde(rename = "true")]
    Any,
}

const NEXT: Header = Header {
    name: "Stream-Next-Offset",
    says: "The `offset` of the next request.",
    schema: || json!({ "type": "string", "pattern": "^[0-9]{20}$" }),
};
const FLAG: fn() -> serde_json::Value = || json!({ "const": "true" });
const IS_UP_TO_DATE: Header =
    Header { name: "Stream-Up-To-Date", says: "No later item exists yet.", schema: FLAG };
const IS_CLOSED: Header = Header {
    name: "Stream-Closed",
    says: "The stream has ended: no later item will \
        exist.",
    schema: FLAG,
};
const HEADERS: &[&Header] = &[&NEXT, &IS_UP_TO_DATE, &IS_CLOSED];

const ROW: Row = Row {
    tag: &TAG,
    summary: "Read a stream by offsets",
    says: "The reading part of Durable Streams. Items are the packets of the journal. A run that \
     failed has an ERROR among them; there is no other sign. Requests that create, append or \
     delete get status 405.",
    places: &[&openapi::STREAM],
    query: Some(ReadParams::json_schema),
    answers: &[
        Answer {
            headers: HEADERS,
            ..Answer::ok(
                "Items after the offset, as an array; with `live=sse` a stream of arrays (`data`) \
                 and offsets (`control`).",
                &[
                    Content::Json(model::<Vec<StreamPacket>>),
                    Content::Events(model::<Vec<StreamPacket>>),
                ],
            )
        },
        Answer {
            status: 204,
            headers: HEADERS,
            ..Answer::ok("No item came during the wait, or the stream has ended.", &[])
        },
    ],
    faults: &[
        FaultKind::StreamNotFound,
        FaultKind::StreamExpired,
        FaultKind::StreamLost,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    ..Row::NONE
};

pub(super) fn routes(face: &Arc<Durable>) -> Routes<FaceContext> {
    let face = face.clone();
    let handler = async move |State(cx): State<FaceContext>,
                              Extension(caller): Extension<Caller>,
                              Path(id): Path<String>,
                              request: HttpRequest| {
        let (mut parts, _) = request.into_parts();
        let read = read(&face, &cx, &caller, &id, &mut parts).await;
        read.map_err(|fault| face::refusal(&cx, &*face, fault, RefusalTarget::Viewer(&parts)))
    };
    Routes::default().get(DURABLE_STREAM, handler, &ROW)
}

async fn read(
    face: &Durable,
    cx: &FaceContext,
    caller: &Caller,
    id: &str,
    parts: &mut Parts,
) -> Result<Response, Fault> {
    let params: ReadParams = query::parse(&parts.uri)?;
    let shape = Shape::named(params.face.as_deref(), &face.with_items)?;
    let run = lookup::by_stream(&cx.engine, &caller.tenant, id).await?;
    let after = Offset::of(params.offset.as_deref(), &run)?.0;
    if after > run.last_seq {
        return Err(Fault::new(FaultKind::StreamLost));
    }
    if parts.method == Method::HEAD {
        return Ok(tail_of(&run));
    }
    match params.live {
        Some(Live::Sse) => {
            parts.extensions.insert(shape);
            let point = ResumePoint::at(Cursor::new(run.stream_id, after));
            let opening =
                ViewRequest { run: &run, point, view: ViewerKind::Get, parts, posted: None };
            post::watch(cx, face, opening).await
        }
        Some(Live::LongPoll | Live::Any) => batch(cx, &run, after, &shape, Some(LONG_POLL)).await,
        None => batch(cx, &run, after, &shape, None).await,
    }
}

/// One answer. `patience` is how long it waits if there are no items yet.
async fn batch(
    cx: &FaceContext,
    run: &Run,
    after: u64,
    shape: &Shape,
    wait: Option<Duration>,
) -> Result<Response, Fault> {
    let mut items = List::after(cx, run, after, shape).await?;
    let batch = reader::poll(cx, run, after, wait.unwrap_or_default()).await?;
    let is_empty = batch.frames.is_empty() && wait.is_some();
    let mut response = match is_empty {
        true => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        false => Response::new(Body::from(items.array(&batch.frames))),
    };
    mark(&mut response, batch.last, batch.is_up_to_date, batch.is_over);
    if wait.is_some() {
        response.headers_mut().insert(CURSOR, HeaderValue::from(batch.last));
    }
    reader::name_stream(run, &mut response);
    Ok(response)
}

/// The present end of the stream.
fn tail_of(run: &Run) -> Response {
    let mut response = Response::new(Body::empty());
    mark(&mut response, run.last_seq, true, run.state == RunState::Closed);
    reader::name_stream(run, &mut response);
    response
}

fn mark(response: &mut Response, last: u64, is_up_to_date: bool, is_over: bool) {
    const TRUE: HeaderValue = HeaderValue::from_static("true");
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Shared caches must not store a tenant's data.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    if let Ok(next) = HeaderValue::from_str(&Offset(last).to_string()) {
        headers.insert(NEXT_OFFSET, next);
    }
    if is_up_to_date {
        headers.insert(UP_TO_DATE, TRUE);
    }
    if is_over {
        headers.insert(CLOSED, TRUE);
    }
}
