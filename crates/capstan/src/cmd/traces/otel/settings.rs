//! Reads the standard variables, and checks the values that the SDK would silently ignore if wrong.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::cmd::Failure;
use crate::cmd::traces::{ENDPOINTS, asked_by, variable};

/// The only protocol of this build.
const PROTOCOL: &str = "http/protobuf";
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const TIMEOUTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
const COMPRESSIONS: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
/// The standard's default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARG: &str = "OTEL_TRACES_SAMPLER_ARG";
/// The known samplers, and whether they take a ratio.
const SAMPLERS: [(&str, bool); 6] = [
    ("always_on", false),
    ("always_off", false),
    ("traceidratio", true),
    ("parentbased_always_on", false),
    ("parentbased_always_off", false),
    ("parentbased_traceidratio", true),
];

/// Refuses values that the SDK would silently replace by a default. The message repeats no value,
/// because it may hold a key.
pub(super) fn check() -> Result<(), Failure> {
    endpoint()?;
    if let Some((name, _)) = first(PROTOCOLS).filter(|(_, value)| value != PROTOCOL) {
        let help = format!(
            "unset it and use the collector's HTTP port, 4318 by default, in {}",
            ENDPOINTS[1]
        );
        return Err(
            Failure::usage(format!("{name}: traces are sent as {PROTOCOL} only")).with_help(help)
        );
    }
    if let Some((name, _)) = first(TIMEOUTS).filter(|(_, text)| text.parse::<u64>().is_err()) {
        return Err(Failure::usage(format!("{name}: expected a number of milliseconds")));
    }
    if let Some((name, _)) = first(COMPRESSIONS).filter(|(_, word)| word != "none") {
        return Err(
            Failure::usage(format!("{name}: spans are sent uncompressed")).with_help("unset it")
        );
    }
    check_sampler()
}

fn check_sampler() -> Result<(), Failure> {
    let Some(word) = variable(SAMPLER) else { return Ok(()) };
    let Some((_, takes_ratio)) = SAMPLERS.iter().find(|(name, _)| *name == word) else {
        let known = SAMPLERS.map(|(name, _)| name).join(", ");
        return Err(Failure::usage(format!(
            "{SAMPLER}: unknown value {word:?}, expected one of {known}"
        )));
    };
    let ratio = variable(SAMPLER_ARG).and_then(|text| text.parse::<f64>().ok());
    if *takes_ratio && !ratio.is_some_and(|ratio| (0.0..=1.0).contains(&ratio)) {
        return Err(Failure::usage(format!(
            "{SAMPLER_ARG}: {word} needs a number between 0 and 1"
        )));
    }
    Ok(())
}

/// The address for spans: the variable for traces unchanged, or the general one with the standard's
/// path.
pub(super) fn endpoint() -> Result<Url, Failure> {
    let name = asked_by().unwrap_or(ENDPOINTS[1]);
    let mut address = variable(name).unwrap_or_default();
    if name == ENDPOINTS[1] {
        address = format!("{}/v1/traces", address.strip_suffix('/').unwrap_or(&address));
    }
    let url = Url::parse(&address).ok();
    url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| unusable_endpoint(name))
}

fn unusable_endpoint(name: &str) -> Failure {
    Failure::usage(format!("{name}: expected http://host:port or https://host:port"))
        .with_help("without it nothing is exported; OTEL_SDK_DISABLED=true switches traces off")
}

/// The headers of every delivery. It ignores malformed ones, as other exporters do.
pub(super) fn headers() -> HeaderMap {
    let text = first(HEADERS).map(|(_, text)| text).unwrap_or_default();
    text.split(',').filter_map(header).collect()
}

/// `name=value`, the value percent-encoded.
fn header(pair: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = pair.split_once('=')?;
    let mut value = HeaderValue::from_bytes(&unescaped(value.trim())).ok()?;
    // It is probably a collector's key, and libraries below may log.
    value.set_sensitive(true);
    Some((name.trim().parse().ok()?, value))
}

/// Decodes `%20` and the like; other characters stay.
fn unescaped(text: &str) -> Vec<u8> {
    let mut rest = text.as_bytes();
    let mut plain = Vec::with_capacity(rest.len());
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = after.split_first_chunk().filter(|_| byte == b'%');
        let escaped = escaped.and_then(|(digits, after)| Some((of_hex(digits)?, after)));
        let (byte, after) = escaped.unwrap_or((byte, after));
        plain.push(byte);
        rest = after;
    }
    plain
}

fn of_hex(digits: &[u8; 2]) -> Option<u8> {
    let digits = digits.iter().all(u8::is_ascii_hexdigit).then_some(digits)?;
    u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// The time limit of one delivery.
pub(super) fn timeout() -> Duration {
    let millis = first(TIMEOUTS).and_then(|(_, text)| text.parse().ok());
    millis.map_or(DEFAULT_TIMEOUT, Duration::from_millis)
}

fn first(names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| Some((name, variable(name)?)))
}

/// The sender's attributes: our defaults, overridden by the variables.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_an_escaped_value_and_is_not_shown() {
        let read =
            |pair| header(pair).map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
        let pair = |name: &str, value: &[u8]| Some((name.to_owned(), value.to_vec()));
        assert_eq!(read(" api-key = a%20b=c "), pair("api-key", b"a b=c"));
        assert_eq!(read("x=100%,"), pair("x", b"100%,"));
        assert_eq!(read("x=%+1%zz%C3%BC"), pair("x", "%+1%zz\u{fc}".as_bytes()));
        assert_eq!(read("x=a%0Ab"), None, "no header");
        assert_eq!(read("no pair"), None);
        assert_eq!(read("no name=x"), None);
        assert!(header("x=1").unwrap().1.is_sensitive());
    }
}
