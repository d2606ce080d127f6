//! Listening, serving, draining.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use capstan_journal::Retention;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::app::{App, Gateway};
use crate::{recovery, router};

/// What a connection may buffer: small, so that a thousand readers that never read cost little.
const CONNECTION_BUFFER: usize = 16 * 1024;
/// Connections at once; beyond it new ones wait in the kernel's queue.
const CONNECTIONS: usize = 20_000;

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Runs that were interrupted by the restart before this life.
    pub recovered: usize,
}

/// Serves until `shutdown` resolves, then drains: new runs are refused, what is open is served for a while, runs
/// that are left are interrupted.
pub async fn serve(
    gateway: Gateway,
    listeners: Vec<TcpListener>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<Drained> {
    let app = gateway.into_app();
    let recovered = recovery::recover(&app).await.map_err(io::Error::other)?;
    let sweeper = tokio::spawn(recovery::sweep(app.clone(), Retention::default()));
    let connections = TaskTracker::new();
    let service = router::router(&app);
    for listener in listeners {
        tokio::spawn(accept(app.clone(), listener, service.clone(), connections.clone()));
    }
    shutdown.await;
    drain(&app, &connections).await;
    sweeper.abort();
    app.journal.store().close().await.map_err(io::Error::other)?;
    Ok(Drained { recovered })
}

async fn accept(app: App, listener: TcpListener, service: Router, connections: TaskTracker) {
    loop {
        let accepted = tokio::select! {
            () = app.closing.cancelled() => return,
            accepted = listener.accept(), if connections.len() < CONNECTIONS => accepted,
            () = tokio::time::sleep(Duration::from_millis(50)), if connections.len() >= CONNECTIONS => continue,
        };
        match accepted {
            Ok((socket, peer)) => {
                connections.spawn(connection(app.clone(), socket, peer, service.clone()));
            }
            // Out of file descriptors, most likely: give the others time to close theirs.
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(app: App, socket: TcpStream, peer: SocketAddr, service: Router) {
    // A token a packet: waiting for more to send is the wrong economy.
    let _ = socket.set_nodelay(true);
    let service = service.map_request(move |mut request: http::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        request
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(app.settings.timeouts.request)
        .max_buf_size(CONNECTION_BUFFER)
        .http2()
        .timer(TokioTimer::new())
        .max_send_buf_size(CONNECTION_BUFFER);
    let serving = builder.serve_connection(TokioIo::new(socket), TowerToHyperService::new(service));
    tokio::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        () = app.closing.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

async fn drain(app: &App, connections: &TaskTracker) {
    app.draining.cancel();
    app.tasks.close();
    connections.close();
    tracing::info!(runs = app.tasks.len(), connections = connections.len(), "draining");
    // Until the limit, runs may finish and whoever watches them may see it.
    let _ = tokio::time::timeout(app.settings.timeouts.drain, app.tasks.wait()).await;
    app.stopped.cancel();
    app.tasks.wait().await;
    app.closing.cancel();
    /// Bodies end at their next frame; a reader that does not read is not waited for.
    const LAST_WORDS: Duration = Duration::from_secs(1);
    let _ = tokio::time::timeout(LAST_WORDS, connections.wait()).await;
}
