//! What a face sees of the gateway: the engine, where the gateway is reached, and who listens.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use capstan_engine::Engine;

use crate::face::openai::Passthroughs;
use crate::identity::audit::Audit;
use crate::identity::tenants::Tenants;

/// What faces share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct FaceContext(Arc<Shared>);

/// The parts of a [`FaceContext`].
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) site: Site,
    pub(crate) tenants: Tenants,
    /// Agents that pass on what is no run.
    pub(crate) passthrough: Passthroughs,
    pub(crate) audit: Arc<Audit>,
    pub(crate) observer: Arc<dyn FaceObserver>,
    /// Whether the gateway can post webhooks and push notifications.
    pub(crate) can_deliver: bool,
}

/// Where the gateway is reached, and by whom.
#[derive(Debug, Clone, Default)]
pub(crate) struct Site {
    pub(crate) public_url: Option<String>,
    pub(crate) is_tls: bool,
    /// Whether tokens name tenants.
    pub(crate) has_tokens: bool,
    /// Without tenants, whether other machines may use it.
    pub(crate) is_open: bool,
}

/// What faces do that is worth counting.
pub(crate) trait FaceObserver: Send + Sync + 'static {
    /// An event of a face's protocol was sent; an error has a code.
    fn event(&self, face: &'static str, kind: &'static str, code: Option<&str>);

    /// A delivery was not recorded, because too many of its tenant's are open.
    fn delivery_refused(&self);
}

impl FaceContext {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// For what the engine itself holds.
    pub(crate) fn downgrade(&self) -> WeakContext {
        WeakContext(Arc::downgrade(&self.0))
    }

    /// Whether there are no tenants: then everything belongs to one.
    pub(crate) fn is_local(&self) -> bool {
        self.tenants.is_empty() && !self.site.has_tokens
    }

    /// Whether only programs of this machine can use the gateway.
    pub(crate) fn is_for_this_machine(&self) -> bool {
        self.is_local() && !self.site.is_open
    }
}

/// A [`FaceContext`] that keeps nothing alive.
pub(crate) struct WeakContext(Weak<Shared>);

impl WeakContext {
    pub(crate) fn upgrade(&self) -> Option<FaceContext> {
        self.0.upgrade().map(FaceContext)
    }
}

impl Deref for FaceContext {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}
