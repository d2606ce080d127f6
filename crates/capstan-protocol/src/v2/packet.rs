//! Packets of profile v2: `{op, p}`, and what else a peer sends along.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::decode::{self, DecodeError};
use crate::error::{self, ErrorDomain};
use crate::event::{self, PresentationEventType, UserError};
use crate::json::{RawObject, kind_of};
use crate::packet::{self, Close, Payload, StreamOpCode, not_an_error};
use crate::time::Timestamp;

/// Severities of v2. There is no warning: one is sent as a `user_error` event instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum ErrorSeverity {
    /// Dead.
    Fatal,
    /// Interrupted.
    Transient,
}

/// An error of v2; the same members, other spellings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamError {
    /// Machine-readable, snake_case.
    pub code: String,
    /// For people.
    pub message: String,
    /// The stream's next step.
    pub severity: ErrorSeverity,
    /// More.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Map<String, Value>>,
}

impl From<StreamError> for error::StreamError {
    fn from(e: StreamError) -> Self {
        let severity = match e.severity {
            ErrorSeverity::Fatal => error::ErrorSeverity::Fatal,
            ErrorSeverity::Transient => error::ErrorSeverity::Transient,
        };
        Self { code: e.code, message: e.message, severity, details: e.details }
    }
}

/// A packet of v2. It has the members beside `op` and `p` only if the peer sends them in a readable
/// form.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamPacket {
    /// The stream.
    pub stream_id: Option<Uuid>,
    /// The place in it.
    pub seq: Option<u64>,
    /// When it was written.
    pub t: Option<Timestamp>,
    /// The content.
    pub payload: Payload,
}

#[derive(Deserialize)]
struct Members {
    op: Op,
    p: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "if_readable")]
    stream_id: Option<Uuid>,
    #[serde(default, deserialize_with = "if_readable")]
    seq: Option<u64>,
    #[serde(default, deserialize_with = "if_readable")]
    t: Option<Timestamp>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    Delta,
    Event,
    Error,
    Close,
}

/// v2 ignores these members, so junk in them is no error.
fn if_readable<'de, D: Deserializer<'de>, T: serde::de::DeserializeOwned>(
    d: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(d)?).ok())
}

impl StreamPacket {
    /// Decodes the JSON text of one packet. A close without `p` is read, too.
    pub fn decode(text: &str) -> Result<Self, DecodeError> {
        let m: Members = decode::from_str(text)?;
        let null = null();
        let payload = payload(m.op, m.p.as_deref().unwrap_or(&null), decode::MAX_DEPTH)?;
        Ok(Self { stream_id: m.stream_id, seq: m.seq, t: m.t, payload })
    }
}

fn null() -> Box<RawValue> {
    serde_json::value::to_raw_value(&()).unwrap_or_default()
}

fn payload(op: Op, raw: &RawValue, depth: usize) -> Result<Payload, DecodeError> {
    let text = raw.get();
    let object = || RawObject::from_raw_within(raw.to_owned(), depth);
    let payload = match (op, text.as_bytes().first()) {
        (Op::Delta, _) => decode::from_str(text).map(Payload::Delta),
        // A string or null is read, though never written: it becomes `{"data": …}` or `{}`.
        (Op::Event, Some(b'"')) => decode::from_str::<String>(text)
            .and_then(|data| RawObject::from_serialize(&json!({ "data": data })))
            .map(Payload::Event),
        (Op::Event, Some(b'n')) => RawObject::parse("{}").map(Payload::Event),
        (Op::Event, _) => object().map(Payload::Event),
        (Op::Error, Some(b'{')) => decode::from_str_within::<StreamError>(text, depth)
            .map(|e| Payload::Error(Box::new(e.into()))),
        (Op::Error, _) => Err(DecodeError::value("", not_an_error(text))),
        (Op::Close, Some(b'"')) => {
            decode::from_str(text).map(|reason| Payload::Close(Close::Reason(reason)))
        }
        (Op::Close, Some(b'{')) => object().map(|report| Payload::Close(Close::Report(report))),
        (Op::Close, Some(b'n')) => Ok(Payload::Close(Close::Unstated)),
        (Op::Close, _) => Err(DecodeError::value(
            "",
            format!("expected a string, an object or null, found {}", kind_of(text)),
        )),
    };
    payload.map_err(|e| e.inside("p"))
}

/// The reference's verdict: `p` must be present, if only as null. The canonical form has only `op`
/// and `p`.
pub(crate) fn canonical(text: &str) -> Result<String, DecodeError> {
    #[derive(Deserialize)]
    struct Strict {
        op: Op,
        p: Box<RawValue>,
    }
    let m: Strict = decode::from_str_within(text, decode::REFERENCE_DEPTH)?;
    let payload = payload(m.op, &m.p, decode::REFERENCE_DEPTH)?;
    let p = match &payload {
        Payload::Error(e) => error_to_v2(e).to_string(),
        Payload::Delta(_) | Payload::Event(_) | Payload::Close(_) => m.p.get().to_owned(),
    };
    let op = payload.op().as_str().to_lowercase();
    Ok(format!(r#"{{"op":"{op}","p":{p}}}"#))
}

impl packet::StreamPacket {
    /// The packet as v2 writes it; `stream_id`, `seq` and `t` are sent along, so that healing works
    /// there, too.
    pub fn to_v2_json(&self) -> String {
        let (op, p) = match &self.payload {
            Payload::Delta(text) => (StreamOpCode::Delta, Value::from(text.as_str()).to_string()),
            Payload::Event(raw) => (StreamOpCode::Event, event_to_v2(raw)),
            Payload::Error(e) if e.severity == error::ErrorSeverity::Warning => {
                (StreamOpCode::Event, self.warning_to_v2(e).to_string())
            }
            Payload::Error(e) => (StreamOpCode::Error, error_to_v2(e).to_string()),
            Payload::Close(Close::Reason(reason)) => {
                (StreamOpCode::Close, Value::from(reason.as_str()).to_string())
            }
            Payload::Close(Close::Report(report)) => (StreamOpCode::Close, report.get().to_owned()),
            Payload::Close(Close::Unstated) => (StreamOpCode::Close, "null".to_owned()),
        };
        let (op, id, seq, t) = (op.as_str().to_lowercase(), self.stream_id, self.seq, self.t);
        let mut out = Vec::new();
        let text = format!(r#"{{"op":"{op}","p":{p},"stream_id":"{id}","seq":{seq},"t":"{t}"}}"#);
        crate::escape::write_json(&mut out, &text);
        String::from_utf8(out).unwrap_or_default()
    }

    /// The event's id follows from the packet's place, so that a replay has the same bytes.
    fn warning_to_v2(&self, e: &error::StreamError) -> Value {
        let user = UserError {
            message: e.message.clone(),
            code: None,
            domain: ErrorDomain::System,
            retryable: false,
        };
        let id = Uuid::from_u128(self.stream_id.as_u128() ^ u128::from(self.seq));
        json!({ "id": id, "timestamp": self.t, "type": event::USER_ERROR, "data": user })
    }
}

fn error_to_v2(e: &error::StreamError) -> Value {
    let mut members = json!({ "code": e.code, "message": e.message,
    "severity": e.severity.as_str().to_lowercase() });
    if let (Some(details), Some(object)) = (&e.details, members.as_object_mut()) {
        object.insert("details".into(), Value::Object(details.clone()));
    }
    members
}

/// Translates events of v1's types. Any other stays unchanged, so that its numbers stay exact.
fn event_to_v2(raw: &RawObject) -> String {
    translate(raw)
        .map_or_else(|| raw.get().to_owned(), |members| Value::Object(members).to_string())
}

/// Types in lower case, citations under `items`; data that the reference would mistake for another
/// block is renamed.
fn translate(raw: &RawObject) -> Option<Map<String, Value>> {
    let mut members = raw.to_map();
    let kind = members.get("type")?.as_str()?.to_owned();
    let known = PresentationEventType::ALL.into_iter().find(|t| t.as_str() == kind);
    let is_mistakable =
        || members.get("data").and_then(Value::as_object).is_some_and(looks_like_a_block);
    if known.is_none() && !(kind == event::USER_ERROR && is_mistakable()) {
        return None;
    }
    members.insert("type".into(), kind.to_lowercase().into());
    if let Some(data) = members.get_mut("data").and_then(Value::as_object_mut) {
        match known {
            Some(PresentationEventType::CitationBlock) => rename(data, "citations", "items"),
            Some(PresentationEventType::ThoughtTrace) => unguess(data, "thought"),
            Some(
                PresentationEventType::ProgressIndicator
                | PresentationEventType::MediaCarousel
                | PresentationEventType::MarkdownBlock,
            ) => {}
            // A user error.
            None => unguess(data, "text"),
        }
    }
    Some(members)
}

/// v2 readers guess a block's type from its members.
fn looks_like_a_block(data: &Map<String, Value>) -> bool {
    let has = |name: &str| data.contains_key(name);
    has("content") || has("items") || has("label") && has("status")
}

/// Removes the members by which v2 readers guess the type, and gives the content another name.
fn unguess(data: &mut Map<String, Value>, content: &str) {
    rename(data, "content", content);
    rename(data, "items", "parts");
    if data.contains_key("label") {
        rename(data, "status", "state");
    }
}

fn rename(data: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = data.get_mut(from).map(Value::take) {
        data.retain(|name, _| name != from);
        data.entry(to).or_insert(value);
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for StreamPacket {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StreamPacket".into()
    }
    // v1's packet has the same name.
    fn schema_id() -> std::borrow::Cow<'static, str> {
        concat!(module_path!(), "::StreamPacket").into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let error = generator.subschema_for::<StreamError>();
        let variant = |op: &str, p: Value| {
            json!({
                "type": "object",
                "properties": { "op": { "const": op }, "p": p },
                "required": ["op", "p"],
            })
        };
        schemars::json_schema!({
            "description": "One packet of a stream (profile v2).",
            "oneOf": [
                variant("delta", json!({ "type": "string" })),
                variant("event", json!({ "type": ["object", "string", "null"] })),
                variant("error", error.to_value()),
                variant("close", json!({ "type": ["object", "string", "null"] })),
            ],
        })
    }
}
