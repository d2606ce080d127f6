//! Listening, serving, draining.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::edge::activity::Activity;
use crate::edge::admission::{Admission, Entry};
use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::Response;
use capstan_agent::END_LIMIT;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tower::ServiceExt as _;

use crate::app::App;
use crate::edge::connection::goes_by;
use crate::edge::handover::{self, After, Handover, Noted};
use crate::edge::progress;
use crate::edge::socket::Socket;
use crate::edge::stall_timeout::StallTimeout;
use crate::face;
use crate::face::post::RECEIVE_WINDOW;
use crate::gateway::Gateway;
use crate::router::Behind;
use crate::{console, router};
use capstan_engine::live::Stalled;
use capstan_engine::recovery;
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

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Runs that were interrupted by the restart before this life.
    pub recovered: usize,
}

/// A gateway at work, without a listener of its own: for programs that mount it into their own
/// server.
pub struct Service {
    app: App,
    recovered: usize,
    keepers: [AbortOnDropHandle<()>; 2],
}

impl Service {
    /// Recovers what an earlier life left open, then sets to work.
    pub async fn start(gateway: Gateway) -> io::Result<Self> {
        Self::recover(gateway.into_app()).await
    }

    async fn recover(app: App) -> io::Result<Self> {
        let here = app.clone();
        // Recovery waits for the journal as well.
        let counting =
            tokio::spawn(async move { here.metrics.journal.watch(&**here.journal.store()).await });
        let counting = AbortOnDropHandle::new(counting);
        if !app.journal.store().is_shared() {
            console::rollups::remember(&app).await;
        }
        let recovered = recovery::recover(&app).await.map_err(io::Error::other)?;
        let sweeper = AbortOnDropHandle::new(tokio::spawn(keep_house(app.clone())));
        Ok(Self { app, recovered, keepers: [sweeper, counting] })
    }

    /// The routes, ready to be served.
    pub fn router(&self) -> Router {
        router::router(&self.app, Behind::All)
    }

    /// Refuses new runs, serves what is open for a while, interrupts what is left, closes the
    /// journal.
    pub async fn drain(self) -> io::Result<Drained> {
        self.stop(&TaskTracker::new()).await
    }

    async fn stop(self, connections: &TaskTracker) -> io::Result<Drained> {
        drain(&self.app, connections).await;
        drop(self.keepers);
        console::rollups::save(&self.app).await;
        self.app.journal.store().close().await.map_err(io::Error::other)?;
        Ok(Drained { recovered: self.recovered })
    }
}

/// Serves until `shutdown` resolves, then drains: new runs are refused, what is open is served for
/// a while, runs that are left are interrupted.
pub async fn serve(
    mut gateway: Gateway,
    listeners: Vec<TcpListener>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<Drained> {
    let of_console = gateway.take_console_listeners();
    let app = gateway.into_app();
    let main = if of_console.is_empty() { Behind::All } else { Behind::NoConsole };
    let listeners = listeners.into_iter().map(|listener| (listener, main));
    let listeners =
        listeners.chain(of_console.into_iter().map(|listener| (listener, Behind::Console)));
    // Streams are served, and questions about health answered, while recovery is at work.
    let (connections, admission) = (TaskTracker::new(), Admission::new(&app.settings.limits));
    for (listener, behind) in listeners {
        // Connections inherit it. Without it they work as well.
        let _ = SockRef::from(&listener).set_send_buffer_size(SEND_BUFFER);
        let routers = Routers { all: router::router(&app, behind), health: router::health(&app) };
        tokio::spawn(accept(
            app.clone(),
            listener,
            routers,
            connections.clone(),
            admission.clone(),
        ));
    }
    tokio::pin!(shutdown);
    let service = tokio::select! {
        // Connections are open: nobody may be left to wait there by a program that lives on.
        service = Service::recover(app.clone()) => service.inspect_err(|_| app.give_up())?,
        () = &mut shutdown => {
            // What is not recovered yet is left to the next life.
            drain(&app, &connections).await;
            app.journal.store().close().await.map_err(io::Error::other)?;
            return Ok(Drained { recovered: 0 });
        }
    };
    let mut outdated = app.journal.store().outdated();
    tokio::select! {
        () = &mut shutdown => service.stop(&connections).await,
        // What runs may end, and nothing new begins; then it is left to builds that know more.
        Some(()) = async { outdated.wait_for(|is_outdated| *is_outdated).await.ok().map(drop) } => {
            service.stop(&connections).await?;
            Err(io::Error::other("the journal asks for a newer build than this one"))
        }
        () = app.broken.cancelled() => {
            // Whoever looks at `/livez` may see it, and bodies are cut; nothing can be written any
            // more.
            tokio::time::sleep(LAST_WORDS).await;
            let why = app.journal_broken().await;
            Err(io::Error::other(format!("the journal is broken, and only a new process can mend \
             that: {why}")))
        }
    }
}

/// What a connection may ask for.
#[derive(Clone)]
struct Routers {
    all: Router,
    /// How the server feels, and nothing else.
    health: Router,
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
    app: App,
    connection: Option<Arc<TaskSlot>>,
}

impl<F> hyper::rt::Executor<F> for Answering
where
    F: Future + Send + 'static,
{
    fn execute(&self, work: F) {
        let app = self.app.clone();
        let answer = async move {
            if !progress::until_stalled(app.settings.timeouts.stalled_reader, work).await {
                tracing::debug!("a reader takes nothing of an answer and is cut");
                app.metrics.stalled_readers.inc();
            }
        };
        tokio::spawn(ScheduledTask::request(self.connection.as_ref(), answer));
    }
}

async fn accept(
    app: App,
    listener: TcpListener,
    routers: Routers,
    connections: TaskTracker,
    admission: Admission,
) {
    loop {
        let accepted = tokio::select! {
            () = app.closing.cancelled() => return,
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
                let work = connection(app.clone(), socket, peer, inside, entry);
                let has_tenant_shares = app.engine.settings.has_tenant_shares;
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

async fn connection(app: App, socket: TcpStream, peer: SocketAddr, inside: Inside, _entry: Entry) {
    // Who is let in only to ask for health has little time to.
    let patience = if inside.is_reserved { RESERVED_PATIENCE } else { FOREVER };
    let _ = tokio::time::timeout(patience, converse(app, socket, peer, inside)).await;
}

async fn converse(app: App, socket: TcpStream, peer: SocketAddr, inside: Inside) {
    // A token a packet: waiting for more to send is the wrong economy.
    let _ = socket.set_nodelay(true);
    let stalled = Stalled::default();
    let socket = patient(&app, socket, peer, stalled.clone());
    let Some(tls) = app.settings.tls.clone() else {
        return exchange(app, socket, peer, inside, stalled).await;
    };
    // Who cannot shake hands, or takes too long to, is no loss.
    let accepting = Box::pin(tls.accept(socket));
    if let Ok(Ok(socket)) = tokio::time::timeout(app.settings.timeouts.request, accepting).await {
        // Boxed, like HTTP/2 below: what they need beyond plain HTTP/1 would be room in every
        // connection's task.
        Box::pin(exchange(app, socket, peer, inside, stalled)).await;
    }
}

/// A socket that is cut when its reader stalls.
fn patient(
    app: &App,
    socket: TcpStream,
    peer: SocketAddr,
    stalled: Stalled,
) -> StallTimeout<TcpStream, impl FnMut(&TcpStream) + use<>> {
    let (app, patience) = (app.clone(), app.settings.timeouts.stalled_reader);
    StallTimeout::new(socket, patience, move |socket| {
        tracing::debug!(%peer, "a reader takes nothing and is cut");
        app.metrics.stalled_readers.inc();
        stalled.set();
        // A reset: the body must not look finished, and what the kernel holds for the reader is
        // free at once.
        let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    })
}

/// Requests and responses of one connection, until it ends or the server does.
async fn exchange<S>(app: App, socket: S, peer: SocketAddr, inside: Inside, stalled: Stalled)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (activity, handover) = (Arc::<Activity>::default(), Handover::default());
    let mut idle = pin!(
        activity.clone().idle(app.settings.timeouts.request, app.settings.timeouts.idle_connection)
    );
    let mut socket = Socket::new(socket, handover.clone());
    let is_http2 = tokio::select! {
        begins = socket.begins_as_http2() => begins,
        () = idle.as_mut() => return,
        () = app.closing.cancelled() => return,
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
    let leaving = pin!(leaving(&app, &asked));
    match is_http2 {
        Ok(true) => Box::pin(http2(&app, socket, service, idle, leaving)).await,
        Ok(false) => http1(&app, socket, service, handover, idle, leaving).await,
        Err(_) => {}
    }
}

/// hyper reads requests and answers them; what lasts is sent by us, and then it is hyper's turn
/// again.
async fn http1<S, Q>(
    app: &App,
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
        .header_read_timeout(app.settings.timeouts.request)
        .max_buf_size(CONNECTION_BUFFER);
    loop {
        // Boxed, so that its room is free while a body lasts.
        let mut serving = Box::new(builder.serve_connection(TokioIo::new(socket), service.clone()));
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
        let Some((body, after)) = body else { return };
        let parts = serving.into_parts();
        socket = parts.io.into_inner();
        socket.unread(parts.read_buf);
        if handover::send(&mut socket, body).await.is_err() {
            return;
        }
        if is_last || after == After::Close {
            let _ = socket.shutdown().await;
            return;
        }
    }
}

async fn http2<S, Q>(
    app: &App,
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
    let ping = Some(app.settings.timeouts.ping).filter(|ping| !ping.is_zero());
    let mut builder =
        http2::Builder::new(Answering { app: app.clone(), connection: TaskSlot::current() });
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
async fn leaving(app: &App, asked: &CancellationToken) {
    if !app.draining.is_cancelled() {
        app.draining.cancelled().await;
        tokio::select! {
            () = asked.cancelled() => return,
            () = app.closing.cancelled() => return,
        }
    }
    app.closing.cancelled().await;
}

/// Bodies end at their next frame; a reader that does not read is not waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long the end waits at most for a journal that takes no writes.
const UNWELL: Duration = Duration::from_secs(5);

async fn drain(app: &App, connections: &TaskTracker) {
    app.draining.cancel();
    app.journal.store().drain();
    app.tasks.close();
    connections.close();
    tracing::info!(runs = app.tasks.len(), connections = connections.len(), "draining");
    // Until the limit, runs may finish and whoever watches them may see it.
    let _ = tokio::time::timeout(app.settings.timeouts.drain, app.tasks.wait()).await;
    app.stopped.cancel();
    tokio::select! {
        () = app.tasks.wait() => {}
        () = app.unwell_for(app.settings.timeouts.drain.min(UNWELL)) => tracing::warn!("the \
         journal takes no writes: what is left open is recovered by the next life"),
    }
    // Runs that wait go on in another life; their spans end here.
    app.traces.forget(Duration::ZERO);
    app.closing.cancel();
    app.ended.cancel();
    let _ = tokio::time::timeout(LAST_WORDS, connections.wait()).await;
    // What agents were told to end, here and elsewhere. An agent that never yields is not waited
    // for.
    app.agents_at_work.close();
    let _ = tokio::time::timeout(END_LIMIT + LAST_WORDS, app.agents_at_work.wait()).await;
}
/// Does what nobody asks for, until the server stops.
async fn keep_house(app: App) {
    tokio::select! {
        () = recovery::sweep(app.engine.clone()) => {}
        () = console::keep_house(&app) => {}
        () = console::tell_load(&app) => {}
        () = face::keep_house(&app, &app.faces) => {}
    }
}
