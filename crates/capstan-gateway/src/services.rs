//! The parts of a gateway by name. Each route and layer gets the part that it needs.

use std::sync::Arc;

use capstan_engine::Engine;

use crate::access::Access;
use crate::edge::server::{Edge, Rules};
use crate::error_responses::ErrorResponses;
use crate::face::{FaceContext, Faces};
use crate::metrics::Metrics;
use crate::replica_forwarding::Forwarding;
use crate::routes::health::Monitor;
use crate::routes::page::Pages;
use crate::routes::streams::Streams;
use crate::tls::Tls;
use capstan_console::Console;

/// The parts of a built gateway.
pub(crate) struct Services {
    pub(crate) engine: Engine,
    pub(crate) cx: FaceContext,
    pub(crate) faces: Faces,
    pub(crate) access: Access,
    pub(crate) console: Console,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) forwarding: Forwarding,
    pub(crate) monitor: Monitor,
    pub(crate) pages: Pages,
    pub(crate) tls: Option<Tls>,
}

impl Services {
    pub(crate) fn edge(&self) -> Edge {
        let [draining, closing] = self.engine.shutdown_tokens();
        Edge::from(Rules {
            timeouts: self.engine.settings().timeouts.clone(),
            tls: self.tls.clone(),
            has_tenant_shares: self.engine.settings().has_tenant_shares,
            draining,
            closing,
            stalled_readers: self.metrics.stalled_readers.clone(),
        })
    }

    pub(crate) fn streams(&self) -> Streams {
        Streams { cx: self.cx.clone(), faces: self.faces.clone() }
    }

    pub(crate) fn error_responses(&self) -> ErrorResponses {
        ErrorResponses {
            cx: self.cx.clone(),
            faces: self.faces.clone(),
            metrics: self.metrics.clone(),
            console: self.console.clone(),
        }
    }
}
