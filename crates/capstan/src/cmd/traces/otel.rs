//! Spans over OTLP/HTTP, as the standard variables say. A collector that cannot be reached costs no
//! run anything.

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

/// Where in the code spans come from, as far as the collector is told.
const SCOPE: &str = "capstan";
/// How long the last spans may take to go out before the process ends without them.
const LAST_WORDS: Duration = Duration::from_secs(3);

/// The way to a collector, if there is one.
pub(crate) struct Traces {
    provider: Option<SdkTracerProvider>,
}

/// Refuses variables that ask for traces and say it wrong.
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
            // Where in the code a span was made, and what its thread did meanwhile, says nothing
            // about a run.
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_level(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(SPANS, Level::INFO));
        Some(layer.boxed())
    }

    /// Lets a gateway make spans, if they are wanted.
    pub(crate) fn collect(&self, gateway: Gateway) -> Gateway {
        if self.provider.is_some() { gateway.traces(Collector::default()) } else { gateway }
    }

    /// Sends what is left, for a while.
    pub(crate) fn close(self) {
        if let Some(provider) = self.provider {
            // Whoever watches the exporter has told what went wrong.
            let _ = provider.shutdown_with_timeout(LAST_WORDS);
        }
    }
}

/// Between our trace contexts and OpenTelemetry's.
#[derive(Default)]
struct Collector {
    propagator: TraceContextPropagator,
}

impl Collector {
    fn remote(&self, context: &TraceParent) -> opentelemetry::Context {
        let headers: HashMap<String, String> =
            context.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        // Not within whatever context this thread is in.
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
