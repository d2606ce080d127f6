//! The answer of a healthy call.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::protocol::Shape;

/// Sixty words, so that "after 40" is in the middle.
const TEXT: &str = "A capstan is a machine for pulling ropes. It stands upright on the deck, and \
 sailors push its bars \
round and round. The rope winds about the barrel, friction holds it, and a heavy anchor rises \
from the sea. Pawls \
click below, so that nothing runs back when the crew takes a breath. Slow, steady, strong: a very \
good capstan.";

/// An answer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// The model's thinking, if it shows that.
    pub reasoning: Option<String>,
    /// Whether its thinking is signed or encrypted, and must come back unchanged. Without
    /// `reasoning` the block has only the signature.
    pub signed: bool,
    /// Whether a redacted block follows the thinking (Anthropic's Messages only).
    pub redacted: bool,
    /// The text.
    pub text: String,
    /// It ends with a refusal of this category (Anthropic's Messages alone).
    pub refusal: Option<String>,
    /// The tool calls after the text.
    pub tool_calls: Vec<ToolCall>,
}

/// A call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Map<String, Value>,
    /// The input of a custom tool, in place of arguments: a text of any form.
    pub input: Option<String>,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            reasoning: None,
            signed: false,
            redacted: false,
            text: TEXT.into(),
            refusal: None,
            tool_calls: Vec::new(),
        }
    }
}

impl Answer {
    /// The rest of the answer after a part of its text; all of it if the part does not match.
    pub(crate) fn after(&self, prefix: &str) -> Self {
        match self.text.strip_prefix(prefix) {
            Some(rest) => Self {
                reasoning: None,
                signed: false,
                redacted: false,
                text: rest.to_owned(),
                ..self.clone()
            },
            None => self.clone(),
        }
    }
}

impl ToolCall {
    /// Its arguments where custom tools are unknown.
    pub(crate) fn object(&self) -> Value {
        match &self.input {
            Some(input) => json!({ "input": input }),
            None => Value::Object(self.arguments.clone()),
        }
    }

    /// The text that its argument deltas form.
    pub(crate) fn written(&self, shape: Shape) -> String {
        match &self.input {
            Some(input) if shape != Shape::Messages => input.clone(),
            _ => self.object().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_continues_after_its_prefix() {
        let answer = Answer { text: "one two three".into(), ..Answer::default() };
        assert_eq!(answer.after("one two").text, " three");
        assert_eq!(answer.after("two").text, "one two three", "that is not its beginning");
    }
}
