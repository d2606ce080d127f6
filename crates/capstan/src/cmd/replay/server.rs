//! Serves one run over HTTP/1.1 or 2: to every POST, and to every GET of its stream.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capstan_protocol::{Cursor, Fault, FaultKind, LastEventId, problem, sse};
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;

use super::recording::Recording;

/// The reconnection time at the start of a response.
const RETRY_MS: u32 = 500;

type Body = BoxBody<Bytes, Infallible>;

/// The run, and its speed.
pub(super) struct Server {
    pub(super) recording: Recording,
    /// 0 sends everything at once.
    pub(super) speed: f64,
}

impl Server {
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((socket, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let _ = socket.set_nodelay(true);
            let here = Arc::clone(&self);
            let service = service_fn(move |request| {
                let response = here.clone().answer(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            tokio::spawn(async move {
                // A client that hangs up is no error.
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(socket), service)
                    .await;
            });
        }
    }

    fn answer(self: Arc<Self>, request: &Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        let own = format!("/v1/streams/{}", self.recording.stream());
        match *request.method() {
            Method::POST if path.ends_with("/assist") => self.respond(request, false),
            Method::GET if path == own => self.respond(request, true),
            Method::GET if path.starts_with("/v1/streams/") => {
                refusal(Fault::new(FaultKind::StreamNotFound))
            }
            Method::GET if matches!(path, "/livez" | "/readyz" | "/health") => {
                Response::new(empty())
            }
            _ => refusal(Fault::new(FaultKind::RouteNotFound)),
        }
    }

    /// Sends the packets after the request's cursor.
    fn respond(self: Arc<Self>, request: &Request<Incoming>, is_watched: bool) -> Response<Body> {
        let cursor = request.headers().get("last-event-id").filter(|value| !value.is_empty());
        let cursor = cursor.map(|value| value.to_str().unwrap_or_default().parse::<LastEventId>());
        let after = match cursor {
            None => 0,
            Some(Ok(id)) if id.stream_id() == self.recording.stream() => id.cursor().seq,
            Some(_) => {
                let message = format!("Last-Event-ID: this is stream {}", self.recording.stream());
                return refusal(Fault::new(FaultKind::InvalidRequest).with_message(message));
            }
        };
        let at = self.recording.frames.partition_point(|frame| frame.seq <= after);
        if is_watched && at >= self.recording.frames.len() && self.recording.is_closed() {
            let mut response = Response::new(empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return response;
        }
        let stream_id = HeaderValue::from_str(&self.recording.stream().to_string());
        let mut opening = Vec::new();
        sse::encode_opening(&Cursor::new(self.recording.stream(), after), RETRY_MS, &mut opening);
        let frames = stream::iter([Ok(Frame::data(opening.into()))]).chain(self.frames_from(at));
        let mut response = Response::new(BodyExt::boxed(StreamBody::new(frames)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store, no-transform"));
        stream_id.into_iter().for_each(|id| drop(headers.insert("x-stream-id", id)));
        response
    }

    /// Yields each frame at its time; the first one at once.
    fn frames_from(
        self: Arc<Self>,
        at: usize,
    ) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync + use<> {
        stream::unfold((self, at, true), async |(server, at, is_first)| {
            let frame = server.recording.frames.get(at)?;
            if !is_first && server.speed > 0.0 {
                tokio::time::sleep(frame.after.div_f64(server.speed)).await;
            }
            let bytes = frame.bytes.clone();
            Some((Ok(Frame::data(bytes)), (server, at + 1, false)))
        })
    }
}

fn empty() -> Body {
    Full::new(Bytes::new()).boxed()
}

fn refusal(fault: Fault) -> Response<Body> {
    let problem = fault.to_problem(capstan_protocol::Exposure::Production);
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed());
    *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::NOT_FOUND);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(problem::CONTENT_TYPE));
    response
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use capstan_protocol::{Payload, StreamPacket, Timestamp};
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;

    /// A run of two packets, 400 ms apart.
    fn recording() -> Recording {
        let (stream_id, payload) = (Uuid::now_v7(), Payload::Delta("a".into()));
        let mut bytes = Vec::new();
        for (seq, t) in [(1, 0), (2, 400_000)] {
            let t = Timestamp::from_micros(t);
            let packet = StreamPacket { stream_id, seq, t, payload: payload.clone() };
            sse::encode_packet(&packet, &mut bytes);
        }
        Recording::of(&bytes).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn frames_keep_the_pace_of_the_run() {
        for (speed, took) in [(1.0, 400), (2.0, 200), (0.0, 0)] {
            let began = Instant::now();
            let server = Arc::new(Server { recording: recording(), speed });
            assert_eq!(server.frames_from(0).count().await, 2);
            assert_eq!(began.elapsed(), Duration::from_millis(took), "by the paused clock");
        }
    }
}
