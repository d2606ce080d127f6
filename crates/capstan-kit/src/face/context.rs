//! What a face sees of the gateway: the engine, where the gateway is reached, and who listens.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use capstan_agent::sealed::Sealer;
use capstan_engine::Engine;
use capstan_protocol::{Dialect, FaultKind};

use crate::face::passthrough::Passthroughs;
use crate::identity::audit::Audit;
use crate::identity::tenants::Tenants;

/// What faces share. Cheap to clone.
#[derive(Clone)]
pub struct FaceContext(Arc<Shared>);

/// The parts of a [`FaceContext`].
pub struct Shared {
    pub engine: Engine,
    pub site: Site,
    pub tenants: Tenants,
    /// Agents that pass on what is no run.
    pub passthrough: Passthroughs,
    pub audit: Arc<Audit>,
    pub observer: Arc<dyn FaceObserver>,
    /// Whether the gateway can post webhooks and push notifications.
    pub can_deliver: bool,
}

/// Where the gateway is reached, and by whom.
#[derive(Debug, Clone, Default)]
pub struct Site {
    pub public_url: Option<String>,
    pub is_tls: bool,
    /// Whether tokens name tenants.
    pub has_tokens: bool,
    /// Without tenants, whether other machines may use it.
    pub is_open: bool,
}

/// What faces do that is worth counting.
pub trait FaceObserver: Send + Sync + 'static {
    /// An event of a face's protocol was sent; an error has a code.
    fn event(&self, face: &'static str, kind: &'static str, code: Option<&str>);

    /// A request that came on a connection of its face's own was refused.
    fn refused(&self, kind: FaultKind);

    /// A delivery was not recorded, because too many of its tenant's are open.
    fn delivery_refused(&self);
}

/// Nobody counts.
impl FaceObserver for () {
    fn event(&self, _: &'static str, _: &'static str, _: Option<&str>) {}

    fn refused(&self, _: FaultKind) {}

    fn delivery_refused(&self) {}
}

impl FaceContext {
    pub fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// Around an engine alone: no tenants, nobody who counts, nothing that delivers.
    pub fn of_engine(engine: Engine) -> Self {
        Self::new(Shared {
            engine,
            site: Site::default(),
            tenants: Tenants::default(),
            passthrough: Passthroughs::default(),
            audit: Arc::default(),
            observer: Arc::new(()),
            can_deliver: false,
        })
    }

    /// For what the engine itself holds.
    pub fn downgrade(&self) -> WeakContext {
        WeakContext(Arc::downgrade(&self.0))
    }

    /// What seals reasoning for a client that carries it itself.
    pub fn sealer(&self, client: Dialect) -> Sealer {
        Sealer::new(client, self.engine.agents().filter_map(|agent| agent.agent.origin()))
    }

    /// Whether there are no tenants: then everything belongs to one.
    pub fn is_local(&self) -> bool {
        self.tenants.is_empty() && !self.site.has_tokens
    }

    /// Whether only programs of this machine can use the gateway.
    pub fn is_for_this_machine(&self) -> bool {
        self.is_local() && !self.site.is_open
    }
}

/// A [`FaceContext`] that keeps nothing alive.
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
