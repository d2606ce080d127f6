//! Stream packets (profile v1): `{stream_id, seq, op, t, p}`.
//!
//! The payload's type decides the op, so a packet with a mismatched payload cannot exist: there is
//! no way to put a string into an ERROR.

mod fast;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::cursor::Cursor;
use crate::decode::{self, DecodeError};
use crate::error::StreamError;
use crate::escape;
use crate::json::{RawObject, kind_of};
use crate::time::Timestamp;

/// The purpose of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "UPPERCASE")]
pub enum StreamOpCode {
    /// A piece of text.
    Delta,
    /// A presentation event.
    Event,
    /// A [`StreamError`].
    Error,
    /// The end of the stream.
    Close,
}

impl StreamOpCode {
    /// Every op.
    pub const ALL: [Self; 4] = [Self::Delta, Self::Event, Self::Error, Self::Close];

    /// The spelling on the wire (v1).
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delta => "DELTA",
            Self::Event => "EVENT",
            Self::Error => "ERROR",
            Self::Close => "CLOSE",
        }
    }
}

impl fmt::Display for StreamOpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The end of a stream: the payload of CLOSE.
#[derive(Debug, Clone, PartialEq)]
pub enum Close {
    /// A word such as `completed`, `cancelled` or `length`.
    Reason(String),
    /// An object; see [`CloseReport`] for the members that Capstan writes.
    Report(RawObject),
    /// No reason. Only profile v2 has this; v1 writes it as `completed`.
    Unstated,
}

impl Close {
    /// The plain good end.
    pub const COMPLETED: &str = "completed";
    /// The run was stopped on purpose.
    pub const CANCELLED: &str = "cancelled";
    /// The run ends with questions, which the INTERRUPT events before it hold.
    pub const INTERRUPT: &str = "interrupt";

    /// The reason, wherever it stands.
    pub fn reason(&self) -> String {
        match self {
            Self::Reason(reason) => reason.clone(),
            Self::Report(report) => report
                .to_map()
                .get("reason")
                .and_then(Value::as_str)
                .map_or_else(|| Self::COMPLETED.to_owned(), str::to_owned),
            Self::Unstated => Self::COMPLETED.to_owned(),
        }
    }
}

/// The object that CLOSE carries when there is more to report than a reason (an extension).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CloseReport {
    /// Why the stream ended.
    pub reason: String,
    /// The agent that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The member of a route that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// The model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The number of attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// The number of calls of upstreams, over all attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// Tokens and the like, as the agent counted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Map<String, Value>>,
    /// The same by the members of a route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_by_member: Option<Map<String, Value>>,
}

/// The content of a packet.
///
/// An ERROR cannot be made of a string:
///
/// ```compile_fail
/// let payload = capstan_protocol::Payload::Error("Error: Rate limit exceeded".into());
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// Text, may be empty.
    Delta(String),
    /// Any object, unchanged; [`Event`](crate::Event) offers the typed view.
    Event(RawObject),
    /// A typed error. Boxed: it is rare and large, and every packet would have to be as large.
    Error(Box<StreamError>),
    /// The end.
    Close(Close),
}

impl Payload {
    /// The op that goes with this payload.
    pub fn op(&self) -> StreamOpCode {
        match self {
            Self::Delta(_) => StreamOpCode::Delta,
            Self::Event(_) => StreamOpCode::Event,
            Self::Error(_) => StreamOpCode::Error,
            Self::Close(_) => StreamOpCode::Close,
        }
    }

    /// Checks the JSON text of `p` against its op.
    fn decode(op: StreamOpCode, raw: &RawValue, depth: usize) -> Result<Self, DecodeError> {
        let text = raw.get();
        let object = || RawObject::from_raw_within(raw.to_owned(), depth);
        let payload = match op {
            StreamOpCode::Delta => decode::from_str(text).map(Self::Delta),
            StreamOpCode::Event => object().map(Self::Event),
            StreamOpCode::Error if !text.starts_with('{') => {
                Err(DecodeError::value("", not_an_error(text)))
            }
            StreamOpCode::Error if depth > decode::MAX_DEPTH => {
                decode::from_str_within(text, depth).map(Self::Error)
            }
            StreamOpCode::Error => decode::from_str(text).map(Self::Error),
            StreamOpCode::Close if text.starts_with('"') => {
                decode::from_str(text).map(|reason| Self::Close(Close::Reason(reason)))
            }
            StreamOpCode::Close if text.starts_with('{') => {
                object().map(|report| Self::Close(Close::Report(report)))
            }
            StreamOpCode::Close => Err(DecodeError::value(
                "",
                format!("expected a string or an object, found {}", kind_of(text)),
            )),
        };
        payload.map_err(|e| e.inside("p"))
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Delta(text) => escape::write_string(out, text),
            Self::Event(event) => escape::write_json(out, event.get()),
            Self::Error(error) => {
                escape::write_json(out, &serde_json::to_string(error).unwrap_or_default())
            }
            Self::Close(Close::Reason(reason)) => escape::write_string(out, reason),
            Self::Close(Close::Report(report)) => escape::write_json(out, report.get()),
            Self::Close(Close::Unstated) => escape::write_string(out, Close::COMPLETED),
        }
    }
}

/// RFC 005's first and third rule, with the way out.
pub(crate) fn not_an_error(text: &str) -> String {
    format!(
        "expected a StreamError object {{code, message, severity, details?}}, found {}",
        kind_of(text)
    )
}

/// One packet of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamPacket {
    /// The stream.
    pub stream_id: Uuid,
    /// The place in the stream: 1, 2, 3, … without gaps.
    pub seq: u64,
    /// When it was written. May step back; order is `seq`'s.
    pub t: Timestamp,
    /// The content; [`Self::op`] follows from it.
    pub payload: Payload,
}

/// The members as they stand on the wire, `p` not looked into yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Members<P, S> {
    pub(crate) stream_id: Uuid,
    pub(crate) seq: S,
    pub(crate) op: StreamOpCode,
    pub(crate) t: Timestamp,
    pub(crate) p: P,
}

impl StreamPacket {
    /// The op.
    pub fn op(&self) -> StreamOpCode {
        self.payload.op()
    }

    /// The place right after this packet.
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.stream_id, self.seq)
    }

    /// Decodes the JSON text of one packet, strictly.
    pub fn decode(text: &str) -> Result<Self, DecodeError> {
        match fast::decode(text) {
            Some(packet) => Ok(packet),
            None => Self::decode_strict(text),
        }
    }

    /// [`Self::decode`] without the short cut for frames as our encoder writes them. Same result,
    /// slower.
    pub fn decode_strict(text: &str) -> Result<Self, DecodeError> {
        match decode::quick::<Members<&RawValue, u64>>(text) {
            Some(m) => Self::from_members(m.stream_id, m.seq, m.op, m.t, m.p),
            None => {
                let m: Members<Box<RawValue>, u64> = decode::from_str(text)?;
                Self::from_members(m.stream_id, m.seq, m.op, m.t, &m.p)
            }
        }
    }

    fn from_members(
        stream_id: Uuid,
        seq: u64,
        op: StreamOpCode,
        t: Timestamp,
        p: &RawValue,
    ) -> Result<Self, DecodeError> {
        Ok(Self { stream_id, seq, t, payload: Payload::decode(op, p, decode::MAX_DEPTH)? })
    }

    /// The canonical JSON text, on one line, safe inside an SSE `data:` field.
    pub fn to_json(&self) -> String {
        let mut out = Vec::new();
        self.write_json(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    /// Appends [`Self::to_json`] to `out`.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        write_members(out, self.stream_id, self.seq, self.t, &self.payload);
    }
}

/// The one place where v1 packets are written; member order and spacing are what [`fast`] expects.
fn write_members(
    out: &mut Vec<u8>,
    stream_id: Uuid,
    seq: impl itoa::Integer,
    t: Timestamp,
    payload: &Payload,
) {
    out.extend_from_slice(b"{\"stream_id\":\"");
    out.extend_from_slice(
        stream_id.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()).as_bytes(),
    );
    out.extend_from_slice(b"\",\"seq\":");
    out.extend_from_slice(itoa::Buffer::new().format(seq).as_bytes());
    out.extend_from_slice(b",\"op\":\"");
    out.extend_from_slice(payload.op().as_str().as_bytes());
    out.extend_from_slice(b"\",\"t\":\"");
    t.write(out);
    out.extend_from_slice(b"\",\"p\":");
    payload.write(out);
    out.push(b'}');
}

/// The verdict of the data contract's reference on a packet: it knows no bound for `seq`, not even
/// zero, and reads deeper than we do.
pub(crate) fn canonical(text: &str) -> Result<String, DecodeError> {
    let m: Members<Box<RawValue>, i128> = decode::from_str_within(text, decode::REFERENCE_DEPTH)?;
    let payload = Payload::decode(m.op, &m.p, decode::REFERENCE_DEPTH)?;
    let mut out = Vec::new();
    write_members(&mut out, m.stream_id, m.seq, m.t, &payload);
    Ok(String::from_utf8(out).unwrap_or_default())
}

impl Serialize for StreamPacket {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(self.to_json()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for StreamPacket {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let m = Members::<Box<RawValue>, u64>::deserialize(decode::Objects(deserializer))?;
        Self::from_members(m.stream_id, m.seq, m.op, m.t, &m.p).map_err(decode::nested)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for StreamPacket {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StreamPacket".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let error = generator.subschema_for::<StreamError>();
        let object = generator.subschema_for::<RawObject>();
        let variant = |op: &str, p: Value| {
            serde_json::json!({
                "type": "object",
                "properties": {
                    "stream_id": { "type": "string", "format": "uuid" },
                    "seq": { "type": "integer", "minimum": 0 },
                    "op": { "const": op },
                    "t": { "type": "string", "format": "date-time" },
                    "p": p,
                },
                "required": ["stream_id", "seq", "op", "t", "p"],
                "additionalProperties": false,
            })
        };
        let string = serde_json::json!({ "type": "string" });
        schemars::json_schema!({
            "description": "One packet of a stream (profile v1).",
            "oneOf": [
                variant("DELTA", string.clone()),
                variant("EVENT", object.clone().to_value()),
                variant("ERROR", error.to_value()),
                variant("CLOSE", serde_json::json!({ "anyOf": [string, object] })),
            ],
        })
    }
}
