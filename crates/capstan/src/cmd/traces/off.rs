//! A build without OpenTelemetry: it says so to whoever expects traces.

use capstan_gateway::Gateway;
use tokio::runtime::Handle;

use super::SpanLayer;
use crate::cmd::Failure;

pub(crate) struct Traces;

impl Traces {
    /// Fallible as the other one is.
    pub(crate) fn open(_: &Handle) -> Result<Self, Failure> {
        Ok(Self)
    }

    pub(crate) fn layer(&self) -> Option<SpanLayer> {
        None
    }

    pub(crate) fn collect(&self, gateway: Gateway) -> Gateway {
        if let Some(name) = super::asked_by() {
            tracing::warn!(
                "{name} is set, but this build exports no traces: build it with `cargo build --package capstan --features otel`"
            );
        }
        gateway
    }

    pub(crate) fn close(self) {}
}
