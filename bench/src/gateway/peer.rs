//! The peer: CAP packets through axum's own `Sse`, as one writes it without a gateway. No journal,
//! no resume.

use std::io;
use std::sync::OnceLock;

use axum::extract::{Path, State};
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use bytes::Bytes;
use capstan_protocol::{Close, Payload, ServiceRequest, StreamPacket, Timestamp};
use futures_util::{Stream, StreamExt as _};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc};
use tokio_stream::wrappers::{BroadcastStream, ReceiverStream};
use uuid::Uuid;

use super::script::Script;

/// As many as the gateway lets an agent be ahead.
const IN_FLIGHT: usize = 256;

type Live = broadcast::Sender<StreamPacket>;

pub async fn serve(listener: TcpListener) -> io::Result<()> {
    let (live, _) = broadcast::channel(IN_FLIGHT);
    let router = Router::new()
        .route("/assist", post(assist))
        .route("/live/{script}", post(speak_to_all))
        .route("/live", get(watch))
        .route("/static/{bytes}", get(ready_made))
        .with_state(live);
    // Without this Nagle's algorithm holds tokens back; a careful user sets it.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    axum::serve(listener, router).await
}

async fn assist(
    Json(request): Json<ServiceRequest>,
) -> Sse<impl Stream<Item = Result<Event, axum::Error>>> {
    let script =
        request.payload.payload.get("query").and_then(|text| Script::parse(text.as_str()?));
    let (sender, receiver) = mpsc::channel(IN_FLIGHT);
    tokio::spawn(speak(script.unwrap_or(Script::burst(0)), sender));
    Sse::new(ReceiverStream::new(receiver).map(event)).keep_alive(KeepAlive::default())
}

async fn speak(script: Script, sender: mpsc::Sender<StreamPacket>) {
    let stream_id = Uuid::now_v7();
    for n in 0..script.count {
        if !script.pause.is_zero() && n > 0 {
            tokio::time::sleep(script.pause).await;
        }
        if sender.send(packet(stream_id, n + 1, Payload::Delta(script.text(n)))).await.is_err() {
            return;
        }
    }
    let close = Payload::Close(Close::Reason(Close::COMPLETED.to_owned()));
    let _ = sender.send(packet(stream_id, script.count + 1, close)).await;
}

async fn speak_to_all(State(live): State<Live>, Path(script): Path<String>) {
    let script = Script::parse(&script.replace('_', " ")).unwrap_or(Script::burst(0));
    tokio::spawn(async move {
        let (sender, mut receiver) = mpsc::channel(IN_FLIGHT);
        tokio::spawn(speak(script, sender));
        while let Some(packet) = receiver.recv().await {
            let _ = live.send(packet);
        }
    });
}

async fn watch(State(live): State<Live>) -> Sse<impl Stream<Item = Result<Event, axum::Error>>> {
    let packets = BroadcastStream::new(live.subscribe()).filter_map(async |packet| packet.ok());
    Sse::new(packets.map(event)).keep_alive(KeepAlive::default())
}

fn packet(stream_id: Uuid, seq: u64, payload: Payload) -> StreamPacket {
    StreamPacket { stream_id, seq, t: Timestamp::now(), payload }
}

fn event(packet: StreamPacket) -> Result<Event, axum::Error> {
    let id = format!("{}:{}", packet.stream_id, packet.seq);
    Event::default().id(id).event("stream.packet").json_data(&packet)
}

/// One body of so many bytes, made once.
async fn ready_made(Path(bytes): Path<usize>) -> Bytes {
    static BODY: OnceLock<Bytes> = OnceLock::new();
    BODY.get_or_init(|| vec![b'x'; bytes].into()).clone()
}
