//! An OTLP collector: what it was sent, as spans, as a tree in text, and as the bytes that they
//! came in.

use std::collections::BTreeMap;

use hyper::Response;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::serve::peer::Peer;

pub(crate) struct Collector {
    pub(crate) peer: Peer,
}

pub(crate) type Attributes = BTreeMap<String, String>;

impl Collector {
    pub(crate) async fn start() -> Self {
        Self { peer: Peer::start(|_| async { Response::default() }).await }
    }

    /// The received exports.
    fn exports(&self) -> Vec<ExportTraceServiceRequest> {
        let decode = |body| ExportTraceServiceRequest::decode(body).unwrap();
        self.peer.seen().into_iter().map(|seen| decode(seen.body)).collect()
    }

    /// All exports as text.
    pub(crate) fn text(&self) -> String {
        self.peer
            .seen()
            .iter()
            .map(|seen| String::from_utf8_lossy(&seen.body).into_owned())
            .collect()
    }

    pub(crate) fn resource(&self) -> Attributes {
        let exports = self.exports();
        attributes(&exports[0].resource_spans[0].resource.as_ref().unwrap().attributes)
    }

    /// Every span, oldest first.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let resources = self.exports().into_iter().flat_map(|export| export.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        let mut spans: Vec<Span> = scopes.flat_map(|scope| scope.spans).collect();
        spans.sort_by_key(|span| span.start_time_unix_nano);
        spans
    }

    /// The spans of one trace as lines, each below its parent: name, kind, how it ended.
    pub(crate) fn tree(&self, trace: &str) -> Vec<String> {
        let spans: Vec<Span> =
            self.spans().into_iter().filter(|span| hex(&span.trace_id) == trace).collect();
        let is_root =
            |span: &&Span| !spans.iter().any(|other| other.span_id == span.parent_span_id);
        spans.iter().filter(is_root).flat_map(|root| below(root, &spans, 0)).collect()
    }
}

fn below(span: &Span, spans: &[Span], depth: usize) -> Vec<String> {
    let kind = span.kind().as_str_name().trim_start_matches("SPAN_KIND_").to_lowercase();
    let status = span.status.clone().unwrap_or_default();
    let status = match status.code().as_str_name() {
        "STATUS_CODE_UNSET" => "unset".to_owned(),
        code => format!("{code} {}", status.message),
    };
    let line = format!("{}{} {kind}: {status}", "  ".repeat(depth), span.name);
    let children = spans.iter().filter(|other| other.parent_span_id == span.span_id);
    std::iter::once(line).chain(children.flat_map(|child| below(child, spans, depth + 1))).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn attributes(pairs: &[KeyValue]) -> Attributes {
    pairs.iter().map(|pair| (pair.key.clone(), value(pair.value.as_ref()))).collect()
}

/// Numbers keep a mark, to distinguish them from text.
fn value(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => format!("#{number}"),
        other => format!("{other:?}"),
    }
}
