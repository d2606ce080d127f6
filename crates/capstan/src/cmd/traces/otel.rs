//! Spans over OTLP/HTTP, configured by the standard variables. An unreachable collector does not
//! affect runs.

mod delivery;
mod settings;
mod wire;

use std::collections::HashMap;
use std::time::Duration;

use capstan_agent::TraceParent;
use capstan_gateway::{Gateway, SPANS, TraceCollector};
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::{Level, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;

use super::SpanLayer;
use crate::cmd::Failure;

/// The instrumentation scope in the exported spans.
const SCOPE: &str = "capstan";
/// How long the process waits for the last spans before it ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The tracer, if traces are configured.
pub(crate) struct Traces {
    provider: Option<SdkTracerProvider>,
}

/// Refuses variables with wrong values.
pub(crate) fn check() -> Result<(), Failure> {
    if super::asked_by().is_some() { settings::check() } else { Ok(()) }
}

impl Traces {
    /// Reads the variables. Nothing is sent yet.
    pub(crate) fn open(runtime: &Handle) -> Result<Self, Failure> {
        if super::asked_by().is_none() {
            return Ok(Self { provider: None });
        }
        check()?;
        let provider = SdkTracerProvider::builder()
            .with_resource(settings::resource())
            .with_batch_exporter(delivery::exporter(runtime)?)
            .build();
        Ok(Self { provider: Some(provider) })
    }

    pub(crate) fn layer(&self) -> Option<SpanLayer> {
        let layer = tracing_opentelemetry::layer()
            .with_tracer(self.provider.as_ref()?.tracer(SCOPE))
            // The code location and the thread of a span say nothing about a run.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(SPANS, Level::INFO));
        Some(layer.boxed())
    }

    /// Adds spans to a gateway, if traces are configured.
    pub(crate) fn collect(&self, gateway: Gateway) -> Gateway {
        if self.provider.is_some() { gateway.traces(Collector::default()) } else { gateway }
    }

    /// Sends the remaining spans, within a time limit.
    pub(crate) fn close(self) {
        if let Some(provider) = self.provider {
            // The exporter has logged errors already.
            let _ = provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT);
        }
    }
}

/// Converts between our trace contexts and OpenTelemetry's.
#[derive(Default)]
struct Collector {
    propagator: TraceContextPropagator,
}

impl Collector {
    fn remote(&self, context: &TraceParent) -> opentelemetry::Context {
        let headers: HashMap<String, String> =
            context.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        // The parent must not be the context of this thread.
        self.propagator.extract_with_context(&opentelemetry::Context::new(), &headers)
    }
}

impl TraceCollector for Collector {
    fn continue_from(&self, span: &Span, context: &TraceParent) {
        // It fails only for a span that nobody collects.
        let _ = span.set_parent(self.remote(context));
    }

    fn link(&self, span: &Span, context: &TraceParent) {
        span.add_link(self.remote(context).span().span_context().clone());
    }

    fn context(&self, span: &Span) -> Option<TraceParent> {
        let mut headers = HashMap::new();
        self.propagator.inject_context(&span.context(), &mut headers);
        let state = headers.get(TraceParent::STATE).map(String::as_str);
        TraceParent::parse(headers.get(TraceParent::PARENT)?, state)
    }
}
