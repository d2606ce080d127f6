//! A chunk of Chat Completions as it stands on the wire, without a tree: what is needed is read,
//! all else is passed over.

use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::kept::THOUGHTS;
use crate::json_text::{Raw, string, text};

#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) model: Raw<'a>,
    #[serde(borrow)]
    pub(super) choices: Option<Choices<'a>>,
    #[serde(borrow)]
    pub(super) usage: Raw<'a>,
    #[serde(borrow)]
    pub(super) error: Raw<'a>,
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

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow)]
    index: Raw<'a>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    /// What stands in the place of `delta` when a server answers as if it had not been asked to
    /// stream.
    #[serde(borrow)]
    pub(super) message: Option<Delta<'a>>,
    /// The text of servers that speak the older completions.
    #[serde(borrow)]
    pub(super) text: Raw<'a>,
    #[serde(borrow)]
    finish_reason: Raw<'a>,
    #[serde(borrow)]
    pub(super) error: Raw<'a>,
}

#[derive(Deserialize, Default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) content: Raw<'a>,
    #[serde(borrow)]
    reasoning_content: Raw<'a>,
    #[serde(borrow)]
    reasoning: Raw<'a>,
    #[serde(borrow)]
    pub(super) reasoning_details: Raw<'a>,
    #[serde(borrow)]
    pub(super) extra_content: Raw<'a>,
    #[serde(borrow)]
    pub(super) refusal: Raw<'a>,
    #[serde(borrow)]
    pub(super) tool_calls: Raw<'a>,
    #[serde(borrow)]
    pub(super) function_call: Raw<'a>,
    #[serde(borrow)]
    pub(super) annotations: Raw<'a>,
}

/// A piece of a tool call.
#[derive(Deserialize)]
pub(super) struct ToolCall<'a> {
    #[serde(borrow)]
    index: Raw<'a>,
    #[serde(borrow)]
    pub(super) id: Raw<'a>,
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
    /// Where Google's models keep the signature of a thought.
    #[serde(borrow)]
    pub(super) extra_content: Raw<'a>,
}

#[derive(Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Raw<'a>,
    #[serde(borrow)]
    arguments: Raw<'a>,
}

impl<'a> Chunk<'a> {
    pub(super) fn choice(&self) -> Option<&Choice<'a>> {
        self.choices.as_ref()?.0.as_ref()
    }

    /// The content, if nothing else in the chunk tells anything.
    pub(super) fn only_content(&self) -> Raw<'a> {
        let choice = self.choice().filter(|_| self.usage.is_none() && self.error.is_none())?;
        let delta = choice.delta.as_ref().filter(|_| choice.is_going_on())?;
        delta.content.filter(|_| delta.is_content_alone())
    }
}

impl Choice<'_> {
    /// Why the answer ends. Some say that it does not in words.
    pub(super) fn finish(&self) -> Option<Cow<'_, str>> {
        text(self.finish_reason)
            .filter(|reason| !matches!(reason.as_ref(), "null" | "None" | "none"))
    }

    fn is_going_on(&self) -> bool {
        self.finish_reason.is_none() && self.error.is_none()
    }
}

impl<'a> Delta<'a> {
    /// What is thought, and under which name.
    pub(super) fn thought(&self) -> Option<(&'static str, Cow<'a, str>)> {
        let said = [self.reasoning_content, self.reasoning];
        THOUGHTS.into_iter().zip(said).find_map(|(name, said)| Some((name, text(said)?)))
    }

    fn is_content_alone(&self) -> bool {
        let Self {
            reasoning_content,
            reasoning,
            reasoning_details,
            extra_content,
            refusal,
            tool_calls,
            function_call,
            annotations,
            ..
        } = self;
        let others = [
            reasoning_content,
            reasoning,
            reasoning_details,
            extra_content,
            refusal,
            tool_calls,
            function_call,
            annotations,
        ];
        others.into_iter().all(|member| member.is_none())
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
        let raw = self.arguments.map(RawValue::get).unwrap_or_default();
        string(raw).unwrap_or(Cow::Borrowed(raw))
    }
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

/// What a content that is no string says: parts with text, and parts with thoughts.
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
