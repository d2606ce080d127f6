//! The trait of decoders for server-sent events: frames in, outputs or a fault out, no I/O.

use capstan_agent::Output;
use capstan_protocol::fault::Cause;
use capstan_protocol::{Fault, FaultKind};
use serde_json::{Map, Value};

use crate::api_key::ApiKey;
use crate::upstream_failure::UpstreamFailure;

/// What a frame means for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// No part of the answer: a ping, or a beginning.
    Quiet,
    /// A piece of the answer, even if it is not written yet.
    Heard,
    /// The answer is complete; only its usage may follow.
    Ending,
    /// The response is complete.
    Done,
}

/// Decodes one answer.
pub trait Decode: Send {
    /// Takes a frame: the event's name and its data.
    fn frame(&mut self, event: &str, data: &str, out: &mut Vec<Output>) -> Result<Step, Fault>;

    /// Takes an answer that came as one document in place of a stream. `None` if the document is no
    /// answer.
    fn whole(&mut self, _document: &str, _out: &mut Vec<Output>) -> Option<Result<(), Fault>> {
        None
    }

    /// The failure in a document, if this protocol has its own form for it.
    fn refusal(&self, _document: &Value) -> Option<Fault> {
        None
    }

    /// Whether the model is thinking. It may send nothing for minutes.
    fn is_thinking(&self) -> bool {
        false
    }

    /// Whether the protocol's end was seen. A body that ends before it was cut off.
    fn is_complete(&self) -> bool;
}

/// The fault for an event whose name is an error, whatever its data.
pub(crate) fn told(data: &str, secret: &ApiKey) -> Fault {
    let value = serde_json::from_str(data).unwrap_or_else(|_| Value::from(data));
    let told =
        UpstreamFailure::found_in(&value).unwrap_or_else(|| UpstreamFailure::from_error(&value));
    told.to_fault(secret)
}

/// The fault for a stream that ended before its protocol's end.
pub(crate) fn truncated() -> Fault {
    let chain = vec!["the stream ended without its protocol's own finish".into()];
    Fault::new(FaultKind::UpstreamTruncated)
        .with_cause(Cause { error_type: "TruncatedUpstream".into(), chain })
}

/// The fault for a violation of the protocol. Developers see the text.
pub(crate) fn malformed(what: impl Into<String>) -> Fault {
    let cause = Cause { error_type: "MalformedUpstream".into(), chain: vec![what.into()] };
    Fault::new(FaultKind::UpstreamMalformed).with_cause(cause)
}

/// The data of a frame as an object.
pub(crate) fn object(data: &str) -> Result<Map<String, Value>, Fault> {
    match serde_json::from_str(data) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(malformed("a chunk is not an object")),
        Err(error) => Err(malformed(format!("a chunk is not JSON: {error}"))),
    }
}

/// A member that is a non-empty string.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// Null, for members that do not exist.
static NOTHING: Value = Value::Null;

/// A member, or null.
pub(crate) fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&NOTHING)
}
