//! A provider that breaks on purpose, a gateway in front of it, and a plain client for both.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use capstan_agent::{Agent, Clock, Output, Timer, Turn, channel};
use capstan_gateway::{Gateway, Settings, serve};
use capstan_journal::{Journal, TailLimits};
use capstan_protocol::{
    AgentRequest, Close, Exposure, Fault, Payload, ServiceRequest, SessionContext, StreamError,
    StreamPacket, UserContext, sse,
};
use capstan_stores::{Durability, open};
use capstan_upstream::Kinds;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use uuid::Uuid;

/// What a provider does after it has read a request.
#[derive(Debug, Clone)]
pub(crate) enum Do {
    Write(String),
    Bytes(Vec<u8>),
    /// A limit of the one who called is over, however long it was to be.
    Strike(Timer),
    /// The connection is reset.
    Reset,
    /// Nothing more comes, but the connection stays until the other side gives it up.
    Hang,
}

/// A port where nobody answers: taken but not listened on, so that no other server gets it
/// meanwhile.
pub(crate) fn closed_port() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket
}

/// A loopback address that no other server has. Another test may still call a server of its own
/// that has ended. If a provider got the same address and port, it would count those calls, too.
fn own_address() -> (Ipv4Addr, u16) {
    let [a, b, c, ..] = Uuid::new_v4().into_bytes();
    (Ipv4Addr::new(127, a.max(1), b, c.clamp(1, 254)), 0)
}

/// A request as the provider saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub head: String,
    pub body: Value,
}

/// A server on loopback that does what its script says for the nth call (from 0).
pub(crate) struct Provider {
    pub url: String,
    /// For whoever calls it.
    pub clock: Clock,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Provider {
    pub(crate) async fn start(script: impl Fn(usize) -> Vec<Do> + Send + Sync + 'static) -> Self {
        Self::judging(move |nth, _| script(nth)).await
    }

    /// The same, but what it does depends on the request.
    pub(crate) async fn judging(
        script: impl Fn(usize, &Seen) -> Vec<Do> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(own_address()).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, clock) = (Arc::<Mutex<Vec<Seen>>>::default(), Clock::by_hand());
        let (log, script, hand) = (Arc::clone(&seen), Arc::new(script), clock.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(attend(stream, Arc::clone(&log), Arc::clone(&script), hand.clone()));
            }
        });
        Self { url, clock, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// An agent that calls it, and waits by its clock.
    pub(crate) fn agent(&self, kind: &str, config: Value) -> Box<dyn Agent> {
        agent_by(self.clock.clone(), kind, config)
    }

    /// A gateway with such an agent, which waits by the same clock.
    pub(crate) async fn gateway(&self, kind: &str, config: Value) -> String {
        gateway_by(self.clock.clone(), self.agent(kind, config), Exposure::Production).await
    }
}

async fn attend(
    mut stream: TcpStream,
    log: Arc<Mutex<Vec<Seen>>>,
    script: Arc<impl Fn(usize, &Seen) -> Vec<Do> + Send + Sync + 'static>,
    clock: Clock,
) {
    let Some((head, body)) = request(&mut stream).await else { return };
    let seen = Seen { head, body };
    let nth = {
        let mut log = log.lock().unwrap();
        log.push(seen.clone());
        log.len() - 1
    };
    for act in script(nth, &seen) {
        match act {
            Do::Write(text) => {
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
                let _ = stream.flush().await;
            }
            Do::Bytes(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Do::Strike(limit) => clock.strike(limit),
            Do::Reset => return stream.set_zero_linger().unwrap(),
            Do::Hang => while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {},
        }
    }
    let _ = stream.shutdown().await;
}

pub(crate) async fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    loop {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let len = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let len: usize = len.and_then(|len| len.trim().parse().ok()).unwrap_or(0);
            if bytes.len() >= end + 4 + len {
                let body =
                    serde_json::from_slice(&bytes[end + 4..end + 4 + len]).unwrap_or_default();
                return Some((head, body));
            }
        }
        let mut buffer = [0; 8192];
        match stream.read(&mut buffer).await {
            Ok(n @ 1..) => bytes.extend_from_slice(&buffer[..n]),
            _ => return None,
        }
    }
}

/// A response whose end is its connection's, so that a cut looks like an end.
pub(crate) fn stream_head() -> Do {
    Do::Write(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".into(),
    )
}

pub(crate) fn status(status: u16, headers: &[(&str, &str)], body: &str) -> Vec<Do> {
    let mut text =
        format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    vec![Do::Write(text)]
}

pub(crate) fn chunk(value: &Value) -> Do {
    Do::Write(format!("data: {value}\n\n"))
}

/// A piece of a Chat Completions answer.
pub(crate) fn token(text: &str) -> Do {
    chunk(&json!({ "model": "m-1", "choices": [{ "index": 0, "delta": { "content": text },
        "finish_reason": null }] }))
}

/// Tokens `from` to `to`, as [`words`] has them.
pub(crate) fn tokens(from: usize, to: usize) -> Vec<Do> {
    (from..=to).map(|n| token(&format!("tok{n} "))).collect()
}

pub(crate) fn words(to: usize) -> String {
    (1..=to).map(|n| format!("tok{n} ")).collect()
}

pub(crate) fn finish(reason: &str) -> Vec<Do> {
    vec![
        chunk(&json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })),
        chunk(&json!({ "choices": [], "usage": { "prompt_tokens": 7, "completion_tokens": 60 } })),
        Do::Write("data: [DONE]\n\n".into()),
    ]
}

/// A whole answer of 60 tokens.
pub(crate) fn answer() -> Vec<Do> {
    [vec![stream_head()], tokens(1, 60), finish("stop")].concat()
}

pub(crate) fn keys(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

pub(crate) fn agent(kind: &str, value: Value) -> Box<dyn Agent> {
    agent_by(Clock::default(), kind, value)
}

pub(crate) fn agent_by(clock: Clock, kind: &str, value: Value) -> Box<dyn Agent> {
    Kinds::default().build(kind, keys(value), &clock).unwrap()
}

/// Runs an agent without a gateway.
pub(crate) async fn run(agent: Box<dyn Agent>, turn: Turn) -> (Vec<Output>, Result<(), Fault>) {
    let (mut writer, mut inbox) = channel(16);
    let task =
        tokio::spawn(async move { agent.run(turn, &mut writer).await.map_err(|f| f.into_fault()) });
    let mut outputs = Vec::new();
    while let Some(output) = inbox.recv().await {
        outputs.push(output);
    }
    (outputs, task.await.unwrap())
}

/// A gateway with one agent.
pub(crate) async fn gateway(agent: impl Agent) -> String {
    gateway_by(Clock::by_hand(), agent, Exposure::Production).await
}

pub(crate) async fn gateway_by(clock: Clock, agent: impl Agent, exposure: Exposure) -> String {
    let journal =
        Journal::new(open("memory:", Durability::default()).unwrap(), TailLimits::default());
    let settings = Settings { exposure, ..Settings::default() };
    let gateway = Gateway::new(journal).agent("a", agent).settings(settings).clock(clock);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { serve(gateway, vec![listener], std::future::pending()).await });
    url
}

pub(crate) fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // It speaks to loopback alone, so it need not read the certificates of this machine.
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

pub(crate) fn question(text: &str) -> ServiceRequest {
    let session = Uuid::now_v7();
    ServiceRequest::new(
        SessionContext::new(session, UserContext::new("u")),
        AgentRequest::query(session, text),
    )
}

pub(crate) async fn post(
    gateway: &str,
    request: &ServiceRequest,
    accept: &str,
) -> reqwest::Response {
    let post = client().post(format!("{gateway}/v1/assist")).json(request);
    post.header("accept", accept).header("x-cap-accept", "stream_reset").send().await.unwrap()
}

/// A run as a CAP client sees it.
#[derive(Debug)]
pub(crate) struct RunSeen {
    pub text: String,
    pub events: Vec<(String, Value)>,
    pub errors: Vec<StreamError>,
    pub close: Option<Value>,
    pub raw: String,
}

pub(crate) async fn ask(gateway: &str, text: &str) -> RunSeen {
    let response = post(gateway, &question(text), "text/event-stream").await;
    read(&response.bytes().await.unwrap())
}

pub(crate) async fn ask_json(gateway: &str, text: &str) -> (u16, Value) {
    let response = post(gateway, &question(text), "application/json").await;
    (response.status().as_u16(), response.json().await.unwrap())
}

pub(crate) fn read(body: &[u8]) -> RunSeen {
    let mut decoder = sse::Decoder::new();
    decoder.push(body);
    let mut transcript = capstan_protocol::Transcript::default();
    let mut errors = Vec::new();
    while let Some(frame) = decoder.next_frame() {
        let packet = StreamPacket::decode(&frame.unwrap().data).unwrap();
        transcript.take(&packet);
        if let Payload::Error(error) = packet.payload {
            errors.push(*error);
        }
    }
    let event = |raw: &capstan_protocol::RawObject| {
        let map = raw.to_map();
        (map["type"].as_str().unwrap_or_default().to_owned(), map["data"].clone())
    };
    RunSeen {
        text: transcript.text().to_owned(),
        events: transcript.events().map(event).collect(),
        errors,
        close: transcript.close().map(|close| match close {
            Close::Reason(reason) => json!({ "reason": reason }),
            Close::Report(report) => Value::Object(report.to_map()),
            Close::Unstated => Value::Null,
        }),
        raw: String::from_utf8_lossy(body).into_owned(),
    }
}

pub(crate) fn types(told: &RunSeen) -> Vec<&str> {
    told.events.iter().map(|(kind, _)| kind.as_str()).collect()
}
