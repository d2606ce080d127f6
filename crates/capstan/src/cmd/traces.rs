//! Traces for an OpenTelemetry collector, if the standard variables configure one.

mod otel;

use tracing_subscriber::{Layer, Registry};

pub(crate) use otel::{Traces, check};

/// A layer that collects spans beside the log.
pub(crate) type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// The variables for the endpoint; the first one that is set wins.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The variable that switches traces on, unless another one switches them off.
fn asked_by() -> Option<&'static str> {
    let is_off =
        variable("OTEL_SDK_DISABLED").is_some_and(|word| word.eq_ignore_ascii_case("true"));
    ENDPOINTS.into_iter().find(|name| variable(name).is_some()).filter(|_| !is_off)
}

/// The value of a variable; the standard treats an empty one as unset.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
