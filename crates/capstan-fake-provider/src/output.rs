//! The answer to one call, with ids and signatures, and in the pieces of a stream.

use crate::answer::{Answer, ToolCall};
use crate::protocol::Shape;
use crate::question::Question;
use crate::seal::{Kind, Sealer};

/// The response to one call.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    shape: Shape,
    has_seals: bool,
    /// The suffix of ids.
    pub(crate) id: String,
    /// The rest of the answer after the prefill.
    pub(crate) answer: Answer,
    /// The seal of its thinking.
    pub(crate) seal: Option<String>,
    /// The data of a redacted block.
    pub(crate) redacted: Option<String>,
    /// The ids of its tool calls.
    pub(crate) call_ids: Vec<String>,
}

/// The content of one frame of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Reasoning(String),
    /// The seal of the reasoning before it.
    Seal(String),
    Redacted(String),
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
        part: String,
    },
}

impl Output {
    /// The answer to a call; `number` makes its ids unlike those of any other call.
    pub(crate) fn new(
        answer: &Answer,
        shape: Shape,
        question: &Question,
        sealer: &Sealer,
        number: Option<usize>,
    ) -> Self {
        let reasoning = answer.reasoning.as_deref().unwrap_or_default();
        let kind = match shape {
            Shape::Messages => Some(Kind::Signature),
            Shape::Responses => Some(Kind::Encrypted).filter(|_| question.wants_encrypted),
            Shape::Chat => None,
        };
        let seal = kind.filter(|_| answer.signed).map(|kind| sealer.seal(kind, reasoning));
        let redacted = (answer.redacted && shape == Shape::Messages)
            .then(|| sealer.seal(Kind::Redacted, reasoning));
        let digest = Sealer::digest([&seal, &redacted].into_iter().flatten());
        let number = number.map(|number| format!("_{number}")).unwrap_or_default();
        let call_id = |index| format!("call_{}{number}{digest}", question.tool_calls + index + 1);
        let call_ids = (0..answer.tool_calls.len()).map(call_id).collect();
        let rest =
            question.prefill.as_deref().map_or_else(|| answer.clone(), |said| answer.after(said));
        Self {
            shape,
            has_seals: !digest.is_empty(),
            id: format!("fake{number}"),
            seal: seal.filter(|_| rest.signed),
            redacted: redacted.filter(|_| rest.redacted),
            answer: rest,
            call_ids,
        }
    }

    /// The pieces: words, and arguments in three parts.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        let words = |text: &str| text.split_inclusive(' ').map(str::to_owned).collect::<Vec<_>>();
        let reasoning = self.answer.reasoning.as_deref().map(words).unwrap_or_default();
        let mut pieces: Vec<Piece> = reasoning.into_iter().map(Piece::Reasoning).collect();
        pieces.extend(self.seal.clone().map(Piece::Seal));
        pieces.extend(self.redacted.clone().map(Piece::Redacted));
        pieces.extend(words(&self.answer.text).into_iter().map(Piece::Text));
        for (index, call) in self.answer.tool_calls.iter().enumerate() {
            let id = self.call_id(index).to_owned();
            pieces.push(Piece::Call { index, id, name: call.name.clone() });
            pieces.extend(thirds(&self.written(call)).map(|part| Piece::Arguments { index, part }));
        }
        pieces
    }

    /// The text that a call's argument deltas form.
    pub(crate) fn written(&self, call: &ToolCall) -> String {
        call.written(self.shape)
    }

    pub(crate) fn call_id(&self, index: usize) -> &str {
        self.call_ids.get(index).map(String::as_str).unwrap_or_default()
    }

    /// The number of tokens: a word is one.
    pub(crate) fn tokens(&self) -> usize {
        let is_token = |piece: &Piece| !matches!(piece, Piece::Seal(_) | Piece::Redacted(_));
        self.pieces().into_iter().filter(is_token).count()
    }

    /// Whether its tool calls come after sealed thinking.
    pub(crate) fn is_sealed(&self) -> bool {
        self.has_seals
    }

    /// Whether the client can see its thinking.
    pub(crate) fn has_thinking(&self) -> bool {
        self.seal.is_some() || self.answer.reasoning.as_ref().is_some_and(|text| !text.is_empty())
    }
}

fn thirds(text: &str) -> impl Iterator<Item = String> {
    let characters: Vec<char> = text.chars().collect();
    let size = characters.len().div_ceil(3).max(1);
    characters.chunks(size).map(|part| part.iter().collect()).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_answer_has_sixty_words_and_its_pieces_are_the_whole() {
        let sealer = Sealer::new("here");
        let answer = Answer::default();
        let output = Output::new(&answer, Shape::Chat, &Question::default(), &sealer, None);
        assert_eq!(output.tokens(), 60);
        let text = |piece: Piece| if let Piece::Text(text) = piece { text } else { String::new() };
        assert_eq!(output.pieces().into_iter().map(text).collect::<String>(), answer.text);
    }
}
