//! Members of an answer that CAP does not have, from a provider of Chat Completions. Clients get
//! them unchanged.
//!
//! Pieces come during the answer. The part comes at its end: it has reasoning that only its
//! provider can read, and that the client has to send back.

use capstan_protocol::{
    Dialect, ErrorSeverity, Event, NATIVE, NativeEvent, NativeOrigin, RawObject, StreamError,
};
use serde_json::{Map, Value};

/// The member of a part that has the members of calls, by the ids of the calls.
const CALLS: &str = "calls";
/// The names under which servers send their thoughts. Clients get them under one name.
const THOUGHTS: [&str; 2] = ["reasoning_content", "reasoning"];
/// Members of pieces that are not texts to be joined.
const NAMES: [&str; 6] = ["id", "type", "index", "name", "format", "role"];

type Members = Map<String, Value>;

/// The members of one chunk, or of a whole answer.
#[derive(Debug, Clone, Default)]
pub(super) struct Piece {
    pub(super) chunk: Members,
    pub(super) choice: Members,
    pub(super) delta: Members,
    pub(super) usage: Members,
}

impl Piece {
    /// Reads an event; `None` if it has no piece.
    pub(super) fn of(raw: &RawObject) -> Option<Self> {
        let Value::Object(mut chunk) = of_chat(raw)?.event?.to_value() else { return None };
        let mut choice = match chunk.remove("choices") {
            Some(Value::Array(choices)) => members(choices.into_iter().next()),
            Some(_) | None => Members::new(),
        };
        let (delta, usage) = (members(choice.remove("delta")), members(chunk.remove("usage")));
        Some(Self { chunk, choice, delta, usage })
    }

    /// Whether the chunk is about the answer itself.
    pub(super) fn has_choice(&self) -> bool {
        !(self.choice.is_empty() && self.delta.is_empty())
    }

    /// The ids of calls of tools that take a free text.
    pub(super) fn take_custom_calls(&mut self) -> Vec<String> {
        let calls = self.delta.remove("tool_calls");
        let calls = calls.as_ref().and_then(Value::as_array).into_iter().flatten();
        let is_custom = |call: &&Value| call.get("type").is_some_and(|kind| kind == "custom");
        let id = |call: &Value| call.get("id")?.as_str().map(str::to_owned);
        calls.filter(is_custom).filter_map(id).collect()
    }

    /// Whether calls have the form `function_call`.
    pub(super) fn take_legacy_call(&mut self) -> bool {
        self.delta.remove("function_call").is_some()
    }

    /// The provider's own finish reason, if it has one.
    pub(super) fn take_finish(&mut self) -> Option<String> {
        let word = self.choice.remove("finish_reason")?;
        word.as_str().map(str::to_owned)
    }

    /// The number of sources with an address in its annotations.
    pub(super) fn citations(&self) -> usize {
        let notes = self.delta.get("annotations").and_then(Value::as_array);
        notes.into_iter().flatten().filter(|note| note.get("url_citation").is_some()).count()
    }

    /// Adds the piece after this one.
    fn join(&mut self, next: Self) {
        self.chunk.extend(next.chunk);
        self.usage.extend(next.usage);
        for (name, value) in next.choice {
            match self.choice.get_mut(&name) {
                Some(known) if name == "logprobs" || known.is_array() => join(known, value),
                _ => {
                    self.choice.insert(name, value);
                }
            }
        }
        join_members(&mut self.delta, next.delta);
    }
}

/// The members of an answer and of its calls.
#[derive(Debug, Default)]
pub(super) struct Native {
    /// Each with its packet.
    pieces: Vec<(u64, Piece)>,
    part: Members,
    /// The maker of the part.
    origin: Option<NativeOrigin>,
}

impl Native {
    /// Takes an event, if it has such members.
    pub(super) fn take(&mut self, seq: u64, raw: &RawObject) {
        self.pieces.extend(Piece::of(raw).map(|piece| (seq, piece)));
        let Some(event) = of_chat(raw) else { return };
        if let Some(Value::Object(members)) = event.part.map(|part| part.to_value()) {
            (self.part, self.origin) = (members, Some(event.origin));
        }
    }

    /// The maker of the members that the client has to send back.
    pub(super) fn origin(&self) -> Option<&NativeOrigin> {
        self.origin.as_ref()
    }

    /// Drops the pieces after a packet.
    pub(super) fn reset(&mut self, after: u64) {
        self.pieces.retain(|(seq, _)| *seq <= after);
    }

    /// All pieces as one.
    pub(super) fn joined(&self) -> Piece {
        let mut all = Piece::default();
        self.pieces.iter().for_each(|(_, piece)| all.join(piece.clone()));
        all
    }

    /// The members of the message that the client has to send back.
    pub(super) fn of_message(&self) -> Members {
        let is_ours = |name: &str| name == CALLS || THOUGHTS.contains(&name);
        let members = self.part.iter().filter(|(name, _)| !is_ours(name));
        members.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The members of a call that the client has to send back.
    pub(super) fn of_call(&self, id: &str) -> Members {
        let members = self.part.get(CALLS).and_then(|calls| calls.get(id));
        members.and_then(Value::as_object).cloned().unwrap_or_default()
    }
}

fn members(value: Option<Value>) -> Members {
    if let Some(Value::Object(members)) = value { members } else { Members::new() }
}

fn join_members(into: &mut Members, next: Members) {
    for (name, value) in next {
        match into.get_mut(&name) {
            Some(known) if !NAMES.contains(&name.as_str()) => join(known, value),
            _ => {
                into.insert(name, value);
            }
        }
    }
}

/// Joins pieces as the SDKs do: texts and lists grow, objects are joined by member, anything else
/// is replaced.
fn join(into: &mut Value, next: Value) {
    match (into, next) {
        (Value::String(text), Value::String(more)) => text.push_str(&more),
        (Value::Array(items), Value::Array(more)) => items.extend(more),
        (Value::Object(members), Value::Object(more)) => join_members(members, more),
        (_, Value::Null) => {}
        (into, next) => *into = next,
    }
}

fn of_chat(raw: &RawObject) -> Option<NativeEvent> {
    event_of(raw).filter(|event| event.origin.dialect == Dialect::OpenaiChat)
}

/// Reads an event of the native lane, of any protocol.
pub(super) fn event_of(raw: &RawObject) -> Option<NativeEvent> {
    if !raw.get().contains(NATIVE) {
        return None;
    }
    serde_json::from_value(Event::of(raw).data).ok()
}

/// Whether an error ends an attempt. Other errors are warnings about the request.
pub(super) fn ends_attempt(error: &StreamError) -> bool {
    let of_attempt = || error.details.as_ref().is_some_and(|all| all.contains_key("attempt"));
    error.severity != ErrorSeverity::Warning || of_attempt()
}
