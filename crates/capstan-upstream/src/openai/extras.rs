//! The members of an answer that CAP has no word for, for a client of the same protocol: as a chunk
//! in the provider's form, before what CAP says of the same chunk.
//!
//! Most servers repeat what they state of an answer in each chunk. A statement is sent when it
//! changes; pieces (all members of a delta, log probabilities, lists of a choice) are always sent.

use capstan_agent::Output;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::chunk::{Chunk, Delta, is_piece};
use super::finish::Finish;
use crate::json_object::Others;
use crate::json_text::value;
use crate::native::Lane;

type Members = Map<String, Value>;

/// The statements that were sent.
#[derive(Debug, Default)]
pub(super) struct Extras {
    chunk: Members,
    choice: Members,
    usage: Members,
}

impl Extras {
    /// Sends what is new in a chunk. A whole message behind its pieces says nothing new.
    pub(super) fn send(
        &mut self,
        chunk: &Chunk<'_>,
        usage: Option<&Value>,
        has_delta: bool,
        lane: &mut Lane,
        out: &mut Vec<Output>,
    ) {
        let choice = chunk.choice();
        let message = choice.and_then(|choice| choice.message.as_ref()).filter(|_| !has_delta);
        let delta = choice.and_then(|choice| choice.delta.as_ref()).or(message);
        if !lane.is_followed() {
            let others = delta.map(|delta| &delta.others).into_iter().flat_map(Others::iter);
            others.for_each(|(name, _)| lane.unknown(name, &Value::Null, out));
            return;
        }
        let mut event = changes(&mut self.chunk, chunk.others.iter());
        let mut said = Members::new();
        if let Some(choice) = choice {
            let (pieces, states): (Vec<_>, Vec<_>) =
                choice.others.iter().partition(|(name, raw)| is_piece(name, raw));
            said = changes(&mut self.choice, states.into_iter());
            said.extend(members(pieces.into_iter()));
            let finish = choice.finish().filter(|word| is_own(word));
            said.extend(finish.map(|word| ("finish_reason".to_owned(), word.as_ref().into())));
        }
        let delta = delta.map(members_of).unwrap_or_default();
        if !delta.is_empty() {
            said.insert("delta".into(), delta.into());
        }
        if !said.is_empty() {
            event.insert("choices".into(), json!([said]));
        }
        let usage = usage.map(uncounted).filter(|usage| *usage != self.usage).unwrap_or_default();
        if !usage.is_empty() {
            self.usage.clone_from(&usage);
            event.insert("usage".into(), usage.into());
        }
        if !event.is_empty() {
            lane.event(&event, out);
        }
    }
}

fn members<'a>(all: impl Iterator<Item = (&'a str, &'a RawValue)>) -> Members {
    all.map(|(name, raw)| (name.to_owned(), value(raw))).collect()
}

/// The statements that differ from the last ones.
fn changes<'a>(known: &mut Members, all: impl Iterator<Item = (&'a str, &'a RawValue)>) -> Members {
    let mut changed = members(all);
    changed.retain(|name, value| known.get(name) != Some(value));
    known.extend(changed.clone());
    changed
}

fn members_of(delta: &Delta<'_>) -> Members {
    let notes = delta.annotations.map(|raw| ("annotations", raw));
    members(delta.others.iter().chain(notes))
}

/// Whether an end has a word that clients are not told otherwise.
fn is_own(word: &str) -> bool {
    word == "function_call" || matches!(Finish::of(word), Finish::Other(_))
}

/// The counts that CAP has no word for.
fn uncounted(usage: &Value) -> Members {
    let mut usage = usage.as_object().cloned().unwrap_or_default();
    for name in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        usage.remove(name);
    }
    for (details, name) in [
        ("prompt_tokens_details", "cached_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
    ] {
        if let Some(Value::Object(details)) = usage.get_mut(details) {
            details.remove(name);
            details.retain(|_, value| !value.is_null());
        }
    }
    usage.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|o| !o.is_empty()));
    usage
}
