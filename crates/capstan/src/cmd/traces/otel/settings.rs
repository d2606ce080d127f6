//! The standard variables, as far as the SDK would silently pass over a mistake in them.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};

use crate::cmd::Failure;
use crate::cmd::traces::{ENDPOINTS, asked_by, variable};

/// The only protocol of this build.
const PROTOCOL: &str = "http/protobuf";
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const COMPRESSIONS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
/// The standard's own.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
/// The samplers that there are, and whether they take a ratio.
const SAMPLERS: [(&str, bool); 6] = [
    ("always_on", false),
    ("always_off", false),
    ("traceidratio", true),
    ("parentbased_always_on", false),
    ("parentbased_always_off", false),
    ("parentbased_traceidratio", true),
];

/// Refuses what would otherwise be replaced by a default without a word. Values are not repeated: they may hold keys.
pub(super) fn check() -> Result<(), Failure> {
    if let Some(name) = asked_by() {
        let url = variable(name).and_then(|text| reqwest::Url::parse(&text).ok());
        if !url.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
            return Err(unusable_endpoint());
        }
    }
    if let Some((name, _)) = first(PROTOCOLS).filter(|(_, value)| value != PROTOCOL) {
        let help =
            format!("unset it and use the collector's HTTP port, 4318 by default, in {}", ENDPOINTS[1]);
        return Err(Failure::usage(format!("{name}: traces are sent as {PROTOCOL} only")).with_help(help));
    }
    if let Some((name, _)) = first(TIMEOUTS).filter(|(_, text)| text.parse::<u64>().is_err()) {
        return Err(Failure::usage(format!("{name}: expected a number of milliseconds")));
    }
    if let Some((name, _)) = first(COMPRESSIONS).filter(|(_, word)| word != "none") {
        return Err(Failure::usage(format!("{name}: spans are sent uncompressed")).with_help("unset it"));
    }
    check_sampler()
}

fn check_sampler() -> Result<(), Failure> {
    let Some(word) = variable(SAMPLER) else { return Ok(()) };
    let Some((_, takes_ratio)) = SAMPLERS.iter().find(|(name, _)| *name == word) else {
        let known = SAMPLERS.map(|(name, _)| name).join(", ");
        return Err(Failure::usage(format!("{SAMPLER}: unknown value {word:?}, expected one of {known}")));
    };
    let ratio = variable(SAMPLER_ARG).and_then(|text| text.parse::<f64>().ok());
    if *takes_ratio && !ratio.is_some_and(|ratio| (0.0..=1.0).contains(&ratio)) {
        return Err(Failure::usage(format!("{SAMPLER_ARG}: {word} needs a number between 0 and 1")));
    }
    Ok(())
}

pub(super) fn unusable_endpoint() -> Failure {
    let name = asked_by().unwrap_or(ENDPOINTS[1]);
    Failure::usage(format!("{name}: expected http://host:port or https://host:port"))
        .with_help("without it nothing is exported; OTEL_SDK_DISABLED=true switches traces off")
}

/// How long one delivery may take.
pub(super) fn timeout() -> Duration {
    let millis = first(TIMEOUTS).and_then(|(_, text)| text.parse().ok());
    millis.map_or(DEFAULT_TIMEOUT, Duration::from_millis)
}

fn first(names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, variable(name)?)))
}

/// Who sends: ours by default, then what the variables say.
pub(super) fn resource() -> Resource {
    let ours = [
        KeyValue::new("service.name", "capstan"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    let named = variable("OTEL_SERVICE_NAME").map(|name| KeyValue::new("service.name", name));
    Resource::builder_empty()
        .with_attributes(ours)
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_attributes(named)
        .build()
}
