//! A chunk of Chat Completions as it stands on the wire, without a tree. The decoder reads what it
//! knows; all other members stay text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::kept::THOUGHTS;
use crate::json_object::object;
use crate::json_text::{Raw, string, text};

object! {
    /// The gateway has its own id, time and kind. `obfuscation` pads the connection, no more.
    Chunk {
        model: Raw<'a>,
        choices: Option<Choices<'a>>,
        usage: Raw<'a>,
        error: Raw<'a>,
        - "id" | "object" | "created" | "obfuscation"
    }
}

/// The answer among the choices: only one was asked for, so no list is made.
pub(super) struct Choices<'a>(Option<Choice<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct First;

        impl<'de> Visitor<'de> for First {
            type Value = Choices<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of choices")
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut choices: A,
            ) -> Result<Choices<'de>, A::Error> {
                let mut first = None;
                while let Some(choice) = choices.next_element::<Choice<'de>>()? {
                    let is_first = choice.index.is_none_or(|index| number(index) == Some(0));
                    first = first.or(Some(choice).filter(|_| is_first));
                }
                Ok(Choices(first))
            }
        }

        deserializer.deserialize_seq(First)
    }
}

object! {
    /// An answer.
    Choice {
        index: Raw<'a>,
        delta: Option<Delta<'a>>,
        /// The whole answer, from a server that ignores `stream`.
        message: Option<Delta<'a>>,
        /// The text of servers that speak the older completions.
        text: Raw<'a>,
        finish_reason: Raw<'a>,
        error: Raw<'a>,
        -
    }
}

object! {
    /// A piece of the message.
    Delta {
        content: Raw<'a>,
        reasoning_content: Raw<'a>,
        reasoning: Raw<'a>,
        reasoning_details: Raw<'a>,
        extra_content: Raw<'a>,
        refusal: Raw<'a>,
        tool_calls: Raw<'a>,
        function_call: Raw<'a>,
        annotations: Raw<'a>,
        - "role"
    }
}

object! {
    /// A piece of a tool call.
    ToolCall {
        index: Raw<'a>,
        id: Raw<'a>,
        function: Option<Function<'a>>,
        custom: Option<Custom<'a>>,
        - "type"
    }
}

object! {
    Function {
        name: Raw<'a>,
        arguments: Raw<'a>,
        -
    }
}

object! {
    /// A call of a tool that takes a free text.
    Custom {
        name: Raw<'a>,
        input: Raw<'a>,
        -
    }
}

impl<'a> Chunk<'a> {
    pub(super) fn choice(&self) -> Option<&Choice<'a>> {
        self.choices.as_ref()?.0.as_ref()
    }

    /// The content, if an equal chunk with another content differs in that alone. Members that
    /// state something may be there, pieces of something may not.
    pub(super) fn only_content(&self) -> Raw<'a> {
        let choice = self.choice().filter(|_| self.usage.is_none() && self.error.is_none())?;
        let delta = choice.delta.as_ref().filter(|_| choice.states_nothing_new())?;
        delta.content.filter(|_| delta.is_content_alone())
    }
}

/// Whether a member of a choice is a piece: the next one follows it and does not replace it.
pub(super) fn is_piece(name: &str, value: &RawValue) -> bool {
    name == "logprobs" || value.get().starts_with('[')
}

impl Choice<'_> {
    /// Why the answer ends. Some servers write in words that it does not.
    pub(super) fn finish(&self) -> Option<Cow<'_, str>> {
        text(self.finish_reason)
            .filter(|reason| !matches!(reason.as_ref(), "null" | "None" | "none"))
    }

    fn states_nothing_new(&self) -> bool {
        let has_piece = self.others.iter().any(|(name, value)| is_piece(name, value));
        self.finish_reason.is_none() && self.error.is_none() && !has_piece
    }
}

impl<'a> Delta<'a> {
    /// The thoughts in it, and the name under which the server sends them.
    pub(super) fn thought(&self) -> Option<(&'static str, Cow<'a, str>)> {
        let members = [self.reasoning_content, self.reasoning];
        THOUGHTS.into_iter().zip(members).find_map(|(name, raw)| Some((name, text(raw)?)))
    }

    fn is_content_alone(&self) -> bool {
        let known = [
            self.reasoning_content,
            self.reasoning,
            self.reasoning_details,
            self.extra_content,
            self.refusal,
            self.tool_calls,
            self.function_call,
            self.annotations,
        ];
        known.into_iter().all(|member| member.is_none()) && self.others.is_empty()
    }
}

impl ToolCall<'_> {
    pub(super) fn index(&self) -> Option<u64> {
        self.index.and_then(number)
    }
}

impl<'a> Function<'a> {
    /// The arguments as text; some servers send them as what they are.
    pub(super) fn arguments(&self) -> Cow<'a, str> {
        unquoted(self.arguments)
    }
}

impl<'a> Custom<'a> {
    pub(super) fn input(&self) -> Cow<'a, str> {
        unquoted(self.input)
    }
}

/// The text of a string; the JSON text of anything else.
fn unquoted(raw: Raw<'_>) -> Cow<'_, str> {
    let raw = raw.map(RawValue::get).unwrap_or_default();
    string(raw).unwrap_or(Cow::Borrowed(raw))
}

/// A part of a content that is a list.
#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Raw<'a>,
    #[serde(borrow)]
    content: Raw<'a>,
    #[serde(borrow)]
    value: Raw<'a>,
    #[serde(borrow)]
    thinking: Raw<'a>,
}

/// The texts of a content that is a list: of parts with text, and of parts with thoughts.
pub(super) struct Parts {
    pub(super) thoughts: String,
    pub(super) text: String,
}

pub(super) fn parts(raw: &RawValue) -> Parts {
    let mut said = Parts { thoughts: String::new(), text: String::new() };
    collect(raw.get(), &mut said, false);
    said
}

fn collect(raw: &str, said: &mut Parts, is_thought: bool) {
    if let Some(text) = string(raw) {
        return if is_thought { &mut said.thoughts } else { &mut said.text }.push_str(&text);
    }
    if let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(raw) {
        return list.into_iter().for_each(|part| collect(part.get(), said, is_thought));
    }
    let Ok(part) = serde_json::from_str::<Part<'_>>(raw) else { return };
    if let Some(thought) = part.thinking {
        return collect(thought.get(), said, true);
    }
    if let Some(inner) = part.text.or(part.content).or(part.value) {
        collect(inner.get(), said, is_thought);
    }
}

/// A number, however it is written.
fn number(raw: &RawValue) -> Option<u64> {
    raw.get().trim_matches('"').parse().ok()
}
