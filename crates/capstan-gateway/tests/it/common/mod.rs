//! A real gateway on a free port of loopback, and a plain client for it.

pub(crate) mod http2;
pub(crate) mod odd_store;

use std::time::Duration;

use capstan_agent::{Clock, Timer};
use capstan_demo::Demo;
use capstan_gateway::{Gateway, Settings, serve};
use capstan_journal::{Journal, TailLimits};
use capstan_protocol::{
    AgentRequest, Event, Payload, Problem, ServiceRequest, SessionContext, StreamError,
    StreamPacket, UserContext, sse,
};
use capstan_stores::{Durability, open};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

pub(crate) struct Server {
    pub url: String,
    /// The gateway waits by it before it tries again: not at all.
    pub clock: Clock,
    http: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

pub(crate) fn journal() -> Journal {
    Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default())
}

pub(crate) fn disk(folder: &std::path::Path) -> Journal {
    let url = format!("disk:{}", folder.display());
    Journal::new(open(&url, Durability::default()).unwrap(), TailLimits::default())
}

pub(crate) async fn start(settings: Settings) -> Server {
    start_on(journal(), settings).await
}

pub(crate) async fn start_on(journal: Journal, settings: Settings) -> Server {
    serve_gateway(Gateway::new(journal).agent("demo", demo()).settings(settings)).await
}

/// A demo that does not pause between words.
pub(crate) fn demo() -> Demo {
    Demo::with_delay(Duration::ZERO)
}

pub(crate) async fn serve_gateway(gateway: Gateway) -> Server {
    serve_gateway_set_by(gateway, 0).await
}

/// The same on a machine whose clock is wrong by so many seconds.
pub(crate) async fn serve_gateway_set_by(gateway: Gateway, seconds: i64) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let clock = Clock::by_hand();
    clock.set_by(seconds);
    let gateway = gateway.clock(clock.clone());
    let task = tokio::spawn(async move {
        let _ = serve(gateway, vec![listener], async { drop(stopped.await) }).await.unwrap();
    });
    Server { url, clock, http: client(), stop: Some(stop), task }
}

impl Server {
    /// Drains and ends, as SIGTERM would have it.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.task.await.unwrap();
    }

    /// How long the gateway was to wait before each further attempt, in half seconds rounded up: a
    /// moment passes between deciding and waiting.
    pub(crate) fn waits(&self) -> Vec<f64> {
        let half_seconds = |wait: Duration| (wait.as_secs_f64() * 2.0).ceil() / 2.0;
        self.clock.asked(Timer::Again).into_iter().map(half_seconds).collect()
    }

    pub(crate) async fn post(&self, request: &ServiceRequest) -> reqwest::Response {
        self.post_with(request, &[]).await
    }

    pub(crate) async fn post_with(
        &self,
        request: &ServiceRequest,
        headers: &[(&str, &str)],
    ) -> reqwest::Response {
        let mut builder = self.http.post(format!("{}/v1/assist", self.url)).json(request);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.send().await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> reqwest::Response {
        self.http.get(format!("{}{path}", self.url)).send().await.unwrap()
    }

    pub(crate) async fn delete(&self, path: &str) -> reqwest::Response {
        self.http.delete(format!("{}{path}", self.url)).send().await.unwrap()
    }
}

pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // It speaks to loopback alone, so it need not read the certificates of this machine.
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

pub(crate) fn ask(text: &str) -> ServiceRequest {
    ask_in(Uuid::now_v7(), text)
}

/// Another turn of a conversation.
pub(crate) fn ask_in(session: Uuid, text: &str) -> ServiceRequest {
    ServiceRequest::new(
        SessionContext::new(session, UserContext::new("u")),
        AgentRequest::query(session, text),
    )
}

/// A whole SSE body, decoded.
pub(crate) fn packets(body: &[u8]) -> Vec<StreamPacket> {
    let mut decoder = sse::Decoder::new();
    decoder.push(body);
    let mut packets = Vec::new();
    while let Some(frame) = decoder.next_frame() {
        packets.push(StreamPacket::decode(&frame.unwrap().data).unwrap());
    }
    assert!(!decoder.is_mid_frame(), "a body ends at a frame boundary");
    packets
}

pub(crate) async fn all(response: reqwest::Response) -> Vec<StreamPacket> {
    assert_eq!(response.status(), 200);
    packets(&response.bytes().await.unwrap())
}

pub(crate) fn text(packets: &[StreamPacket]) -> String {
    packets
        .iter()
        .filter_map(
            |p| if let Payload::Delta(text) = &p.payload { Some(text.as_str()) } else { None },
        )
        .collect()
}

pub(crate) fn errors(packets: &[StreamPacket]) -> Vec<&StreamError> {
    packets
        .iter()
        .filter_map(|p| if let Payload::Error(e) = &p.payload { Some(&**e) } else { None })
        .collect()
}

/// The types of the events, in order.
pub(crate) fn event_types(packets: &[StreamPacket]) -> Vec<String> {
    packets
        .iter()
        .filter_map(
            |p| if let Payload::Event(raw) = &p.payload { Event::of(raw).kind } else { None },
        )
        .collect()
}

pub(crate) fn stream_of(response: &reqwest::Response) -> String {
    response.headers()["x-stream-id"].to_str().unwrap().to_owned()
}

/// The problem of a refusal, whose status and wait agree with its headers.
pub(crate) async fn problem(response: reqwest::Response) -> Problem {
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let (status, wait) =
        (response.status().as_u16(), response.headers().get("retry-after").cloned());
    let problem: Problem = response.json().await.unwrap();
    assert_eq!(problem.status, status);
    assert_eq!(
        problem.retry_after.map(|wait| wait.to_string()),
        wait.map(|w| w.to_str().unwrap().to_owned())
    );
    problem
}

pub(crate) fn seqs(packets: &[StreamPacket]) -> Vec<u64> {
    packets.iter().map(|p| p.seq).collect()
}

pub(crate) fn close_reason(packets: &[StreamPacket]) -> Option<String> {
    if let Payload::Close(close) = &packets.last()?.payload { Some(close.reason()) } else { None }
}
