//! A reverse proxy that rewrites: what is forwarded, the head and body that come back, single
//! frames of a stream.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode};
use axum::response::Response;
use futures_util::{StreamExt as _, stream};

use crate::breaches::plants::Breach;
use crate::common::{plain_client, serve_router};

/// A request on its way to the gateway.
pub(crate) struct Sent {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    /// Notes about earlier requests.
    pub(crate) memory: Arc<Mutex<Vec<String>>>,
}

impl Sent {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Notes a word; returns true if it was there already.
    pub(crate) fn note(&self, word: String) -> bool {
        let mut memory = self.memory.lock().unwrap();
        let is_known = memory.contains(&word);
        memory.push(word);
        is_known
    }
}

/// A response on its way back; a stream has no body here.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<String>,
}

#[derive(Clone)]
struct Proxy {
    breach: &'static Breach,
    gateway: String,
    http: reqwest::Client,
    memory: Arc<Mutex<Vec<String>>>,
}

/// Serves until the test ends; its URL.
pub(crate) async fn start(breach: &'static Breach, gateway: &str) -> String {
    let http = plain_client();
    let proxy = Proxy { breach, gateway: gateway.to_owned(), http, memory: Arc::default() };
    serve_router(Router::new().fallback(forward).with_state(proxy)).await
}

fn without_framing(mut headers: HeaderMap) -> HeaderMap {
    for name in ["host", "content-length", "transfer-encoding", "connection"] {
        headers.remove(HeaderName::from_static(name));
    }
    headers
}

async fn forward(State(proxy): State<Proxy>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap();
    let mut sent = Sent {
        method: head.method,
        path: head.uri.path_and_query().unwrap().to_string(),
        headers: without_framing(head.headers),
        body,
        memory: Arc::clone(&proxy.memory),
    };
    (proxy.breach.sent)(&mut sent);
    let url = format!("{}{}", proxy.gateway, sent.path);
    let forwarded = proxy
        .http
        .request(sent.method.clone(), url)
        .headers(sent.headers.clone())
        .body(sent.body.clone());
    let response = forwarded.send().await.unwrap();
    let is_stream =
        response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
    let (status, headers) =
        (response.status().as_u16(), without_framing(response.headers().clone()));
    let mut answer = Answer { status, headers, body: None };
    if !is_stream {
        answer.body = Some(response.text().await.unwrap());
        (proxy.breach.answer)(&sent, &mut answer);
        let body = Body::from(answer.body.take().unwrap());
        return finish(answer, body);
    }
    (proxy.breach.answer)(&sent, &mut answer);
    finish(answer, frames(response, sent, proxy.breach.frame))
}

fn finish(answer: Answer, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap();
    *response.headers_mut() = answer.headers;
    response
}

/// The end of the first complete frame or comment.
fn boundary(text: &str) -> Option<usize> {
    if text.starts_with(":\n") { Some(2) } else { text.find("\n\n").map(|at| at + 2) }
}

fn frames(response: reqwest::Response, sent: Sent, rewrite: fn(&Sent, &str) -> String) -> Body {
    let state = (Box::pin(response.bytes_stream()), Vec::<u8>::new(), sent);
    Body::from_stream(stream::unfold(Some(state), move |state| async move {
        let (mut chunks, mut held, sent) = state?;
        loop {
            let text = String::from_utf8_lossy(&held).into_owned();
            if let Some(at) = boundary(&text) {
                held.drain(..at);
                let frame = rewrite(&sent, &text[..at]);
                return Some((Ok(frame), Some((chunks, held, sent))));
            }
            match chunks.next().await {
                Some(Ok(bytes)) => held.extend_from_slice(&bytes),
                Some(Err(error)) => return Some((Err(error), None)),
                None => return None,
            }
        }
    }))
}
