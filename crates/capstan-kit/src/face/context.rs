//! The services that a face uses: the engine, the gateway's address, and an observer.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use capstan_agent::sealed::Sealer;
use capstan_engine::Engine;
use capstan_protocol::{Dialect, FaultKind};

use crate::face::passthrough::Passthroughs;
use crate::identity::tenants::Tenants;

/// The services that all faces share. Cheap to clone.
#[derive(Clone)]
pub struct FaceContext(Arc<Shared>);

/// The parts of a [`FaceContext`].
pub struct Shared {
    pub engine: Engine,
    pub site: Site,
    pub tenants: Tenants,
    /// Agents that forward requests that are no runs.
    pub passthrough: Passthroughs,
    pub observer: Arc<dyn FaceObserver>,
    /// Whether the gateway can post webhooks and push notifications.
    pub can_deliver: bool,
}

/// The address of the gateway, and who may use it.
#[derive(Debug, Clone, Default)]
pub struct Site {
    pub public_url: Option<String>,
    pub is_tls: bool,
    /// Whether tokens name tenants.
    pub has_tokens: bool,
    /// Whether other machines may use a gateway without tenants.
    pub is_open: bool,
}

/// Counts events of faces.
pub trait FaceObserver: Send + Sync + 'static {
    /// An event of a face's protocol was sent; an error has a code.
    fn event(&self, face: &'static str, kind: &'static str, code: Option<&str>);

    /// A request on a connection of the face's own was refused, for example on a WebSocket.
    fn refused(&self, kind: FaultKind);

    /// A delivery was dropped, because too many deliveries of the tenant are open.
    fn delivery_refused(&self);
}

/// Counts nothing.
impl FaceObserver for () {
    fn event(&self, _: &'static str, _: &'static str, _: Option<&str>) {}

    fn refused(&self, _: FaultKind) {}

    fn delivery_refused(&self) {}
}

impl FaceContext {
    pub fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// A context with an engine only: no tenants, no observer, no deliveries.
    pub fn of_engine(engine: Engine) -> Self {
        Self::new(Shared {
            engine,
            site: Site::default(),
            tenants: Tenants::default(),
            passthrough: Passthroughs::default(),
            observer: Arc::new(()),
            can_deliver: false,
        })
    }

    /// A weak reference, for values that the engine holds.
    pub fn downgrade(&self) -> WeakContext {
        WeakContext(Arc::downgrade(&self.0))
    }

    /// Seals reasoning for a client that carries it itself.
    pub fn sealer(&self, client: Dialect) -> Sealer {
        Sealer::new(client, self.engine.agents().filter_map(|agent| agent.agent.origin()))
    }

    /// Whether there are no tenants. Then everything belongs to one tenant.
    pub fn is_local(&self) -> bool {
        self.tenants.is_empty() && !self.site.has_tokens
    }

    /// Whether only programs of this machine can use the gateway.
    pub fn is_for_this_machine(&self) -> bool {
        self.is_local() && !self.site.is_open
    }
}

/// A weak reference to a [`FaceContext`].
pub struct WeakContext(Weak<Shared>);

impl WeakContext {
    pub fn upgrade(&self) -> Option<FaceContext> {
        self.0.upgrade().map(FaceContext)
    }
}

impl Deref for FaceContext {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
