//! What a call asks for, whatever the shape of its body.

use serde_json::Value;

use crate::answer::Answer;

/// A request's body.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) is_stream: bool,
    /// What the assistant is to go on from: the last message, if it is the assistant's.
    pub(crate) prefill: Option<String>,
    pub(crate) prompt_tokens: usize,
}

impl Asked {
    pub(crate) fn of(body: &Value) -> Self {
        let messages = [body.get("messages"), body.get("input")]
            .into_iter()
            .flatten()
            .find_map(Value::as_array);
        let messages = messages.map(Vec::as_slice).unwrap_or_default();
        let last =
            messages.last().filter(|last| last.get("role").is_some_and(|role| role == "assistant"));
        let words = |message: &Value| text_of(message.get("content")).split_whitespace().count();
        Self {
            model: body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned(),
            is_stream: body.get("stream").is_some_and(|stream| stream == true),
            prefill: last.map(|last| text_of(last.get("content"))),
            prompt_tokens: messages.iter().map(words).sum::<usize>().max(1),
        }
    }

    /// The answer, or what is left of it after the prefill.
    pub(crate) fn answer(&self, answer: &Answer) -> Answer {
        self.prefill.as_deref().map_or_else(|| answer.clone(), |said| answer.after(said))
    }
}

/// A content's text: a string, or blocks.
fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => {
            blocks.iter().filter_map(|block| block.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    }
}
