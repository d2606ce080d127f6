//! A response body in one piece. It counts against its tenant's memory limit until the client has
//! read it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody as _};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use capstan_protocol::Fault;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use serde::Serialize;

use crate::refusal::Refusal;
use capstan_engine::Engine;
use capstan_engine::cpu_offload;
use capstan_engine::limits::MemoryReservation;

/// How much the connection gets at once. If it got all, a slow client could hold memory that nobody
/// counts.
const PIECE: usize = 64 * 1024;

/// Smaller bodies are not counted: they take no more than the connection itself.
const SMALL: u64 = 4 * 1024;

/// The tenant or operator whose memory limit counts a response. Empty until the caller is known.
#[derive(Debug, Clone, Default)]
pub struct Payer(Arc<OnceLock<String>>);

impl Payer {
    /// Sets the tenant or operator of this request.
    pub fn name(head: &http::Extensions, name: &str) {
        if let Some(Self(payer)) = head.get() {
            payer.get_or_init(|| name.to_owned());
        }
    }
}

/// Marks a response that is counted already.
#[derive(Debug, Clone, Copy)]
struct Paid;

/// A layer that counts each body in one piece against its tenant's memory limit, or refuses it.
/// Public pages exist once, and count for nobody.
pub async fn count(State(engine): State<Engine>, mut request: Request, next: Next) -> Response {
    let payer = Payer::default();
    request.extensions_mut().insert(payer.clone());
    let response = next.run(request).await;
    let Some(name) = payer.0.get() else { return response };
    let size = response.body().size_hint().exact().filter(|size| *size > SMALL);
    let Some(size) = size.filter(|_| response.extensions().get::<Paid>().is_none()) else {
        return response;
    };
    let mut load = engine.reserve(name);
    if let Err(fault) = load.grow(size as usize) {
        return Refusal::from(fault).into_response();
    }
    let (head, body) = response.into_parts();
    // A body with a known size is in memory already.
    let text = body.collect().await.map(|body| body.to_bytes());
    let body = text.map_or_else(|_| Body::empty(), |rest| Body::new(AccountedBody { rest, load }));
    Response::from_parts(head, body)
}

struct AccountedBody {
    rest: Bytes,
    load: MemoryReservation,
}

impl hyper::body::Body for AccountedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            self.load.shrink_to(0);
            return Poll::Ready(None);
        }
        let piece = PIECE.min(self.rest.len());
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

/// Encodes an object as JSON. From then on the reservation is the length of the text.
pub fn json(object: &(impl Serialize + Sync), load: MemoryReservation) -> Result<Response, Fault> {
    let text = cpu_offload::run(load.held(), || serde_json::to_vec(object));
    Ok(answer(text.map_err(Fault::from_error)?, load))
}

fn answer(text: Vec<u8>, mut load: MemoryReservation) -> Response {
    load.shrink_to(text.len());
    let mut response = Response::new(Body::new(AccountedBody { rest: text.into(), load }));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.extensions_mut().insert(Paid);
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use hyper::body::Body as _;

    use super::*;
    use capstan_engine::settings::{EngineSettings, Limits};
    use capstan_journal::{Journal, MemoryStore, TailLimits};

    #[tokio::test]
    async fn unread_bytes_count_until_they_are_read() {
        const MOST: usize = 900_000;
        let limits = Limits { bytes_in_flight_per_tenant: MOST, ..Limits::default() };
        let journal = Journal::new(Arc::new(MemoryStore::default()), TailLimits::default());
        let settings = EngineSettings { limits, ..EngineSettings::default() };
        let engine = Engine::builder(journal).settings(settings).build();
        let free = |taken: usize| engine.reserve("t").grow(MOST - taken).is_ok();
        let mut load = engine.reserve("t");
        load.grow(MOST).unwrap();
        let mut body = answer(vec![b' '; 200_000], load).into_body();
        assert_eq!(body.size_hint().exact(), Some(200_000));
        let mut pieces = Vec::new();
        while let Some(piece) = body.frame().await {
            assert!(free(200_000) && !free(199_999), "its length, and no more");
            pieces.push(piece.unwrap().into_data().unwrap().len());
        }
        assert_eq!(pieces, [65_536, 65_536, 65_536, 3_392]);
        assert!(free(0));
    }
}
