//! `POST /v1/assist`: start a run, or attach to it; as a stream or in one object.

use std::sync::Arc;

use axum::Extension;
use axum::Json;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use capstan_journal::Run;
use capstan_protocol::{Fault, FaultKind, LastEventId, Profile};
use http::{HeaderMap, HeaderValue, header};
use http_body_util::BodyExt as _;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::access::Caller;
use crate::app::App;
use crate::ask::Ask;
use crate::face::{Cap, Face, cap};
use crate::openapi::{self, Answer, Content, Row, Tag};
use crate::query::Query;
use crate::reader::{self, View};
use crate::refusal::Refusal;
use crate::runs::{self, ResumePoint, Start};
use crate::{tickets, traces};

/// How the answer is told.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Params {
    /// The profile of the packets; that of the body unless said.
    profile: Option<Profile>,
    /// Read on after this packet, unless `Last-Event-ID` says where.
    after: Option<u64>,
}

pub(crate) const POST: Row = Row {
    tag: Tag::Runs,
    summary: "Start a run, or attach to it",
    says: "The agent of the path answers, else the one that `context.agent_id` names, else the default one.\n\n\
        The first request with a `request_id` starts the run. The same request sent again attaches to it in whatever state it is, and never starts \
        a second one; another body under the same key is a conflict. Leaving is not stopping: the run goes on.\n\n\
        The answer is a stream of packets, or one object with `Accept: application/json`. In a stream the fault of a run is an ERROR packet; \
        in one object it is the answer, so that any code of the catalogue may come, and an agent's own under 500.",
    place: Some(&openapi::AGENT),
    query: Some(Params::json_schema),
    headers: &[&openapi::CURSOR, &openapi::ALLOW_RESET],
    body: Some(&openapi::SERVICE_REQUEST),
    answers: &[Answer {
        headers: &[&openapi::STREAM_ID, &openapi::STREAM_TICKET],
        links: openapi::LINKS_OF_RUN,
        ..Answer::ok(
            "The packets of the run, an event each; the `id:` of an event is the cursor after it. Or all of it in one object.",
            &[Content::Events(openapi::packets), Content::Json(openapi::whole_run)],
        )
    }],
    faults: &[
        FaultKind::RequestConflict,
        FaultKind::PayloadTooLarge,
        FaultKind::UnsupportedMediaType,
        FaultKind::Timeout,
        FaultKind::AgentNotFound,
        FaultKind::StreamExpired,
        FaultKind::StreamLost,
        FaultKind::RateLimitExceeded,
        FaultKind::SessionLimitExceeded,
        FaultKind::MessageLimitExceeded,
        FaultKind::ServiceUnavailable,
        FaultKind::JournalUnavailable,
    ],
    tells_of_run: true,
};

/// For the default agent, or the one that the request names.
pub(crate) async fn post(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(params): Query<Params>,
    request: Request,
) -> Result<Response, Refusal> {
    assist(&app, &caller, None, &params, request).await
}

/// For the agent in the path.
pub(crate) async fn post_to(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    Query(params): Query<Params>,
    request: Request,
) -> Result<Response, Refusal> {
    assist(&app, &caller, Some(&agent), &params, request).await
}

async fn assist(
    app: &App,
    caller: &Caller,
    agent: Option<&str>,
    params: &Params,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    check_content_type(&parts.headers)?;
    let place = resume_point(app, last_event_id(&parts.headers)?, params.after);
    let body = read_body(app, body).await?;
    let ask = Arc::new(Ask::decode(cap::NAME, &body)?);
    let face = Face::Cap(Cap(params.profile.unwrap_or(ask.profile)));
    let slot = app.limiter.take_reader(&caller.tenant, &app.settings.limits)?;
    let accepts_reset = header_lists(&parts.headers, "x-cap-accept", capstan_protocol::event::STREAM_RESET);
    let trace = traces::context_of(&parts.headers);
    let start = Start {
        tenant: &caller.tenant,
        ask: &ask,
        body,
        agent,
        face: cap::NAME,
        accepts_reset,
        place,
        trace,
    };
    let run = runs::start_or_attach(app, start).await?;
    if wants_json(&parts.headers) {
        return Ok(whole(app, &run, &ask).await);
    }
    let after = place.in_run(&run)?;
    let response = reader::respond(app, &run, after, face, View::Post, slot);
    Ok(tickets::attach(app, &run, response).await?)
}

/// The run in one object, or its fault, which the relay has counted.
async fn whole(app: &App, run: &Run, ask: &Ask) -> Response {
    let mut response = match reader::collect(app, run, ask.key.parse().unwrap_or_default()).await {
        Ok(answer) => Json(answer).into_response(),
        Err(fault) => Refusal(fault).of_a_run(),
    };
    if let Ok(id) = HeaderValue::from_str(&run.stream_id.to_string()) {
        response.headers_mut().insert("x-stream-id", id);
    }
    response
}

pub(crate) fn check_content_type(headers: &HeaderMap) -> Result<(), Fault> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    let is_json = essence.eq_ignore_ascii_case("application/json");
    is_json.then_some(()).ok_or_else(|| Fault::new(FaultKind::UnsupportedMediaType))
}

/// How often the limit of a body is taken and thrown away, so that the one who sent it can read why.
const SPILL: usize = 4;

pub(crate) async fn read_body(app: &App, body: Body) -> Result<Bytes, Fault> {
    let limit = app.settings.limits.body_bytes;
    let too_large = || {
        Fault::new(FaultKind::PayloadTooLarge)
            .with_message(format!("The request is larger than {limit} bytes."))
    };
    // Who announces far too much need not send it.
    if body.size_hint().lower() > limit.saturating_mul(SPILL) as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(app.settings.timeouts.request, take(body, limit)).await {
        Ok(Ok(bytes)) => bytes.ok_or_else(too_large),
        Ok(Err(_)) => Err(Fault::new(FaultKind::InvalidRequest).with_message("document: the body broke off")),
        Err(_) => Err(Fault::new(FaultKind::Timeout).with_message("The request took too long to arrive.")),
    }
}

/// The body, or `None` if it is larger than the limit. It is read on in that case, within reason: whoever still sends
/// when the connection is closed meets a reset instead of the answer, and a proxy makes a 502 of it.
async fn take(mut body: Body, limit: usize) -> Result<Option<Bytes>, axum::Error> {
    let (mut kept, mut size) = (BytesMut::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        size = size.saturating_add(data.len());
        if size <= limit {
            kept.extend_from_slice(&data);
        } else if size > limit.saturating_mul(SPILL) {
            break;
        }
    }
    Ok((size <= limit).then(|| kept.freeze()))
}

/// `Accept: application/json` without `text/event-stream` asks for one object.
fn wants_json(headers: &HeaderMap) -> bool {
    let lists = |kind| header_lists(headers, "accept", kind);
    lists("application/json") && !lists("text/event-stream")
}

fn header_lists(headers: &HeaderMap, name: &str, wanted: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok());
    let mut items =
        values.flat_map(|v| v.split(',')).map(|item| item.split(';').next().unwrap_or_default().trim());
    items.any(|item| item.eq_ignore_ascii_case(wanted))
}

/// Where a viewer reads on, as headers and query say.
pub(crate) fn resume_point(app: &App, cursor: Option<LastEventId>, after: Option<u64>) -> ResumePoint {
    if cursor.is_some() {
        app.metrics.resumes.inc();
    }
    ResumePoint { cursor, after }
}

pub(crate) fn last_event_id(headers: &HeaderMap) -> Result<Option<LastEventId>, Fault> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    // An EventSource that has seen nothing sends an empty one.
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = |e| Fault::new(FaultKind::InvalidRequest).with_message(format!("Last-Event-ID: {e}"));
    text.parse().map(Some).map_err(wrong)
}
