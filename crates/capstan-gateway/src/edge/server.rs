//! Accepts connections, and answers the requests that come on them.

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
use crate::edge::handover::{self, After, Handover, Noted};
use crate::edge::progress;
use crate::edge::socket::Socket;
use crate::edge::stall_timeout::StallTimeout;
use crate::face::post::RECEIVE_WINDOW;
use crate::settings::Timeouts;
use crate::tls::Tls;
use capstan_engine::live::Stalled;
use capstan_engine::tenant_scheduler::{ScheduledTask, TaskSlot};

/// What a connection may buffer before it asks for no more: the least there is, so that a thousand
/// readers that never read cost little. It is not the size of a write.
const CONNECTION_BUFFER: usize = 8 * 1024;
/// What the kernel may hold for a connection (it takes twice as much): left to itself it lends
/// megabytes to a reader that has stopped reading. Enough for a megabyte a second to the other side
/// of the world.
const SEND_BUFFER: usize = 64 * 1024;
/// Requests at once on a connection of HTTP/2.
const STREAMS_AT_ONCE: u32 = 100;
/// How long a connection may take that is let in only to ask how the server feels.
const RESERVED_PATIENCE: Duration = Duration::from_secs(5);
/// Longer than anything lasts.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// The pause after a failed accept.
const BREATH: Duration = Duration::from_millis(50);

/// What connections need of the gateway. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Edge(Arc<Rules>);

/// The parts of an [`Edge`].
pub(crate) struct Rules {
    pub(crate) timeouts: Timeouts,
    pub(crate) tls: Option<Tls>,
    pub(crate) has_tenant_shares: bool,
    /// Connections that idle are closed from here on.
    pub(crate) draining: CancellationToken,
    /// No connection is accepted from here on, and those that are open end.
    pub(crate) closing: CancellationToken,
    /// Connections that were cut because nothing was read.
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
    // Connections inherit it. Without it they work as well.
    let _ = SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER);
    tokio::spawn(accept(edge.clone(), listener, routers, connections.clone(), admission.clone()));
}

/// What a connection may ask for.
#[derive(Clone)]
pub(crate) struct Routers {
    pub(crate) all: Router,
    /// How the server feels, and nothing else.
    pub(crate) health: Router,
}

/// What whoever got in finds there.
#[derive(Clone)]
struct Inside {
    routers: Routers,
    admission: Admission,
    /// Let in only to ask how the server feels.
    is_reserved: bool,
}

impl Inside {
    /// Who answers a request, and its place if the connection's own is taken.
    fn room(&self, activity: &Activity, address: IpAddr) -> (Router, Option<Entry>) {
        if self.is_reserved {
            return (self.routers.health.clone(), None);
        }
        let place = activity.is_busy().then(|| self.admission.another(address));
        match place {
            Some(None) => (self.routers.health.clone(), None),
            Some(place) => (self.routers.all.clone(), place),
            None => (self.routers.all.clone(), None),
        }
    }
}

/// Does what hyper asks for: of HTTP/2 each request is answered in a task of its own, and given up
/// when its reader stalls.
#[derive(Clone)]
struct Answering {
    edge: Edge,
    connection: Option<Arc<TaskSlot>>,
}

impl<F> hyper::rt::Executor<F> for Answering
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
                let inside = Inside {
                    routers: routers.clone(),
                    admission: admission.clone(),
                    is_reserved: entry.is_reserved(),
                };
                // The very future, not one that awaits it: that would hold it twice, for every idle
                // viewer.
                let work = connection(edge.clone(), socket, peer, inside, entry);
                let has_tenant_shares = edge.has_tenant_shares;
                connections.spawn(if has_tenant_shares {
                    ScheduledTask::connection(work)
                } else {
                    ScheduledTask::without(work)
                });
                // One at a time: nobody waits behind a crowd that comes at once.
                tokio::task::yield_now().await;
            }
            // One address has as many as it may, and there is no room left to say so.
            Ok((_, peer, None)) => tracing::debug!(%peer, "too many connections from one address"),
            // Out of file descriptors, most likely: give the others time to close theirs.
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

async fn connection(
    edge: Edge,
    socket: TcpStream,
    peer: SocketAddr,
    inside: Inside,
    _entry: Entry,
) {
    // Who is let in only to ask for health has little time to.
    let patience = if inside.is_reserved { RESERVED_PATIENCE } else { FOREVER };
    let _ = tokio::time::timeout(patience, converse(edge, socket, peer, inside)).await;
}

async fn converse(edge: Edge, socket: TcpStream, peer: SocketAddr, inside: Inside) {
    // A token a packet: waiting for more to send is the wrong economy.
    let _ = socket.set_nodelay(true);
    let stalled = Stalled::default();
    let socket = patient(&edge, socket, peer, stalled.clone());
    let Some(tls) = edge.tls.clone() else {
        return exchange(edge, socket, peer, inside, stalled).await;
    };
    // Who cannot shake hands, or takes too long to, is no loss.
    let accepting = Box::pin(tls.accept(socket));
    if let Ok(Ok(socket)) = tokio::time::timeout(edge.timeouts.request, accepting).await {
        // Boxed, like HTTP/2 below: what they need beyond plain HTTP/1 would be room in every
        // connection's task.
        Box::pin(exchange(edge, socket, peer, inside, stalled)).await;
    }
}

/// A socket that is cut when its reader stalls.
fn patient(
    edge: &Edge,
    socket: TcpStream,
    peer: SocketAddr,
    stalled: Stalled,
) -> StallTimeout<TcpStream, impl FnMut(&TcpStream) + use<>> {
    let (edge, patience) = (edge.clone(), edge.timeouts.stalled_reader);
    StallTimeout::new(socket, patience, move |socket| {
        tracing::debug!(%peer, "a reader takes nothing and is cut");
        edge.stalled_readers.inc();
        stalled.set();
        // A reset: the body must not look finished, and what the kernel holds for the reader is
        // free at once.
        let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    })
}

/// Requests and responses of one connection, until it ends or the server does.
async fn exchange<S>(edge: Edge, socket: S, peer: SocketAddr, inside: Inside, stalled: Stalled)
where
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
        let (router, place) = inside.room(&activity, peer.ip());
        let under_way = activity.begin(place);
        let handover = handover::after(&request).map(|after| (here.clone(), after));
        let (head, body) = request.into_parts();
        let (body, is_read) = Noted::new(body);
        let (answering, stalled) =
            (router.oneshot(Request::from_parts(head, body)), stalled.clone());
        async move {
            let response =
                answering.await.map(|response| under_way.until_sent(goes_by(&stalled, response)));
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

/// hyper reads requests and answers them; what lasts is sent by us, and then it is hyper's turn
/// again.
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
        // Boxed, so that its room is free while a body lasts.
        let serving = builder.serve_connection(TokioIo::new(socket), service.clone());
        let mut serving = Box::new(serving.with_upgrades());
        let mut is_last = false;
        let body = tokio::select! {
            body = handover.wait(&mut serving) => body,
            () = idle.as_mut() => {
                Pin::new(&mut *serving).graceful_shutdown();
                let _ = tokio::time::timeout(LAST_WORDS, serving).await;
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
                // It speaks another protocol now.
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
    let mut builder =
        http2::Builder::new(Answering { edge: edge.clone(), connection: TaskSlot::current() });
    builder
        .timer(TokioTimer::new())
        // A peer that is gone without a word is found out.
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
            let _ = tokio::time::timeout(LAST_WORDS, serving).await;
            return;
        }
        () = leaving => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// When a connection is to end with its present answer. One that idles is closed as soon as new
/// runs are refused, so that the next request of whoever keeps it goes to another gateway; one that
/// is made later is for what is still served. One that was just made is answered once: whoever made
/// it would see a broken connection and no reason.
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

/// Bodies end at their next frame; a reader that does not read is not waited for.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);
