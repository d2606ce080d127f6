//! What a healthy call says, and the pieces in which it is streamed.

use serde::Deserialize;
use serde_json::{Map, Value};

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
    /// What the model thinks first, if it shows that.
    pub reasoning: Option<String>,
    /// What it says.
    pub text: String,
    /// What it calls after that.
    pub tool_calls: Vec<ToolCall>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

impl Default for Answer {
    fn default() -> Self {
        Self { reasoning: None, text: TEXT.into(), tool_calls: Vec::new() }
    }
}

/// What one frame of a stream carries.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Reasoning(String),
    Text(String),
    /// A call begins.
    Call {
        index: usize,
        id: String,
        name: String,
    },
    /// A part of its arguments.
    Arguments {
        index: usize,
        json: String,
    },
}

impl Answer {
    /// Word by word; arguments in three parts.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        let words = |text: &str| text.split_inclusive(' ').map(str::to_owned).collect::<Vec<_>>();
        let reasoning = self.reasoning.as_deref().map(words).unwrap_or_default();
        let mut pieces: Vec<Piece> = reasoning.into_iter().map(Piece::Reasoning).collect();
        pieces.extend(words(&self.text).into_iter().map(Piece::Text));
        for (index, call) in self.tool_calls.iter().enumerate() {
            pieces.push(Piece::Call { index, id: call_id(index), name: call.name.clone() });
            pieces.extend(thirds(&call.json()).map(|json| Piece::Arguments { index, json }));
        }
        pieces
    }

    /// What is left to say after a part of the text; the whole if that is not how it begins.
    pub(crate) fn after(&self, said: &str) -> Self {
        match self.text.strip_prefix(said) {
            Some(rest) => Self { reasoning: None, text: rest.to_owned(), ..self.clone() },
            None => self.clone(),
        }
    }

    /// How many tokens that is: a word is one.
    pub(crate) fn tokens(&self) -> usize {
        self.pieces().len()
    }
}

impl ToolCall {
    pub(crate) fn json(&self) -> String {
        Value::Object(self.arguments.clone()).to_string()
    }
}

/// The id of the call at this place.
pub(crate) fn call_id(index: usize) -> String {
    format!("call_{}", index + 1)
}

fn thirds(json: &str) -> impl Iterator<Item = String> {
    let characters: Vec<char> = json.chars().collect();
    let size = characters.len().div_ceil(3).max(1);
    characters.chunks(size).map(|part| part.iter().collect()).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_answer_has_sixty_words_and_its_pieces_are_the_whole() {
        let answer = Answer::default();
        assert_eq!(answer.tokens(), 60);
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Reasoning(_) | Piece::Call { .. } | Piece::Arguments { .. } => String::new(),
        };
        assert_eq!(answer.pieces().iter().map(text).collect::<String>(), answer.text);
    }

    #[test]
    fn an_answer_goes_on_where_its_beginning_ends() {
        let answer = Answer { text: "one two three".into(), ..Answer::default() };
        assert_eq!(answer.after("one two").text, " three");
        assert_eq!(answer.after("two").text, "one two three", "that is not its beginning");
    }
}
