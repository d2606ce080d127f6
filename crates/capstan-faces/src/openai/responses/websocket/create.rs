//! Turns a `response.create` frame into the body of a POST, with the memory of its connection.

use std::collections::BTreeMap;

use capstan_engine::limits::MemoryReservation;
use capstan_protocol::DecodeError;
use serde_json::json;
use serde_json::value::RawValue;

use super::super::PREVIOUS;

type Members = BTreeMap<String, Box<RawValue>>;

/// The last answer of a connection.
pub(super) struct Memory {
    pub(super) id: String,
    /// All items of the conversation, with commas between them.
    pub(super) items: String,
    /// Whether the journal stores the answer.
    pub(super) is_stored: bool,
    /// The memory that it takes.
    pub(super) _load: MemoryReservation,
}

/// A frame that was read.
#[derive(Debug)]
pub(super) struct Create {
    /// The body of the POST.
    pub(super) body: Vec<u8>,
    /// All items of the conversation including the frame's; `None` if the connection does not know
    /// all of them.
    pub(super) items: Option<String>,
    /// False for a warm-up, which the connection only remembers.
    pub(super) generates: bool,
    /// Whether the journal stores the answer.
    pub(super) is_stored: bool,
    /// The agent.
    pub(super) model: Option<String>,
    /// The id of the answer that the frame continues; empty if there is none.
    pub(super) previous: String,
}

impl Create {
    /// Reads a frame. If it continues the remembered answer, its input becomes the whole
    /// conversation, unless the journal has that answer.
    pub(super) fn read(frame: &str, memory: Option<&Memory>) -> Result<Self, DecodeError> {
        let mut members: Members = serde_json::from_str(frame)
            .map_err(|error| DecodeError::value("document", error.to_string()))?;
        let kind = take::<String>(&mut members, "type", "a string")?;
        if kind.as_deref() != Some("response.create") {
            return Err(DecodeError::value("type", "must be response.create"));
        }
        let generates = take::<bool>(&mut members, "generate", "true or false")?.unwrap_or(true);
        if take::<bool>(&mut members, "background", "true or false")? == Some(true) {
            return Err(DecodeError::value("background", "has no meaning on a WebSocket"));
        }
        let is_stored = look::<bool>(&members, "store", "true or false")?.unwrap_or(true);
        let model = look::<String>(&members, "model", "a string")?;
        let previous = look::<String>(&members, PREVIOUS, "a string")?;
        let own = items_of(&members)?;
        let remembered = memory.filter(|memory| Some(&memory.id) == previous.as_ref());
        let items = match (&previous, remembered) {
            (None, _) => Some(own),
            (Some(_), Some(memory)) => Some(joined(&memory.items, &own)),
            (Some(_), None) => None,
        };
        if let (Some(memory), Some(items)) = (remembered, &items)
            && !(memory.is_stored && is_stored)
        {
            members.remove(PREVIOUS);
            members.insert("input".into(), raw(format!("[{items}]"))?);
        }
        members.insert("stream".into(), raw("true".into())?);
        let body = serde_json::to_vec(&members)
            .map_err(|error| DecodeError::value("document", error.to_string()))?;
        let previous = previous.unwrap_or_default();
        Ok(Self { body, items, generates, is_stored, model, previous })
    }
}

/// Joins two lists of items.
pub(super) fn joined(before: &str, after: &str) -> String {
    let comma = if before.is_empty() || after.is_empty() { "" } else { "," };
    [before, comma, after].concat()
}

fn look<T: serde::de::DeserializeOwned>(
    members: &Members,
    name: &'static str,
    what: &str,
) -> Result<Option<T>, DecodeError> {
    let Some(value) = members.get(name) else { return Ok(None) };
    serde_json::from_str(value.get())
        .map_err(|_| DecodeError::value(name, format!("must be {what}")))
}

fn take<T: serde::de::DeserializeOwned>(
    members: &mut Members,
    name: &'static str,
    what: &str,
) -> Result<Option<T>, DecodeError> {
    let taken = look(members, name, what);
    members.remove(name);
    taken
}

/// The items of the input. A text becomes the message of a user.
fn items_of(members: &Members) -> Result<String, DecodeError> {
    let Some(input) = members.get("input").map(|input| input.get().trim()) else {
        return Ok(String::new());
    };
    if let Some(items) = input.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return Ok(items.trim().to_owned());
    }
    match serde_json::from_str::<Option<String>>(input) {
        Ok(None) => Ok(String::new()),
        Ok(Some(text)) => {
            Ok(json!({ "type": "message", "role": "user", "content": text }).to_string())
        }
        Err(_) => Err(DecodeError::value("input", "must be a string or a list of items")),
    }
}

fn raw(text: String) -> Result<Box<RawValue>, DecodeError> {
    RawValue::from_string(text).map_err(|error| DecodeError::value("input", error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_engine::Engine;
    use capstan_journal::{Journal, MemoryStore, TailLimits};
    use serde_json::Value;

    use super::*;

    fn memory(is_stored: bool) -> Memory {
        let journal = Journal::new(Arc::new(MemoryStore::default()), TailLimits::default());
        let _load = Engine::builder(journal).build().reserve("t");
        Memory { id: "resp_1".into(), items: r#"{"a":1},{"b":2}"#.into(), is_stored, _load }
    }

    fn read(frame: &Value, memory: Option<&Memory>) -> (Value, Option<String>) {
        let create = Create::read(&frame.to_string(), memory).unwrap();
        (serde_json::from_slice(&create.body).unwrap(), create.items)
    }

    #[test]
    fn input_after_an_unstored_answer_is_the_whole_conversation() {
        let frame = json!({ "type": "response.create", "store": false, "model": "m",
            "previous_response_id": "resp_1", "input": [{ "c": 3 }] });
        let (body, items) = read(&frame, Some(&memory(false)));
        let all = json!([{ "a": 1 }, { "b": 2 }, { "c": 3 }]);
        assert_eq!(body, json!({ "store": false, "model": "m", "stream": true, "input": all }));
        assert_eq!(items.unwrap(), r#"{"a":1},{"b":2},{"c":3}"#);
    }

    #[test]
    fn stored_answers_are_left_to_the_journal() {
        let frame = |id: &str| {
            let kind = "response.create";
            json!({ "type": kind, "previous_response_id": id, "input": "Hi" })
        };
        let (body, items) = read(&frame("resp_1"), Some(&memory(true)));
        assert_eq!(
            (&body["previous_response_id"], &body["input"]),
            (&"resp_1".into(), &"Hi".into())
        );
        assert!(items.unwrap().starts_with(r#"{"a":1},{"b":2},{"#));
        let (body, items) = read(&frame("resp_2"), Some(&memory(false)));
        assert_eq!((&body["previous_response_id"], items), (&"resp_2".into(), None));
    }

    #[test]
    fn wrong_frames_are_refused_with_the_member() {
        for (frame, place) in [
            (json!([]), "document"),
            (json!({ "input": "Hi" }), "type"),
            (json!({ "type": "response.cancel" }), "type"),
            (json!({ "type": "response.create", "generate": "no" }), "generate"),
            (json!({ "type": "response.create", "background": true }), "background"),
            (json!({ "type": "response.create", "input": 5 }), "input"),
        ] {
            let error = Create::read(&frame.to_string(), None).unwrap_err().to_string();
            assert!(error.starts_with(place), "{error}");
        }
    }
}
