//! The native lane: `NATIVE` events for what CAP does not have, and the way back into the next
//! request. docs/decisions/0027 has the reasons.

use std::collections::BTreeSet;

use capstan_agent::{Output, Turn, sealed};
use capstan_protocol::{
    Dialect, ErrorSeverity, Fault, FaultKind, NATIVE, NativeEvent, NativeOrigin, NativePart,
    RawJson,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::http;
use crate::provider::Provider;
use crate::request_body::RequestBody;
use crate::thoughts::make;

/// Returns the maker of the reasoning that a provider's model sends.
pub(crate) fn origin(dialect: Dialect, provider: &Provider) -> NativeOrigin {
    let Provider { url, model, account, .. } = provider;
    let provider = format!("{}#{account}", http::host_of(url));
    NativeOrigin { dialect, provider, model: model.clone() }
}

/// Returns the client's request, if the client speaks this protocol.
pub(crate) fn request(turn: &Turn, dialect: Dialect) -> Option<RequestBody> {
    (turn.dialect == Some(dialect)).then(|| RequestBody::from(&*turn.payload))
}

/// Returns the part, if this upstream made it. No other upstream may get it.
pub(crate) fn own(part: &NativePart, origin: Option<&NativeOrigin>) -> Option<Value> {
    origin.filter(|origin| sealed::is_made_by(part, origin)).map(|_| part.to_value())
}

/// The parts of a sealed text that this upstream made.
pub(crate) fn unsealed(text: &str, origin: &NativeOrigin) -> Vec<Value> {
    sealed::open(text).iter().filter_map(|part| own(part, Some(origin))).collect()
}

/// Sends what CAP does not have from a decoder to clients and sessions.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    origin: Option<NativeOrigin>,
    /// The client speaks the provider's protocol, so it gets native events.
    is_followed: bool,
    /// The kinds that were left out for other clients.
    left_out: BTreeSet<String>,
}

impl Lane {
    pub(crate) fn new(origin: NativeOrigin, turn: &Turn) -> Self {
        let is_followed = turn.dialect == Some(origin.dialect);
        Self { origin: Some(origin), is_followed, left_out: BTreeSet::new() }
    }

    /// Whether the client speaks the provider's protocol.
    pub(crate) fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Sends an event, or the rest of one, to a client of the same protocol.
    pub(crate) fn event(&self, event: &impl Serialize, out: &mut Vec<Output>) {
        if let Some(origin) = self.origin.as_ref().filter(|_| self.is_followed) {
            let event = RawJson::from_serialize(event).ok();
            let data = NativeEvent { origin: origin.clone(), event, part: None, text_at: None };
            out.extend(make(NATIVE, &data));
        }
    }

    /// Sends an event of a kind that CAP does not have. Other clients get one warning that names
    /// the kind.
    pub(crate) fn unknown(&mut self, kind: &str, event: &impl Serialize, out: &mut Vec<Output>) {
        if self.is_followed {
            return self.event(event, out);
        }
        if self.origin.is_some() && self.left_out.insert(kind.to_owned()) {
            out.push(left_out(&[format!("the answer's {kind}")]));
        }
    }

    /// Sends a whole part of a kind that CAP does not have.
    pub(crate) fn whole(&mut self, kind: &str, part: &Value, out: &mut Vec<Output>) {
        if !self.is_followed && self.origin.is_some() && self.left_out.insert(kind.to_owned()) {
            out.push(left_out(&[format!("the answer's {kind}")]));
        }
        self.part(part, None, out);
    }

    /// Sends a part that the next turn must bring back. With `text_at`, its text is the thoughts
    /// since the part before.
    pub(crate) fn part(&self, part: &impl Serialize, text_at: Option<&str>, out: &mut Vec<Output>) {
        if let Some(origin) = self.origin.clone() {
            let (part, text_at) = (RawJson::from_serialize(part).ok(), text_at.map(str::to_owned));
            out.extend(make(NATIVE, &NativeEvent { origin, event: None, part, text_at }));
        }
    }
}

/// Returns an object without these members.
pub(crate) fn without(object: &Value, names: &[&str]) -> Map<String, Value> {
    let members = object.as_object().into_iter().flatten();
    let kept = members.filter(|(name, _)| !names.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Whether an object has other members than these.
pub(crate) fn has_others(object: &Value, names: &[&str]) -> bool {
    without(object, names).values().any(|value| !value.is_null())
}

/// Returns the warning that names what could not be translated.
pub(crate) fn left_out(names: &[String]) -> Output {
    let message = format!("Left out, since this agent has no word for it: {}.", names.join(", "));
    not_translated(message, "left_out", json!(names))
}

/// Returns the warning that names a value which the agent gets in place of another one.
pub(crate) fn changed(name: &str, asked: &str, sent: &str) -> Output {
    let message = format!("This agent has no {name} {asked:?}. It gets {sent:?}.");
    not_translated(message, "changed", json!({ name: sent }))
}

fn not_translated(message: String, detail: &str, value: Value) -> Output {
    let fault = Fault::new(FaultKind::NotTranslated)
        .with_severity(ErrorSeverity::Warning)
        .with_message(message)
        .with_detail(detail, value);
    Output::Warning(Box::new(fault.to_stream_error(Default::default())))
}
