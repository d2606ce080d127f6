//! A real gateway: on a free port of loopback, or without a socket for tests in which no time
//! passes.

pub(crate) mod scripted;

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http;
use capstan_agent::{Clock, async_trait};
use capstan_client::Options;
use capstan_client::transport::{Request, Response, Transport, TransportError};
use capstan_demo::Demo;
use capstan_gateway::{Gateway, Service, serve};
use capstan_journal::{Journal, TailLimits};
use capstan_stores::{Durability, open};
use futures_util::StreamExt as _;
use tokio::net::TcpListener;
use tower::ServiceExt as _;

pub(crate) struct Server {
    pub url: String,
    /// The gateway waits by it before it tries again: not at all.
    pub clock: Clock,
}

impl Server {
    /// Runs until the test's runtime ends.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let clock = Clock::by_hand();
        tokio::spawn(serve(gateway().clock(clock.clone()), vec![listener], std::future::pending()));
        Self { url, clock }
    }
}

fn gateway() -> Gateway {
    let journal =
        Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
    Gateway::new(journal).agent("demo", Demo::with_delay(Duration::ZERO))
}

/// A gateway whose requests use no socket, so that a paused clock measures every wait exactly.
pub(crate) struct InProcess {
    router: Router,
    _service: Service,
}

impl InProcess {
    pub(crate) async fn start() -> Self {
        let service = Service::start(gateway()).await.unwrap();
        Self { router: service.router(), _service: service }
    }
}

#[async_trait]
impl Transport for InProcess {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let mut sent = http::Request::new(Body::from(request.body));
        (*sent.method_mut(), *sent.headers_mut()) = (request.method, request.headers);
        *sent.uri_mut() = request.url.as_str().parse().unwrap();
        let (head, body) = self.router.clone().oneshot(sent).await.unwrap().into_parts();
        let body =
            body.into_data_stream().map(|chunk| chunk.map_err(|e| TransportError(e.to_string())));
        Ok(Response { status: head.status.as_u16(), headers: head.headers, body: Box::pin(body) })
    }
}

/// Options for tests that wait for failures.
pub(crate) fn quick() -> Options {
    Options::new()
        .backoff(Duration::from_millis(100), Duration::from_millis(100))
        .max_wait(Duration::from_secs(5))
}
