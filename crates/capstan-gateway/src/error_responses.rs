//! Converts faults to HTTP responses: problem+json, headers, one log line, one count. No other code
//! does that.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use capstan_protocol::{Fault, FaultKind, problem};
use http::{HeaderValue, StatusCode, header};
use tracing::Instrument as _;
use uuid::Uuid;

use crate::face::{FaceContext, Faces, RefusalTarget};
use crate::metrics::{Metrics, NO_AGENT};
use crate::refusal::{Forwarded, RequestId, ResponseTenant, RunFault, ShapedByFace};
use capstan_console::{Console, Refused};

/// The data for refusals, and their counters.
#[derive(Clone)]
pub(crate) struct ErrorResponses {
    pub(crate) cx: FaceContext,
    pub(crate) faces: Faces,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) console: Console,
}

/// The request's id in the logs: the client's own if it is harmless, else a new one.
fn request_id(request: &Request) -> String {
    /// A longer id would fill the log.
    const LONGEST: usize = 128;
    let given = request.headers().get("x-request-id").and_then(|id| id.to_str().ok());
    let is_plain = |id: &&str| {
        !id.is_empty() && id.len() <= LONGEST && id.bytes().all(|b| b.is_ascii_graphic())
    };
    given.filter(is_plain).map_or_else(|| Uuid::now_v7().to_string(), str::to_owned)
}

/// The outermost layer: gives the request its id, converts its fault to a response, and logs it
/// once.
pub(crate) async fn render(
    State(here): State<ErrorResponses>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = request_id(&request);
    request.extensions_mut().insert(RequestId(id.clone()));
    let route = request.extensions().get::<MatchedPath>().map(|route| route.as_str().to_owned());
    let (method, path, started) =
        (request.method().clone(), request.uri().path().to_owned(), Instant::now());
    // Level `error`, so that every line of the request and its run has the span, whatever level is
    // logged.
    let span = tracing::error_span!("request", request_id = %id, tenant = tracing::field::Empty);
    let mut response = next.run(request).instrument(span.clone()).await;
    let extensions = response.extensions();
    let is_told =
        extensions.get::<Forwarded>().is_some() || extensions.get::<ShapedByFace>().is_some();
    if !is_told && extensions.get::<Fault>().is_none() {
        response = unify(response);
    }
    if let Some(fault) = response.extensions_mut().remove::<Fault>() {
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if response.extensions().get::<RunFault>().is_none() {
            here.metrics.fault(fault.kind(), NO_AGENT);
            let tenant = response
                .extensions_mut()
                .remove::<ResponseTenant>()
                .map(|ResponseTenant(name)| name);
            let (request_id, status, is_of_console) =
                (id.clone(), fault.status(), is_of_console(&path));
            let refused = Refused { request_id, tenant, route, status, ms, is_of_console };
            here.console.refused(refused, &fault);
        }
        let cause = here.cx.engine.loggable(&fault);
        tracing::info!(parent: &span, %method, path, code = fault.code(), status = fault.status(),
        ms, cause, "refused");
        let is_shaped = response.extensions().get::<ShapedByFace>().is_some();
        if !is_shaped {
            // Refused before the face got the request, by authentication for example.
            let face = here.faces.iter().find(|face| face.owns(&path));
            let shaped = face
                .and_then(|face| face.refuse(&here.cx, &fault, RefusalTarget::BeforeFace(&path)));
            response = match shaped {
                Some(shaped) => with_headers_of(shaped, &response),
                None => problem_response(&here.cx, &fault, &id, &response),
            };
        }
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

/// Whether the path belongs to the console.
fn is_of_console(path: &str) -> bool {
    path.strip_prefix("/v1/console").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Keeps headers that inner layers set: `Allow`, and those that let a page of another origin read
/// the response.
fn with_headers_of(mut shaped: Response, old: &Response) -> Response {
    let headers = shaped.headers_mut();
    for (name, value) in old.headers() {
        let is_of_body = *name == header::CONTENT_LENGTH || *name == header::CONTENT_TYPE;
        if !is_of_body && !headers.contains_key(name) {
            headers.insert(name, value.clone());
        }
    }
    shaped
}

/// Converts refusals of the framework (unknown route, wrong method) to faults.
fn unify(mut response: Response) -> Response {
    let kind = match response.status() {
        StatusCode::NOT_FOUND => FaultKind::RouteNotFound,
        StatusCode::METHOD_NOT_ALLOWED => FaultKind::MethodNotAllowed,
        StatusCode::PAYLOAD_TOO_LARGE => FaultKind::PayloadTooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE => FaultKind::UnsupportedMediaType,
        // The gateway parses queries and bodies itself, so only the path can be wrong.
        StatusCode::BAD_REQUEST => {
            let fault = Fault::new(FaultKind::InvalidRequest).with_message("path: not UTF-8");
            response.extensions_mut().insert(fault);
            return response;
        }
        StatusCode::INTERNAL_SERVER_ERROR => FaultKind::AgentExecutionError,
        _ => return response,
    };
    response.extensions_mut().insert(Fault::new(kind));
    response
}

fn problem_response(cx: &FaceContext, fault: &Fault, id: &str, old: &Response) -> Response {
    let mut problem = fault.to_problem(cx.engine.settings().exposure);
    problem.request_id = Some(id.to_owned());
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    // Headers that inner layers set: `Allow`, and those that let a page of another origin read the
    // response.
    headers.clone_from(old.headers());
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = problem.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
