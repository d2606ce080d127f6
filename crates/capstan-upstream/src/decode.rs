//! What a decoder of server-sent events is: frames in, outputs or a fault out, no I/O.

use capstan_agent::Output;
use capstan_protocol::fault::Cause;
use capstan_protocol::{Fault, FaultKind};
use serde_json::{Map, Value};

use crate::api_key::ApiKey;
use crate::upstream_failure::UpstreamFailure;

/// What a frame meant for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Nothing of the answer: a ping, a beginning.
    Quiet,
    /// A piece of the answer, even if it is not written yet.
    Heard,
    /// The answer is complete by its protocol's own finish; only its usage may follow.
    Ending,
    /// All is said.
    Done,
}

/// Reads one answer.
pub trait Decode: Send {
    /// Takes a frame: the event's name and its data.
    fn frame(&mut self, event: &str, data: &str, out: &mut Vec<Output>) -> Result<Step, Fault>;

    /// Takes an answer that came as one document, though a stream was asked for; nothing if the
    /// document is none.
    fn whole(&mut self, _document: &str, _out: &mut Vec<Output>) -> Option<Result<(), Fault>> {
        None
    }

    /// The failure that a document tells of in a way that is this protocol's alone.
    fn refusal(&self, _document: &Value) -> Option<Fault> {
        None
    }

    /// Whether the model thinks just now. It may show nothing of that for minutes.
    fn is_thinking(&self) -> bool {
        false
    }

    /// Whether the protocol's own finish was seen. A body that ends before it was cut off.
    fn is_complete(&self) -> bool;
}

/// An event that is called an error, whatever its data looks like.
pub(crate) fn told(data: &str, secret: &ApiKey) -> Fault {
    let value = serde_json::from_str(data).unwrap_or_else(|_| Value::from(data));
    let told =
        UpstreamFailure::found_in(&value).unwrap_or_else(|| UpstreamFailure::from_error(&value));
    told.to_fault(secret)
}

/// The stream ended without its protocol's own finish.
pub(crate) fn truncated() -> Fault {
    let chain = vec!["the stream ended without its protocol's own finish".into()];
    Fault::new(FaultKind::UpstreamTruncated)
        .with_cause(Cause { error_type: "TruncatedUpstream".into(), chain })
}

/// The upstream broke its protocol; the words say how, for developers.
pub(crate) fn malformed(what: impl Into<String>) -> Fault {
    let cause = Cause { error_type: "MalformedUpstream".into(), chain: vec![what.into()] };
    Fault::new(FaultKind::UpstreamMalformed).with_cause(cause)
}

/// A frame's data as an object.
pub(crate) fn object(data: &str) -> Result<Map<String, Value>, Fault> {
    match serde_json::from_str(data) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(malformed("a chunk is not an object")),
        Err(error) => Err(malformed(format!("a chunk is not JSON: {error}"))),
    }
}

/// A member that is a string with something in it.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str().filter(|text| !text.is_empty())
}

/// What stands where nothing does.
static NOTHING: Value = Value::Null;

/// A member, or null.
pub(crate) fn member<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&NOTHING)
}
