//! Collects the members of an answer that its server needs back in the next turn: reasoning that
//! only it can read, and signatures of calls.

use capstan_agent::Output;
use serde_json::{Map, Value, json};

use crate::native::Lane;

/// The member of the native part with the members of calls, by the ids of the calls.
pub(super) const CALLS: &str = "calls";
/// The names under which servers send thoughts.
pub(super) const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];
/// A list whose pieces belong together by their index.
pub(super) const DETAILS: &str = "reasoning_details";

/// The members that were collected from the pieces of an answer.
#[derive(Debug, Default)]
pub(super) struct Kept {
    thoughts: Option<&'static str>,
    members: Map<String, Value>,
    calls: Map<String, Value>,
}

impl Kept {
    /// Records the name under which the server sends thoughts.
    pub(super) fn thinks(&mut self, name: &'static str) {
        self.thoughts = Some(name);
    }

    /// Records a member of a piece of the message.
    pub(super) fn member(&mut self, name: &str, value: Value) {
        match (self.members.get_mut(name), value) {
            (Some(Value::Array(known)), Value::Array(more)) if name == DETAILS => {
                more.into_iter().for_each(|piece| add(known, piece));
            }
            (_, value) => {
                self.members.insert(name.to_owned(), value);
            }
        }
    }

    /// Records a member of a piece of a call.
    pub(super) fn call(&mut self, id: &str, name: &str, value: Value) {
        let call = self.calls.entry(id).or_insert_with(|| json!({}));
        if let Value::Object(call) = call {
            merge(call, Map::from_iter([(name.to_owned(), value)]));
        }
    }

    /// Sends the collected members at the end of the answer.
    pub(super) fn send(&mut self, lane: &Lane, out: &mut Vec<Output>) {
        let mut part = std::mem::take(&mut self.members);
        if !self.calls.is_empty() {
            part.insert(CALLS.into(), std::mem::take(&mut self.calls).into());
        }
        // A client that carries them learns whose they are.
        let thoughts = self.thoughts;
        if let Some(name) = thoughts {
            part.insert(name.into(), Value::Null);
        }
        if !part.is_empty() {
            lane.part(&part, thoughts.map(|name| format!("/{name}")).as_deref(), out);
        }
    }
}

/// Adds members to an object, and those of objects within it to them.
pub(super) fn merge(into: &mut Map<String, Value>, members: Map<String, Value>) {
    for (name, value) in members {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(into)), Value::Object(members)) => merge(into, members),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// Adds a piece to a list. It continues the last piece if both have the same type and index.
fn add(known: &mut Vec<Value>, piece: Value) {
    let is_same = |last: &Value, piece: &Value| {
        ["type", "index"].iter().all(|name| last.get(name) == piece.get(name))
            && piece.get("index").is_some()
    };
    match (known.last_mut(), piece) {
        (Some(last), piece) if is_same(last, &piece) => join(last, piece),
        (_, piece) => known.push(piece),
    }
}

fn join(last: &mut Value, piece: Value) {
    let (Value::Object(last), Value::Object(piece)) = (last, piece) else { return };
    for (name, value) in piece {
        let is_text = matches!(name.as_str(), "text" | "summary" | "data");
        match (last.get_mut(&name), value) {
            (Some(Value::String(known)), Value::String(more)) if is_text => known.push_str(&more),
            (Some(_), Value::Null) => {}
            (_, value) => {
                last.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_reasoning_are_joined_by_their_place() {
        let piece = |text: &str, index: u64| {
            let kind = "reasoning.text";
            json!([{ "type": kind, "index": index, "text": text, "signature": null }])
        };
        let mut kept = Kept::default();
        kept.member(DETAILS, piece("Hm", 0));
        kept.member(DETAILS, piece("m.", 0));
        kept.member(DETAILS, piece("Next.", 1));
        let signed = json!([{ "type": "reasoning.text", "index": 1, "signature": "s" }]);
        kept.member(DETAILS, signed);
        let details = &kept.members[DETAILS];
        assert_eq!(details[0]["text"], "Hmm.");
        assert_eq!((&details[1]["text"], &details[1]["signature"]), (&"Next.".into(), &"s".into()));
    }
}
