//! The request path: decodes a POST of any face, starts its run or attaches to it, and answers.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Path, Request as HttpRequest, State};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use capstan_protocol::{Fault, FaultKind};
use http::request::Parts;
use http::{HeaderMap, header};
use tokio::sync::OwnedSemaphorePermit;

use crate::face::FaceContext;
use crate::face::reader::{self, ViewerKind};
use crate::face::trace_context;
use crate::face::{self, Face, RefusalTarget, Request, ViewRequest};
use crate::identity::caller::Caller;
use crate::openapi::{Routes, Row};
use crate::refusal::{Refusal, RequestId};
use capstan_engine::ask::{self, RequestBody};
use capstan_engine::cpu_offload;
use capstan_engine::limits::MemoryReservation;
use capstan_engine::relay::Origin;
use capstan_engine::resume::ResumePoint;
use capstan_engine::runs::{self, Start};
use capstan_engine::settings::Limits;

/// The receive window of an HTTP/2 connection. These bytes are in our memory before a body is read,
/// not in the kernel's, so the reader of a body counts them. It is enough to receive the largest
/// picture in three seconds from the other side of the world.
pub const RECEIVE_WINDOW: u32 = 256 * 1024;

/// Answers a POST to a face. `agent` is the agent that the path names.
pub async fn post(
    cx: &FaceContext,
    caller: &Caller,
    face: &dyn Face,
    agent: Option<&str>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let posted = read(cx, caller, face, &parts, body).await?;
    answer(cx, caller, face, agent, &parts, posted).await
}

/// A body that was read, and its memory reservation.
pub struct Posted {
    pub body: RequestBody,
    pub load: MemoryReservation,
    /// The hash by which a repeat is known, if it is not the hash of this body: some faces replace
    /// the body, or ignore members of it.
    pub hash: Option<[u8; 32]>,
}

/// Reads the body of a request to a face, within the limits of every body.
pub async fn read(
    cx: &FaceContext,
    caller: &Caller,
    face: &dyn Face,
    parts: &Parts,
    body: Body,
) -> Result<Posted, Refusal> {
    let mut load = cx.engine.reserve(&caller.tenant);
    let read = async {
        check_content_type(face, &parts.headers)?;
        let mut unread = cx.engine.reserve(&caller.tenant);
        unread.grow(unread_bytes(parts, &body))?;
        let bytes = read_body(cx, &caller.tenant, body, &mut load).await?;
        drop(unread);
        // Decoding copies the text twice at most.
        let size = bytes.len();
        load.grow(size.saturating_mul(2))?;
        let _begun = cx.engine.cpu_offload().begin(&caller.tenant, size).await;
        let most = cx.engine.settings().limits.body_values;
        let body = cpu_offload::run(size, || RequestBody::read(bytes, most))?;
        Ok(Posted { body, load, hash: None })
    };
    read.await.map_err(|fault| face::refusal(cx, face, fault, RefusalTarget::Undecoded(parts)))
}

/// Answers a POST whose body was read. A route may change the body before: `Posted` has the body
/// that the face decodes and stores, and the hash by which a repeat is known.
pub async fn answer(
    cx: &FaceContext,
    caller: &Caller,
    face: &dyn Face,
    agent: Option<&str>,
    parts: &Parts,
    Posted { body, load, hash }: Posted,
) -> Result<Response, Refusal> {
    let begun = cx.engine.cpu_offload().begin(&caller.tenant, body.size()).await;
    let decode = || face.resume_point(parts).and_then(|point| Ok((point, face.decode(&body)?)));
    let decoded = cpu_offload::run(body.size(), decode);
    let (point, mut ask) =
        decoded.map_err(|fault| face::refusal(cx, face, fault, RefusalTarget::Undecoded(parts)))?;
    let completed = face.complete(cx, &caller.tenant, parts, &mut ask).await;
    if let Err(fault) = completed.and_then(|()| ask.check()) {
        return Err(face::refusal(cx, face, fault, RefusalTarget::Client(parts, &ask)));
    }
    let hash = hash.unwrap_or_else(|| body.hash(agent, face.name()));
    let ask = Arc::new(ask);
    let request = Request { tenant: &caller.tenant, parts, body: &body, agent, hash, ask: &ask };
    let answered = Box::pin(start(cx, face, &request, point, (load, begun))).await;
    answered.map_err(|fault| face::refusal(cx, face, fault, RefusalTarget::Client(parts, &ask)))
}

async fn start(
    cx: &FaceContext,
    face: &dyn Face,
    request: &Request<'_>,
    point: ResumePoint,
    (load, begun): (MemoryReservation, Option<OwnedSemaphorePermit>),
) -> Result<Response, Fault> {
    let slot = cx.engine.take_reader(request.tenant)?;
    count_resume(cx, point);
    let key = face.key(cx, request).await?;
    ask::check_id("the request's id", &key)?;
    let start = Start {
        tenant: request.tenant,
        key,
        load,
        ask: request.ask,
        body: request.body,
        hash: request.hash,
        agent: request.agent,
        face: face.name(),
        accepts_reset: face.accepts_reset(request.parts),
        is_unseen: face.wants_collected(request),
        armed_by: face.armed_by(request),
        point,
        origin: origin_of(request.parts),
        started_by: log_id_of(request.parts),
    };
    // The guard counts the request as a reader until the response's own reader begins.
    let (run, _reading) = runs::start_or_attach(&cx.engine, start).await?;
    drop(begun);
    if let Some(mut whole) = face.collected(cx, request, &run).await {
        reader::name_stream(&run, &mut whole);
        return Ok(whole);
    }
    point.in_run(&run)?;
    let posted = Some(request.ask.as_ref());
    let opening =
        ViewRequest { run: &run, point, view: ViewerKind::Post, parts: request.parts, posted };
    reader::respond(cx, face, opening, slot).await
}

fn count_resume(cx: &FaceContext, point: ResumePoint) {
    if point.cursor.is_some() {
        cx.engine.viewers().resumed();
    }
}

fn origin_of(parts: &Parts) -> Origin {
    let request_id = parts.extensions.get::<RequestId>().map(|RequestId(id)| id.clone());
    Origin { request_id, trace: trace_context::context_of(&parts.headers) }
}

/// The caller's id in logs, if it sent a key.
fn log_id_of(parts: &Parts) -> Option<String> {
    let caller = parts.extensions.get::<Caller>();
    caller.map(|caller| caller.log_id.clone()).filter(|id| !id.is_empty())
}

/// Answers a viewer that only watches.
pub async fn watch(
    cx: &FaceContext,
    face: &dyn Face,
    opening: ViewRequest<'_>,
) -> Result<Response, Fault> {
    count_resume(cx, opening.point);
    opening.point.in_run(opening.run)?;
    let slot = cx.engine.take_reader(&opening.run.tenant)?;
    reader::respond(cx, face, opening, slot).await
}

fn check_content_type(face: &dyn Face, headers: &HeaderMap) -> Result<(), Fault> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    let is_read = face.reads(essence);
    is_read.then_some(()).ok_or_else(|| Fault::new(FaultKind::UnsupportedMediaType))
}

/// A body that is too large is read and dropped up to this multiple of the limit, so that the
/// client can read the refusal.
const SPILL: usize = 4;

/// How many bytes of a body may be in memory before it is read. On HTTP/1.1 they stay in the
/// kernel.
fn unread_bytes(parts: &Parts, body: &Body) -> usize {
    match parts.version {
        http::Version::HTTP_2 => {
            body.size_hint().upper().map_or(WINDOW, |most| most.min(WINDOW as u64) as usize)
        }
        _ => 0,
    }
}

const WINDOW: usize = RECEIVE_WINDOW as usize;

/// Reads a body, within the limit for bodies and the tenant's memory limit.
pub async fn read_body(
    cx: &FaceContext,
    tenant: &str,
    body: Body,
    load: &mut MemoryReservation,
) -> Result<Bytes, Fault> {
    let limit = cx.engine.settings().limits.body_bytes;
    let too_large = || {
        Fault::new(FaultKind::PayloadTooLarge)
            .with_message(format!("The request is larger than {limit} bytes."))
    };
    // Refuse an announced length that is far too large without reading the body.
    if body.size_hint().lower() > limit.saturating_mul(SPILL) as u64 {
        return Err(too_large());
    }
    let taking = take(cx, tenant, body, load);
    match tokio::time::timeout(cx.engine.settings().timeouts.request, taking).await {
        Ok(Ok(Ok(bytes))) => bytes.ok_or_else(too_large),
        Ok(Ok(Err(fault))) => Err(fault),
        Ok(Err(_)) => {
            Err(Fault::new(FaultKind::InvalidRequest).with_message("document: the body broke off"))
        }
        Err(_) => {
            Err(Fault::new(FaultKind::Timeout).with_message("The request took too long to arrive."))
        }
    }
}

/// Returns the body, `None` if it is larger than the limit, or the fault of the memory limit. In
/// the latter cases it reads on for a while. If the connection closed while the client still sends,
/// the client would get a reset instead of the answer, and a proxy would answer 502.
async fn take(
    cx: &FaceContext,
    tenant: &str,
    body: Body,
    load: &mut MemoryReservation,
) -> Result<Result<Option<Bytes>, Fault>, axum::Error> {
    let Limits { body_bytes: limit, body_bytes_per_second, .. } = cx.engine.settings().limits;
    let (mut kept, mut size, mut refused) = (BytesMut::new(), 0_usize, None);
    let mut intake =
        cx.engine.cpu_offload().intake(tenant, body.into_data_stream(), body_bytes_per_second);
    while let Some(data) = intake.next().await {
        let data = data?;
        size = size.saturating_add(data.len());
        if size <= limit && refused.is_none() {
            refused = load.grow(data.len()).err();
            if refused.is_some() {
                // Give the memory back.
                kept = BytesMut::new();
                load.shrink_to(0);
            } else {
                kept.extend_from_slice(&data);
            }
        } else if size > limit.saturating_mul(SPILL) {
            break;
        }
    }
    Ok(match refused {
        Some(fault) if size <= limit => Err(fault),
        _ => Ok((size <= limit).then(|| kept.freeze())),
    })
}

/// Whether a header with a list contains this item. Parameters of items do not count.
pub fn header_lists(headers: &HeaderMap, name: &str, wanted: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok());
    let mut items = values
        .flat_map(|v| v.split(','))
        .map(|item| item.split(';').next().unwrap_or_default().trim());
    items.any(|item| item.eq_ignore_ascii_case(wanted))
}

impl Routes<FaceContext> {
    /// Adds a POST that starts a run of a face or attaches to it. The path may name the agent.
    pub fn start(self, path: &'static str, face: Arc<dyn Face>, row: &'static Row) -> Self {
        let handler = async move |State(cx): State<FaceContext>,
                                  Extension(caller): Extension<Caller>,
                                  agent: Option<Path<String>>,
                                  request: HttpRequest| {
            let agent = agent.as_ref().map(|Path(name)| cx.engine.own_name(name));
            post(&cx, &caller, &*face, agent, request).await
        };
        self.post(path, handler, row)
    }
}
