//! The way in: whatever its face, a POST becomes a question, starts a run or attaches to it, and is answered.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request as HttpRequest;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use capstan_protocol::{Fault, FaultKind};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;

use crate::access::Caller;
use crate::app::App;
use crate::face::{self, Asker, Face, Opening, Request};
use crate::reader::{self, View};
use crate::refusal::Refusal;
use crate::resume::ResumePoint;
use crate::runs::{self, Start};
use crate::traces;

/// Answers a POST to a face; `agent` is the one that the path names.
pub(crate) async fn post(
    app: &App,
    caller: &Caller,
    face: Arc<dyn Face>,
    agent: Option<&str>,
    request: HttpRequest,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let refuse = |fault, asker| face::refusal(app, &*face, fault, asker);
    let read = async {
        check_content_type(&parts.headers)?;
        let point = face.resume_point(&parts)?;
        let body = read_body(app, body).await?;
        let ask = Arc::new(face.decode(&body)?);
        Ok((point, body, ask))
    };
    let (point, body, ask) = read.await.map_err(|fault: Fault| refuse(fault, Asker::Unread))?;
    let request = Request { tenant: &caller.tenant, parts: &parts, body: &body, ask: &ask };
    let answered = answer(app, &*face, agent, &request, point).await;
    answered.map_err(|fault| refuse(fault, Asker::Client(&ask)))
}

async fn answer(
    app: &App,
    face: &dyn Face,
    agent: Option<&str>,
    request: &Request<'_>,
    point: ResumePoint,
) -> Result<Response, Fault> {
    let slot = app.limiter.take_reader(request.tenant, &app.settings.limits)?;
    app.metrics.resumed(point);
    let start = Start {
        tenant: request.tenant,
        key: face.key(request.ask, request),
        ask: request.ask,
        body: request.body.clone(),
        agent,
        face: face.name(),
        accepts_reset: face.accepts_reset(request.parts),
        is_unseen: face.wants_whole(request.parts),
        armed_by: face.armed_by(),
        point,
        trace: traces::context_of(&request.parts.headers),
    };
    let run = runs::start_or_attach(app, start).await?;
    if let Some(whole) = face.whole(app, request, &run).await {
        return Ok(whole);
    }
    point.in_run(&run)?;
    let posted = Some(request.ask.as_ref());
    let opening = Opening { run: &run, point, view: View::Post, parts: request.parts, posted };
    reader::respond(app, face, opening, slot).await
}

/// Answers a viewer that only looks.
pub(crate) async fn watch(app: &App, face: &dyn Face, opening: Opening<'_>) -> Result<Response, Fault> {
    app.metrics.resumed(opening.point);
    opening.point.in_run(opening.run)?;
    let slot = app.limiter.take_reader(&opening.run.tenant, &app.settings.limits)?;
    reader::respond(app, face, opening, slot).await
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Fault> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    let is_json = essence.eq_ignore_ascii_case("application/json");
    is_json.then_some(()).ok_or_else(|| Fault::new(FaultKind::UnsupportedMediaType))
}

/// How often the limit of a body is taken and thrown away, so that the one who sent it can read why.
const SPILL: usize = 4;

async fn read_body(app: &App, body: Body) -> Result<Bytes, Fault> {
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

/// Whether a header that is a list has this item, parameters aside.
pub(crate) fn header_lists(headers: &HeaderMap, name: &str, wanted: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|v| v.to_str().ok());
    let mut items =
        values.flat_map(|v| v.split(',')).map(|item| item.split(';').next().unwrap_or_default().trim());
    items.any(|item| item.eq_ignore_ascii_case(wanted))
}
