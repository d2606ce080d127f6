//! The state that the gateway's parts share.

use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::asset::Asset;
use crate::console::Console;
use crate::cors::CorsHeaders;
use crate::face::{Face, FaceContext};
use crate::metrics::Metrics;
use crate::replica_forwarding::Forwarders;
use crate::settings::Settings;
use crate::webhook::WebhookSender;

/// What every part of the gateway can reach. Cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

pub(crate) struct Shared {
    /// What the gateway shares with its faces.
    pub(crate) cx: FaceContext,
    pub(crate) settings: Settings,
    pub(crate) page: &'static [Asset],
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) console: Arc<Console>,
    pub(crate) faces: Vec<Arc<dyn Face>>,
    pub(crate) cors: CorsHeaders,
    pub(crate) started: Instant,
    pub(crate) webhooks: Option<Arc<dyn WebhookSender>>,
    pub(crate) forwarders: Forwarders,
}

impl Deref for Shared {
    type Target = FaceContext;

    fn deref(&self) -> &FaceContext {
        &self.cx
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl From<Arc<Shared>> for App {
    fn from(shared: Arc<Shared>) -> Self {
        Self(shared)
    }
}

impl App {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }

    /// For what the app itself holds.
    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.0)
    }

    /// The face under a name.
    pub(crate) fn face(&self, name: &str) -> Option<&Arc<dyn Face>> {
        self.faces.iter().find(|face| face.name() == name)
    }
}
