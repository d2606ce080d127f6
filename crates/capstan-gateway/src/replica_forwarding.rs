//! Requests for tenants of whom nothing is stored: they live in the memory of one process, and
//! whichever process is asked passes the request on to that one. One layer before all routes, so
//! that no face can forget it.
//!
//! What was passed on once is never passed on again: it carries a mark, signed with the store's own
//! secret, which no client can make. Bodies flow both ways as they come; nothing of them is held
//! here.

mod mark;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_journal::{Peer, Standing, TenantHost, TenantHosts};
use capstan_protocol::{Fault, FaultKind};
use futures_util::StreamExt as _;
use http::header;
use http::{HeaderValue, StatusCode, Uri};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use uuid::Uuid;

use crate::identity::caller::Caller;
use crate::identity::tenants::Tenants;
use crate::metrics::Metrics;
use crate::refusal::{Forwarded, Refusal, RequestId};
use capstan_engine::Engine;
use capstan_engine::faults::journal_fault;
use capstan_kit::hop_by_hop::drop_hop_by_hop;
use mark::Marks;

/// Requests that are passed on at once; each holds two connections.
const AT_ONCE: usize = 1024;
/// How often it is looked whether the other process still lives: one that is frozen never cuts a
/// connection.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When to come back, in seconds.
const RETRY: f64 = 1.0;

/// Carries a request to another process, and its answer back.
#[async_trait]
pub trait ReplicaForwarder: Send + Sync + 'static {
    /// The answer, as soon as its head is there. Neither a redirect is followed nor a proxy asked,
    /// and nothing is tried again.
    async fn pass(&self, request: http::Request<Body>) -> Result<http::Response<Body>, String>;
}

/// Passes requests on to other processes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Forwarding(Arc<Forwarders>);

struct Forwarders {
    engine: Engine,
    tenants: Tenants,
    metrics: Arc<Metrics>,
    way: Option<Arc<dyn ReplicaForwarder>>,
    room: Arc<Semaphore>,
    /// Which other processes live, and when that was asked.
    living: Mutex<Option<(Instant, HashSet<Uuid>)>>,
}

impl Forwarding {
    pub(crate) fn new(
        engine: Engine,
        tenants: Tenants,
        metrics: Arc<Metrics>,
        way: Option<Arc<dyn ReplicaForwarder>>,
    ) -> Self {
        let (room, living) = (Arc::new(Semaphore::new(AT_ONCE)), Mutex::default());
        Self(Arc::new(Forwarders { engine, tenants, metrics, way, room, living }))
    }
}

impl Forwarders {
    /// Whether a process lives, as of a moment ago. What cannot be found out does not end anything.
    async fn is_alive(&self, peer: Uuid) -> bool {
        let mut living = self.living.lock().await;
        if living.as_ref().is_none_or(|(asked, _)| asked.elapsed() >= LOOK_EVERY / 2) {
            let Some(cluster) = self.engine.store().cluster() else { return true };
            let Ok(replicas) = cluster.replicas().await else { return true };
            let alive =
                replicas.into_iter().filter(|one| one.standing != Standing::Gone).map(|one| one.id);
            *living = Some((Instant::now(), alive.collect()));
        }
        living.as_ref().is_none_or(|(_, alive)| alive.contains(&peer))
    }
}

/// Passes a request on if its tenant lives in another process.
pub(crate) async fn pass_on(
    State(Forwarding(here)): State<Forwarding>,
    mut request: Request,
    next: Next,
) -> Response {
    let tenant = request.extensions().get::<Caller>().map(|caller| caller.tenant.clone());
    let Some(tenant) = tenant.filter(|name| here.tenants.is_unstored(name)) else {
        return next.run(request).await;
    };
    let Some(cluster) = here.engine.store().cluster() else {
        return next.run(request).await;
    };
    // The tenant may move while a connection lasts, and only requests can follow it.
    if request.headers().contains_key(header::UPGRADE) {
        return StatusCode::UPGRADE_REQUIRED.into_response();
    }
    match whither(&here, cluster.tenant_hosts(), &tenant, &mut request).await {
        Ok(None) => next.run(request).await,
        Ok(Some(peer)) => carry(&here, &tenant, peer, request).await.unwrap_or_else(|fault| {
            here.metrics.passed_on("failed");
            Refusal::from(fault).into_response()
        }),
        Err(fault) => Refusal::from(fault).into_response(),
    }
}

/// Where the tenant lives, if not here.
async fn whither(
    here: &Forwarders,
    hosts: &dyn TenantHosts,
    tenant: &str,
    request: &mut Request,
) -> Result<Option<Peer>, Fault> {
    let was_passed_on = match request.headers_mut().remove(&mark::HEADER) {
        Some(mark) => {
            Marks::of(&here.engine).await?.is_ours(&mark, tenant, request, here.engine.now())
        }
        None => false,
    };
    // Whoever is about to leave takes nobody in.
    let may_host = !was_passed_on && !here.engine.is_draining();
    match hosts.host_of(tenant, may_host).await.map_err(journal_fault)? {
        TenantHost::Here => Ok(None),
        TenantHost::Elsewhere(peer) if !was_passed_on => Ok(Some(peer)),
        TenantHost::Elsewhere(_) | TenantHost::Nowhere => {
            Err(unreachable("The tenant has just moved to another server."))
        }
    }
}

fn unreachable(message: &str) -> Fault {
    Fault::new(FaultKind::ServiceUnavailable).with_message(message).with_retry_after(RETRY)
}

const GONE: &str = "The server that this tenant lives on does not answer.";

async fn carry(
    here: &Arc<Forwarders>,
    tenant: &str,
    peer: Peer,
    request: Request,
) -> Result<Response, Fault> {
    let (Some(way), Some(url)) = (&here.way, &peer.url) else {
        tracing::error!(replica = peer.name, "requests cannot be passed on: it has no cluster.url");
        return Err(unreachable(GONE));
    };
    let room = Arc::clone(&here.room).try_acquire_owned();
    let room =
        room.map_err(|_| unreachable("Too many requests are passed on to another server."))?;
    let request = marked(here, tenant, url, request).await?;
    let mut look = every(LOOK_EVERY);
    let passing = way.pass(request);
    tokio::pin!(passing);
    let answered = loop {
        tokio::select! {
            answered = &mut passing => break answered,
            () = here.engine.until_ended() => {
                return Err(unreachable("The server is about to end."));
            }
            _ = look.tick() => {
                if !here.is_alive(peer.id).await {
                    return Err(unreachable(GONE));
                }
            }
        }
    };
    let response = answered.map_err(|why| {
        tracing::warn!(replica = peer.name, why, "a request could not be passed on");
        unreachable(GONE)
    })?;
    here.metrics.passed_on("passed");
    Ok(returned(here, peer.id, response, room))
}

fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// The same request for the other process, with the mark that it was passed on, and the id under
/// which logs know it here.
async fn marked(
    here: &Forwarders,
    tenant: &str,
    url: &str,
    request: Request,
) -> Result<Request, Fault> {
    let mark = Marks::of(&here.engine).await?.make(tenant, &request, here.engine.now());
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    head.uri =
        format!("{}{path}", url.trim_end_matches('/')).parse::<Uri>().map_err(Fault::from_error)?;
    head.version = http::Version::default();
    drop_hop_by_hop(&mut head.headers);
    // It is said anew, of the other process.
    head.headers.remove(header::HOST);
    head.headers.insert(&mark::HEADER, mark);
    if let Some(RequestId(id)) = head.extensions.get::<RequestId>()
        && let Ok(id) = HeaderValue::from_str(id)
    {
        head.headers.insert("x-request-id", id);
    }
    head.extensions = http::Extensions::new();
    Ok(Request::from_parts(head, body))
}

/// The other's answer, cut off as soon as that process is gone.
fn returned(
    here: &Arc<Forwarders>,
    peer: Uuid,
    response: http::Response<Body>,
    room: OwnedSemaphorePermit,
) -> Response {
    let (mut head, body) = response.into_parts();
    drop_hop_by_hop(&mut head.headers);
    // This process's own layers say these.
    head.headers.remove(header::VARY);
    let through = Through {
        here: Arc::clone(here),
        peer,
        pieces: body.into_data_stream(),
        look: every(LOOK_EVERY),
        _room: room,
    };
    let pieces = futures_util::stream::unfold(Some(through), |through| async {
        let mut through = through?;
        let piece = through.next().await?;
        let next = piece.is_ok().then_some(through);
        Some((piece, next))
    });
    let mut response = Response::from_parts(head, Body::from_stream(pieces));
    response.extensions_mut().insert(Forwarded);
    response
}

struct Through {
    here: Arc<Forwarders>,
    peer: Uuid,
    pieces: axum::body::BodyDataStream,
    look: Interval,
    _room: OwnedSemaphorePermit,
}

impl Through {
    async fn next(&mut self) -> Option<Result<Bytes, axum::Error>> {
        let cut = |why: &'static str| Some(Err(axum::Error::new(why)));
        loop {
            tokio::select! {
                piece = self.pieces.next() => return piece,
                () = self.here.engine.until_ended() => return cut("this server ends"),
                _ = self.look.tick() => {
                    if !self.here.is_alive(self.peer).await {
                        return cut("the server that was asked is gone");
                    }
                }
            }
        }
    }
}
