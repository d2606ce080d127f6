//! Reasoning that the client of a chat sends back: unchanged, or sealed. A sealed part is a member
//! of the call that follows it, or of the message. SDKs send both members back unchanged.

use capstan_agent::sealed::{self, Sealer};
use capstan_protocol::{Dialect, NativeEvent, Part, RawJson};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::content::opened;
use super::super::native::Native;
use super::super::output::Output;

/// The members of an answer that the client has to send back.
pub(super) struct Carried<'a> {
    native: Option<&'a Native>,
    details: Vec<String>,
    /// The sealed parts of calls.
    calls: Vec<(String, Vec<String>)>,
}

impl<'a> Carried<'a> {
    pub(super) fn of(output: &'a Output, mut sealer: Sealer) -> Self {
        let is_sealed = output.native.origin().is_some_and(|origin| sealer.seals(origin));
        let native = (!is_sealed).then_some(&output.native);
        let mut carried = Self { native, details: Vec::new(), calls: Vec::new() };
        let mut thoughts = output.thoughts.iter().peekable();
        for (seq, part) in &output.parts {
            while let Some(thought) = thoughts.next_if(|thought| thought.seq < *seq) {
                sealer.thought(&thought.text);
            }
            let call = first_call(part).or(output.call_behind(*seq).map(str::to_owned));
            if let Some(sealed) = sealer.seal(part.clone()) {
                carried.add(call, sealed);
            }
        }
        carried
    }

    fn add(&mut self, call: Option<String>, sealed: String) {
        let Some(call) = call else { return self.details.push(sealed) };
        match self.calls.iter_mut().find(|(id, _)| *id == call) {
            Some((_, all)) => all.push(sealed),
            None => self.calls.push((call, vec![sealed])),
        }
    }

    /// The members of the message.
    pub(super) fn of_message(&self) -> Map<String, Value> {
        let mut members = self.native.map(Native::of_message).unwrap_or_default();
        let detail = |(index, data)| {
            json!({ "type": "reasoning.encrypted", "format": "capstan", "index": index,
                "data": data })
        };
        if !self.details.is_empty() {
            let details: Vec<Value> = self.details.iter().enumerate().map(detail).collect();
            members.insert("reasoning_details".into(), details.into());
        }
        members
    }

    /// The members of a call.
    pub(super) fn of_call(&self, id: &str) -> Map<String, Value> {
        let mut members = self.native.map(|native| native.of_call(id)).unwrap_or_default();
        if let Some((_, sealed)) = self.calls.iter().find(|(call, _)| call == id) {
            let extra = json!({ "google": { "thought_signature": sealed::join(sealed) } });
            members.insert("extra_content".into(), extra);
        }
        members
    }
}

/// The first call for which a part of a chat has members.
fn first_call(native: &NativeEvent) -> Option<String> {
    #[derive(Deserialize)]
    struct OfCalls {
        calls: Map<String, Value>,
    }
    let part = native.part.as_ref().filter(|_| native.origin.dialect == Dialect::OpenaiChat)?;
    part.decode::<OfCalls>().ok()?.calls.keys().next().cloned()
}

/// The sealed parts of a message in a request.
pub(super) fn of_message(details: Option<&RawJson>) -> Vec<Part> {
    #[derive(Deserialize)]
    struct Detail {
        data: Option<String>,
    }
    let details: Option<Vec<Detail>> = details.and_then(|details| details.decode().ok());
    let data = details.into_iter().flatten().filter_map(|detail| detail.data);
    data.flat_map(|data| opened(Some(&data))).collect()
}

/// The sealed parts of a call in a request.
pub(super) fn of_call(extra: Option<&RawJson>) -> Vec<Part> {
    let extra = extra.map(RawJson::to_value).unwrap_or_default();
    opened(extra.pointer("/google/thought_signature").and_then(Value::as_str))
}
