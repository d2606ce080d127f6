//! Serving and draining.

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use capstan_engine::Engine;
use capstan_engine::recovery;
use capstan_journal::Cluster;
use tokio::net::TcpListener;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::edge::admission::Admission;
use crate::edge::server::{Routers, SHUTDOWN_GRACE, listen};
use crate::gateway::Gateway;
use crate::router::Behind;
use crate::services::Services;
use crate::{face, router};

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// The number of runs that an earlier process left open.
    pub recovered: usize,
}

/// A running gateway without a listener, for programs that mount it into their own server.
pub struct Service {
    services: Arc<Services>,
    recovered: usize,
    keepers: [AbortOnDropHandle<()>; 2],
}

impl Service {
    /// Recovers the runs that an earlier process left open, then begins to serve.
    pub async fn start(gateway: Gateway) -> io::Result<Self> {
        Self::recover(gateway.into_services()).await
    }

    async fn recover(services: Arc<Services>) -> io::Result<Self> {
        let Services { engine, console, metrics, .. } = &*services;
        let (store, metrics) = (engine.store().clone(), metrics.clone());
        // The time counts during recovery as well, because recovery waits for the journal.
        let counting = tokio::spawn(async move { metrics.journal.watch(&*store).await });
        let counting = AbortOnDropHandle::new(counting);
        if !engine.store().is_shared() {
            capstan_console::remember(console).await;
        }
        let recovered = recovery::recover(engine).await.map_err(io::Error::other)?;
        let sweeper = AbortOnDropHandle::new(tokio::spawn(maintain(services.clone())));
        Ok(Self { services, recovered, keepers: [sweeper, counting] })
    }

    /// The routes, ready to be served.
    pub fn router(&self) -> Router {
        router::router(&self.services, Behind::All)
    }

    /// Refuses new runs, serves open ones until the drain limit, interrupts the rest, and closes
    /// the journal.
    pub async fn drain(self) -> io::Result<Drained> {
        self.stop(&TaskTracker::new()).await
    }

    async fn stop(self, connections: &TaskTracker) -> io::Result<Drained> {
        let Services { engine, console, .. } = &*self.services;
        drain(engine, connections).await;
        drop(self.keepers);
        capstan_console::save(console).await;
        engine.store().close().await.map_err(io::Error::other)?;
        Ok(Drained { recovered: self.recovered })
    }
}

/// Serves until `shutdown` resolves, then drains: refuses new runs, serves open ones for a while,
/// and interrupts the rest.
pub async fn serve(
    mut gateway: Gateway,
    listeners: Vec<TcpListener>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<Drained> {
    let of_console = gateway.take_console_listeners();
    let services = gateway.into_services();
    let engine = &services.engine;
    let main = if of_console.is_empty() { Behind::All } else { Behind::NoConsole };
    let listeners = listeners.into_iter().map(|listener| (listener, main));
    let listeners =
        listeners.chain(of_console.into_iter().map(|listener| (listener, Behind::Console)));
    // Streams and health checks are served during recovery.
    let (connections, admission) = (TaskTracker::new(), Admission::new(&engine.settings().limits));
    let edge = services.edge();
    for (listener, behind) in listeners {
        let all = router::router(&services, behind);
        let routers = Routers { all, health: router::health(&services) };
        listen(&edge, listener, routers, &connections, &admission);
    }
    tokio::pin!(shutdown);
    let service = tokio::select! {
        // After an error, open connections are closed, because the program may live on.
        service = Service::recover(services.clone()) => service.inspect_err(|_| engine.give_up())?,
        () = &mut shutdown => {
            // The next process recovers the remaining runs.
            drain(engine, &connections).await;
            engine.store().close().await.map_err(io::Error::other)?;
            return Ok(Drained { recovered: 0 });
        }
    };
    let mut outdated = engine.store().cluster().map(Cluster::outdated);
    tokio::select! {
        () = &mut shutdown => service.stop(&connections).await,
        // A newer build changed the journal's format. Open runs may finish, and this process
        // accepts no new ones.
        Some(()) = async { outdated.as_mut()?.wait_for(|is| *is).await.ok().map(drop) } => {
            service.stop(&connections).await?;
            Err(io::Error::other("the journal needs a newer build than this one"))
        }
        () = engine.until_broken() => {
            // Nothing can be written any more. Clients get a moment to read `/livez` and the end of
            // their bodies.
            tokio::time::sleep(SHUTDOWN_GRACE).await;
            let why = engine.journal_broken().await;
            Err(io::Error::other(format!("the journal is broken, and only a restart can recover \
             it: {why}")))
        }
    }
}

async fn drain(engine: &Engine, connections: &TaskTracker) {
    let runs = engine.begin_drain();
    connections.close();
    tracing::info!(runs, connections = connections.len(), "draining");
    engine.drain_runs().await;
    let _ = tokio::time::timeout(SHUTDOWN_GRACE, connections.wait()).await;
    engine.drain_agents(SHUTDOWN_GRACE).await;
}

/// Does periodic work until the server stops.
async fn maintain(services: Arc<Services>) {
    let Services { engine, cx, faces, console, .. } = &*services;
    tokio::select! {
        () = recovery::sweep(engine.clone()) => {}
        () = capstan_console::maintain(console) => {}
        () = capstan_console::report_load(console) => {}
        () = face::maintain(cx, faces) => {}
    }
}
