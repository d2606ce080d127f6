//! Accepts connections and answers their requests.

use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::edge::activity::Activity;
use crate::edge::admission::{Admission, Entry};
use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::counter::Counter;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::edge::body_sender;
use crate::edge::connection::goes_by;
use crate::edge::handover::{self, After, Handover, TrackedBody};
use crate::edge::progress;
use crate::edge::socket::Socket;
use crate::edge::stall_timeout::StallTimeout;
use crate::face::post::RECEIVE_WINDOW;
use crate::settings::Timeouts;
use crate::tls::Tls;
use capstan_engine::live::Stalled;
use capstan_engine::tenant_scheduler::{ScheduledTask, TaskSlot};

/// How much hyper buffers per connection before it applies backpressure. This is hyper's minimum,
/// so that a thousand slow readers cost little memory. It is not the size of a write.
const CONNECTION_BUFFER: usize = 8 * 1024;
/// The kernel's send buffer per connection (the kernel doubles the value). By default, the kernel
/// grows it to megabytes for a reader that has stopped reading. This is enough for about 1 MB/s on
/// a connection with a long round trip.
const SEND_BUFFER: usize = 64 * 1024;
/// Concurrent requests per HTTP/2 connection.
const STREAMS_AT_ONCE: u32 = 100;
/// How long a reserved connection may stay open. It serves only health checks.
const RESERVED_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than any connection lasts.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Settings and signals of the gateway that connections need. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Edge(Arc<Rules>);

/// The parts of an [`Edge`].
pub(crate) struct Rules {
    pub(crate) timeouts: Timeouts,
    pub(crate) tls: Option<Tls>,
    pub(crate) has_tenant_shares: bool,
    /// Idle connections are closed once this is cancelled.
    pub(crate) draining: CancellationToken,
    /// Once this is cancelled, no connection is accepted, and open ones end.
    pub(crate) closing: CancellationToken,
    /// Counts connections that were closed because the peer did not read.
    pub(crate) stalled_readers: Counter,
}

impl From<Rules> for Edge {
    fn from(rules: Rules) -> Self {
        Self(Arc::new(rules))
    }
}

impl Deref for Edge {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.0
    }
}

/// Accepts connections until the gateway closes.
pub(crate) fn listen(
    edge: &Edge,
    listener: TcpListener,
    routers: Routers,
    connections: &TaskTracker,
    admission: &Admission,
) {
    // Accepted connections inherit the setting. The gateway also works without it.
    let _ = SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER);
    tokio::spawn(accept(edge.clone(), listener, routers, connections.clone(), admission.clone()));
}

/// The routers that a connection may use.
#[derive(Clone)]
pub(crate) struct Routers {
    pub(crate) all: Router,
    /// The health routes only.
    pub(crate) health: Router,
}

/// What an admitted connection may use.
#[derive(Clone)]
struct Admitted {
    routers: Routers,
    admission: Admission,
    /// Reserved for health checks.
    is_reserved: bool,
}

impl Admitted {
    /// The router for a request, and the request's admission slot if the connection's own slot is
    /// in use.
    fn router_for(&self, activity: &Activity, address: IpAddr) -> (Router, Option<Entry>) {
        if self.is_reserved {
            return (self.routers.health.clone(), None);
        }
        let slot = activity.is_busy().then(|| self.admission.another(address));
        match slot {
            Some(None) => (self.routers.health.clone(), None),
            Some(slot) => (self.routers.all.clone(), slot),
            None => (self.routers.all.clone(), None),
        }
    }
}

/// hyper's executor. It runs each HTTP/2 request in its own task, and gives the request up when its
/// reader stalls.
#[derive(Clone)]
struct RequestExecutor {
    edge: Edge,
    connection: Option<Arc<TaskSlot>>,
}

impl<F> hyper::rt::Executor<F> for RequestExecutor
where
    F: Future + Send + 'static,
{
    fn execute(&self, work: F) {
        let edge = self.edge.clone();
        let answer = async move {
            if !progress::until_stalled(edge.timeouts.stalled_reader, work).await {
                tracing::debug!("a reader takes nothing of an answer and is cut");
                edge.stalled_readers.inc();
            }
        };
        tokio::spawn(ScheduledTask::request(self.connection.as_ref(), answer));
    }
}

async fn accept(
    edge: Edge,
    listener: TcpListener,
    routers: Routers,
    connections: TaskTracker,
    admission: Admission,
) {
    loop {
        let accepted = tokio::select! {
            () = edge.closing.cancelled() => return,
            accepted = admission.next(&listener) => accepted,
        };
        match accepted {
            Ok((socket, peer, Some(entry))) => {
                let admitted = Admitted {
                    routers: routers.clone(),
                    admission: admission.clone(),
                    is_reserved: entry.is_reserved(),
                };
                // Spawn this future directly. An async block around it would store it twice, for
                // every idle viewer.
                let work = connection(edge.clone(), socket, peer, admitted, entry);
                let has_tenant_shares = edge.has_tenant_shares;
                connections.spawn(if has_tenant_shares {
                    ScheduledTask::connection(work)
                } else {
                    ScheduledTask::without(work)
                });
                // Yield after each connection, so that a burst of new connections does not starve
                // other tasks.
                tokio::task::yield_now().await;
            }
            // The address is at its limit and the reserve is used up, so there is no response.
            Ok((_, peer, None)) => tracing::debug!(%peer, "too many connections from one address"),
            // Most likely the process has no free file descriptors. Wait until other connections
            // close.
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

async fn connection(
    edge: Edge,
    socket: TcpStream,
    peer: SocketAddr,
    admitted: Admitted,
    _entry: Entry,
) {
    // Reserved connections have a short time limit.
    let timeout = if admitted.is_reserved { RESERVED_TIMEOUT } else { FOREVER };
    let _ = tokio::time::timeout(timeout, serve_connection(edge, socket, peer, admitted)).await;
}

async fn serve_connection(edge: Edge, socket: TcpStream, peer: SocketAddr, admitted: Admitted) {
    // Packets are small and latency counts, so the kernel must not wait for more data (Nagle).
    let _ = socket.set_nodelay(true);
    let stalled = Stalled::default();
    let socket = with_stall_timeout(&edge, socket, peer, stalled.clone());
    let Some(tls) = edge.tls.clone() else {
        return serve_socket(edge, socket, peer, admitted, stalled).await;
    };
    // Drop clients that fail the TLS handshake or take too long for it.
    let accepting = Box::pin(tls.accept(socket));
    if let Ok(Ok(socket)) = tokio::time::timeout(edge.timeouts.request, accepting).await {
        // Boxed, as HTTP/2 is below: otherwise every plain HTTP/1 connection's task would be as
        // large as one with TLS.
        Box::pin(serve_socket(edge, socket, peer, admitted, stalled)).await;
    }
}

/// A socket that closes its connection when its reader stalls.
fn with_stall_timeout(
    edge: &Edge,
    socket: TcpStream,
    peer: SocketAddr,
    stalled: Stalled,
) -> StallTimeout<TcpStream, impl FnMut(&TcpStream) + use<>> {
    let (edge, timeout) = (edge.clone(), edge.timeouts.stalled_reader);
    StallTimeout::new(socket, timeout, move |socket| {
        tracing::debug!(%peer, "a reader takes nothing and is cut");
        edge.stalled_readers.inc();
        stalled.set();
        // Reset instead of a normal close: the body must not look complete, and the kernel frees
        // its send buffer at once.
        let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    })
}

/// Serves one connection until it ends or the server closes.
async fn serve_socket<S>(
    edge: Edge,
    socket: S,
    peer: SocketAddr,
    admitted: Admitted,
    stalled: Stalled,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (activity, handover) = (Arc::<Activity>::default(), Handover::default());
    let mut idle =
        pin!(activity.clone().idle(edge.timeouts.request, edge.timeouts.idle_connection));
    let mut socket = Socket::new(socket, handover.clone());
    let is_http2 = tokio::select! {
        begins = socket.begins_as_http2() => begins,
        () = idle.as_mut() => return,
        () = edge.closing.cancelled() => return,
    };
    let asked = CancellationToken::new();
    let (asking, here) = (asked.clone(), handover.clone());
    let service = tower::service_fn(move |mut request: Request<Incoming>| {
        asking.cancel();
        request.extensions_mut().insert(ConnectInfo(peer));
        let (router, slot) = admitted.router_for(&activity, peer.ip());
        let in_flight = activity.begin(slot);
        let handover = handover::after(&request).map(|after| (here.clone(), after));
        let (head, body) = request.into_parts();
        let (body, is_read) = TrackedBody::new(body);
        let (answering, stalled) =
            (router.oneshot(Request::from_parts(head, body)), stalled.clone());
        async move {
            let response =
                answering.await.map(|response| in_flight.until_sent(goes_by(&stalled, response)));
            response.map(|response| match handover {
                Some((handover, after)) if is_read.load(Ordering::Relaxed) => {
                    handover.offer(response, after)
                }
                Some(_) | None => response,
            })
        }
    });
    let service = TowerToHyperService::new(service);
    let leaving = pin!(leaving(&edge, &asked));
    match is_http2 {
        Ok(true) => Box::pin(http2(&edge, socket, service, idle, leaving)).await,
        Ok(false) => http1(&edge, socket, service, handover, idle, leaving).await,
        Err(_) => {}
    }
}

/// hyper reads requests and writes responses. `body_sender` sends long-lived bodies, then hyper
/// continues.
async fn http1<S, Q>(
    edge: &Edge,
    mut socket: Socket<S>,
    service: Q,
    handover: Handover,
    mut idle: Pin<&mut impl Future<Output = ()>>,
    mut leaving: Pin<&mut impl Future<Output = ()>>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Q: hyper::service::Service<Request<Incoming>, Response = Response, Error = Infallible> + Clone,
{
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(edge.timeouts.request)
        .max_buf_size(CONNECTION_BUFFER);
    loop {
        // Boxed, so that hyper's memory is free while a long-lived body is sent.
        let serving = builder.serve_connection(TokioIo::new(socket), service.clone());
        let mut serving = Box::new(serving.with_upgrades());
        let mut is_last = false;
        let body = tokio::select! {
            body = handover.wait(&mut serving) => body,
            () = idle.as_mut() => {
                Pin::new(&mut *serving).graceful_shutdown();
                let _ = tokio::time::timeout(SHUTDOWN_GRACE, serving).await;
                return;
            }
            () = leaving.as_mut() => {
                is_last = true;
                Pin::new(&mut *serving).graceful_shutdown();
                handover.wait(&mut serving).await
            }
        };
        let parts = serving.into_parts();
        let Some((body, after)) = body else {
            if parts.is_none() {
                // The connection was upgraded to another protocol.
                handover.until_gone().await;
            }
            return;
        };
        let Some(parts) = parts else { return };
        socket = parts.io.into_inner();
        socket.unread(parts.read_buf);
        if body_sender::send(&mut socket, body).await.is_err() {
            return;
        }
        if is_last || after == After::Close {
            let _ = socket.shutdown().await;
            return;
        }
    }
}

async fn http2<S, Q>(
    edge: &Edge,
    socket: Socket<S>,
    service: Q,
    idle: Pin<&mut impl Future<Output = ()>>,
    leaving: Pin<&mut impl Future<Output = ()>>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Q: hyper::service::Service<
            Request<Incoming>,
            Response = Response,
            Error = Infallible,
            Future: Send + 'static,
        >,
{
    let ping = Some(edge.timeouts.ping).filter(|ping| !ping.is_zero());
    let mut builder = http2::Builder::new(RequestExecutor {
        edge: edge.clone(),
        connection: TaskSlot::current(),
    });
    builder
        .timer(TokioTimer::new())
        // Pings detect a peer that vanished without closing.
        .keep_alive_interval(ping)
        .keep_alive_timeout(ping.unwrap_or(FOREVER))
        .max_concurrent_streams(STREAMS_AT_ONCE)
        .initial_stream_window_size(RECEIVE_WINDOW)
        .initial_connection_window_size(RECEIVE_WINDOW)
        .max_send_buf_size(CONNECTION_BUFFER);
    let mut serving = pin!(builder.serve_connection(TokioIo::new(socket), service));
    tokio::select! {
        _ = serving.as_mut() => return,
        () = idle => {
            serving.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(SHUTDOWN_GRACE, serving).await;
            return;
        }
        () = leaving => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// Waits until the connection must end after its current response. An idle connection is closed
/// when draining starts, so that the client's next request reaches another gateway. A connection
/// without a request yet stays open for one response, because its client would otherwise see a
/// broken connection without a reason.
async fn leaving(edge: &Edge, asked: &CancellationToken) {
    if !edge.draining.is_cancelled() {
        edge.draining.cancelled().await;
        tokio::select! {
            () = asked.cancelled() => return,
            () = edge.closing.cancelled() => return,
        }
    }
    edge.closing.cancelled().await;
}

/// How long to wait for connections at shutdown. Bodies end at their next frame. The server does
/// not wait for readers that have stopped reading.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
