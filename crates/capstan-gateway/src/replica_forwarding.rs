//! Forwards requests of `no_store` tenants to the gateway that hosts them, because the tenant's
//! data are in that gateway's memory. This is one layer before all routes, so that no face can
//! forget it.
//!
//! A forwarded request has a mark that is signed with the store's secret, so clients cannot forge
//! it. It is never forwarded again. Bodies are streamed both ways and not stored here.

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

/// The most forwarded requests at once. Each holds two connections.
const AT_ONCE: usize = 1024;
/// How often to check that the other gateway is alive. A frozen process does not close its
/// connections.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The `Retry-After` of a refusal, in seconds.
const RETRY: f64 = 1.0;

/// Sends a request to another gateway, and returns its response.
#[async_trait]
pub trait ReplicaForwarder: Send + Sync + 'static {
    /// Returns the response as soon as its head arrives. Follows no redirect, uses no proxy, and
    /// does not retry.
    async fn pass(&self, request: http::Request<Body>) -> Result<http::Response<Body>, String>;
}

/// Forwards requests to other gateways. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Forwarding(Arc<Forwarders>);

struct Forwarders {
    engine: Engine,
    tenants: Tenants,
    metrics: Arc<Metrics>,
    way: Option<Arc<dyn ReplicaForwarder>>,
    room: Arc<Semaphore>,
    /// The gateways that are alive, and when they were read.
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
    /// Whether a gateway is alive, a moment ago. True if that is unknown, so that an outage of the
    /// store ends nothing.
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

/// Forwards a request if another gateway hosts its tenant.
pub(crate) async fn forward(
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
    // A connection cannot follow a tenant that moves to another gateway; requests can.
    if request.headers().contains_key(header::UPGRADE) {
        return StatusCode::UPGRADE_REQUIRED.into_response();
    }
    match host_of(&here, cluster.tenant_hosts(), &tenant, &mut request).await {
        Ok(None) => next.run(request).await,
        Ok(Some(peer)) => carry(&here, &tenant, peer, request).await.unwrap_or_else(|fault| {
            here.metrics.forwarded("failed");
            Refusal::from(fault).into_response()
        }),
        Err(fault) => Refusal::from(fault).into_response(),
    }
}

/// The gateway that hosts the tenant, if it is another one.
async fn host_of(
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
    // A gateway that is draining hosts no new tenant.
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

const GONE: &str = "The gateway that hosts this tenant does not answer.";

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
    here.metrics.forwarded("passed");
    Ok(returned(here, peer.id, response, room))
}

fn every(period: Duration) -> Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// The request for the other gateway, with the mark and with the id of the request in this
/// gateway's log.
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
    // The client sets it anew, for the other gateway.
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

/// The other gateway's response. It is cut as soon as that gateway is gone.
fn returned(
    here: &Arc<Forwarders>,
    peer: Uuid,
    response: http::Response<Body>,
    room: OwnedSemaphorePermit,
) -> Response {
    let (mut head, body) = response.into_parts();
    drop_hop_by_hop(&mut head.headers);
    // This gateway's own layers set these.
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
                        return cut("the gateway that hosts the tenant is gone");
                    }
                }
            }
        }
    }
}
