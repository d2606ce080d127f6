//! The same as `servers/node.mjs`, with axum's own `Sse`: no journal, no cursor.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::net::TcpSocket;
use tokio::sync::broadcast;
use tokio_stream::wrappers::BroadcastStream;

use crate::stamps::now;

pub const ROLE: &str = "axum";

/// How far a viewer may fall behind.
const IN_FLIGHT: usize = 256;

type Live = broadcast::Sender<u64>;

pub fn serve(port: &str) -> io::Result<()> {
    capstan_bench_kit::process::allow_many_files();
    let port: u16 = port.parse().map_err(io::Error::other)?;
    tokio::runtime::Runtime::new()?.block_on(async {
        let (live, _) = broadcast::channel(IN_FLIGHT);
        let router = Router::new()
            .route("/run/{count}", post(run))
            .route("/live", get(watch))
            .route("/speak/{micros}", post(speak))
            .with_state(live);
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, 1], port).into())?;
        // Without this Nagle's algorithm holds tokens back; a careful user sets it.
        let listener = socket.listen(4096)?.tap_io(|socket| drop(socket.set_nodelay(true)));
        axum::serve(listener, router).await
    })
}

type Events<S> = Sse<axum::response::sse::KeepAliveStream<S>>;

async fn run(Path(count): Path<u64>) -> Events<impl Stream<Item = Result<Event, Infallible>>> {
    let tokens = stream::iter(1..=count).map(|n| Ok(event(&format!("tok{n} "))));
    Sse::new(tokens).keep_alive(KeepAlive::default())
}

async fn watch(State(live): State<Live>) -> Events<impl Stream<Item = Result<Event, Infallible>>> {
    let stamps = BroadcastStream::new(live.subscribe()).filter_map(async |stamp| stamp.ok());
    Sse::new(stamps.map(|stamp| Ok(event(&format!("@{stamp}@"))))).keep_alive(KeepAlive::default())
}

async fn speak(State(live): State<Live>, Path(micros): Path<u64>) {
    tokio::spawn(async move {
        let mut due = tokio::time::interval(Duration::from_micros(micros));
        loop {
            due.tick().await;
            let _ = live.send(now());
        }
    });
}

fn event(text: &str) -> Event {
    Event::default().data(format!("{{\"type\":\"text-delta\",\"id\":\"1\",\"delta\":\"{text}\"}}"))
}
