//! Spans as OTLP's protobuf messages. They are few and only written, so generated code would not
//! pay for its crates. Tests read them with the published types.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{Event, Link, SpanContext, SpanId, SpanKind, Status};
use opentelemetry::{Key, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;

/// `ExportTraceServiceRequest`: spans of one sender and one scope.
pub(super) fn request(resource: &Resource, scope: &str, spans: &[SpanData]) -> Vec<u8> {
    let mut out = Message::default();
    out.message(1, |out| {
        out.message(1, |out| resource.iter().for_each(|(key, value)| out.attribute(1, key, value)));
        out.message(2, |out| {
            out.message(1, |out| out.text(1, scope));
            spans.iter().for_each(|data| out.message(2, |out| span(out, data)));
        });
    });
    out.0
}

fn span(out: &mut Message, span: &SpanData) {
    context(out, &span.span_context);
    if span.parent_span_id != SpanId::INVALID {
        out.bytes(4, &span.parent_span_id.to_bytes());
    }
    out.text(5, &span.name);
    out.number(6, kind(&span.span_kind));
    out.fixed64(7, nanos(span.start_time));
    out.fixed64(8, nanos(span.end_time));
    out.attributes(9, &span.attributes);
    out.number(10, span.dropped_attributes_count.into());
    span.events.iter().for_each(|span_event| out.message(11, |out| event(out, span_event)));
    out.number(12, span.events.dropped_count.into());
    span.links.iter().for_each(|other| out.message(13, |out| link(out, other)));
    out.number(14, span.links.dropped_count.into());
    out.message(15, |out| status(out, &span.status));
    out.fixed32(16, flags(&span.span_context, span.parent_span_is_remote));
}

fn event(out: &mut Message, event: &Event) {
    out.fixed64(1, nanos(event.timestamp));
    out.text(2, &event.name);
    out.attributes(3, &event.attributes);
    out.number(4, event.dropped_attributes_count.into());
}

fn link(out: &mut Message, link: &Link) {
    context(out, &link.span_context);
    out.attributes(4, &link.attributes);
    out.number(5, link.dropped_attributes_count.into());
    out.fixed32(6, flags(&link.span_context, link.span_context.is_remote()));
}

fn status(out: &mut Message, status: &Status) {
    match status {
        Status::Unset => {}
        Status::Ok => out.number(3, 1),
        Status::Error { description } => {
            out.text(2, description);
            out.number(3, 2);
        }
    }
}

/// Writes the ids and the state, which have the same field numbers in spans and links.
fn context(out: &mut Message, context: &SpanContext) {
    out.bytes(1, &context.trace_id().to_bytes());
    out.bytes(2, &context.span_id().to_bytes());
    out.text(3, &context.trace_state().header());
}

fn kind(kind: &SpanKind) -> u64 {
    match kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
        SpanKind::Producer => 4,
        SpanKind::Consumer => 5,
    }
}

/// The trace flags, and whether the other span is remote. A flag of its own says that this is
/// known.
fn flags(context: &SpanContext, is_remote: bool) -> u32 {
    const KNOWN: u32 = 0x100;
    const REMOTE: u32 = 0x200;
    u32::from(context.trace_flags().to_u8()) | KNOWN | if is_remote { REMOTE } else { 0 }
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// A message during writing. It omits default values, as the encoding requires.
#[derive(Default)]
struct Message(Vec<u8>);

/// The wire type of a field's value.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn key(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn delimited(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.delimited(field, bytes);
        }
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn number(&mut self, field: u64, number: u64) {
        if number != 0 {
            self.key(field, VARINT);
            self.varint(number);
        }
    }

    fn fixed32(&mut self, field: u64, number: u32) {
        self.key(field, FIXED32);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed64(&mut self, field: u64, number: u64) {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes a nested message, even if it is empty.
    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.delimited(field, &inner.0);
    }

    fn attributes(&mut self, field: u64, pairs: &[KeyValue]) {
        pairs.iter().for_each(|pair| self.attribute(field, &pair.key, &pair.value));
    }

    fn attribute(&mut self, field: u64, key: &Key, value: &Value) {
        self.message(field, |out| {
            out.text(1, key.as_str());
            out.message(2, |out| out.value(value));
        });
    }

    /// Writes one alternative of a `oneof`. Its presence matters, so it also writes default values.
    fn value(&mut self, value: &Value) {
        match value {
            Value::Bool(is_so) => {
                self.key(2, VARINT);
                self.varint((*is_so).into());
            }
            Value::I64(number) => {
                self.key(3, VARINT);
                self.varint(number.cast_unsigned());
            }
            Value::F64(number) => self.fixed64(4, number.to_bits()),
            // Our spans have no lists.
            Value::String(_) | Value::Array(_) | _ => self.delimited(1, value.as_str().as_bytes()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use opentelemetry::trace::{TraceFlags, TraceId, TraceState};
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
    use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};
    use prost::Message as _;

    use super::*;

    fn somewhere(state: &str, is_remote: bool) -> SpanContext {
        let state = state.parse::<TraceState>().unwrap();
        SpanContext::new(TraceId::from(7), SpanId::from(9), TraceFlags::SAMPLED, is_remote, state)
    }

    fn bare() -> SpanData {
        SpanData {
            span_context: somewhere("", false),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: "".into(),
            start_time: UNIX_EPOCH,
            end_time: UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: opentelemetry::InstrumentationScope::builder("here").build(),
        }
    }

    /// A span with every field.
    fn full(kind: SpanKind, status: Status) -> SpanData {
        let pairs = || {
            vec![
                KeyValue::new("text", "süß".repeat(100)),
                KeyValue::new("empty", ""),
                KeyValue::new("yes", true),
                KeyValue::new("no", false),
                KeyValue::new("least", i64::MIN),
                KeyValue::new("none", 0),
                KeyValue::new("part", -0.5),
            ]
        };
        let time = UNIX_EPOCH + std::time::Duration::from_nanos(1_700_000_000_123_456_789);
        let mut span = SpanData {
            span_context: somewhere("a=1,b=2", false),
            parent_span_id: SpanId::from(3),
            parent_span_is_remote: true,
            span_kind: kind,
            name: "chat x".into(),
            start_time: time,
            end_time: time + std::time::Duration::from_micros(5),
            attributes: pairs(),
            dropped_attributes_count: 300,
            status,
            ..bare()
        };
        span.events.events = vec![Event::new("told", time, pairs(), 1)];
        span.events.dropped_count = 2;
        span.links.links = vec![
            Link::new(somewhere("c=3", true), pairs(), 4),
            Link::new(somewhere("", false), vec![], 0),
        ];
        span.links.dropped_count = 5;
        span
    }

    #[test]
    fn the_published_types_read_what_their_own_code_would_have_written() {
        let resource =
            Resource::builder_empty().with_attributes([KeyValue::new("service.name", "x")]).build();
        let spans = vec![
            bare(),
            full(SpanKind::Client, Status::error("it broke")),
            full(SpanKind::Server, Status::Ok),
            full(SpanKind::Producer, Status::Unset),
            full(SpanKind::Consumer, Status::error("")),
        ];
        let ours = ExportTraceServiceRequest::decode(&*request(&resource, "here", &spans)).unwrap();
        let resource_spans = group_spans_by_resource_and_scope(spans, &(&resource).into());
        assert_eq!(ours, ExportTraceServiceRequest { resource_spans });
    }
}
