//! Writes the demo's answers word by word, and counts the words.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::sleep;

use capstan_agent::{Outcome, Stopped, Writer};

/// The demo's model name.
const MODEL: &str = "demo";

/// A writer that speaks at a pace.
pub(super) struct Voice<'a> {
    pub(super) out: &'a mut Writer,
    delay: Duration,
    input_words: usize,
    output_words: usize,
}

impl<'a> Voice<'a> {
    pub(super) fn new(out: &'a mut Writer, delay: Duration, question: &str) -> Self {
        Self { out, delay, input_words: question.split_whitespace().count(), output_words: 0 }
    }

    pub(super) fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// Writes a complete answer: the model, the text, the usage.
    pub(super) async fn answer(&mut self, text: &str) -> Outcome {
        self.begin().await?;
        self.say(text).await?;
        Ok(self.end().await?)
    }

    /// Names the model.
    pub(super) async fn begin(&mut self) -> Result<(), Stopped> {
        self.out.model(MODEL).await
    }

    /// Reports the usage.
    pub(super) async fn end(&mut self) -> Result<(), Stopped> {
        let usage = [("input_tokens", self.input_words), ("output_tokens", self.output_words)];
        let usage: Map<String, Value> =
            usage.map(|(name, words)| (name.to_owned(), words.into())).into_iter().collect();
        self.out.usage(usage).await
    }

    /// Writes a text, one delta per word.
    pub(super) async fn say(&mut self, text: &str) -> Result<(), Stopped> {
        for word in words(text) {
            self.delta(word).await?;
        }
        Ok(())
    }

    /// Counts from 1 to `count`, exactly one delta each: a gap or a repeat shows.
    pub(super) async fn count(&mut self, count: u32) -> Result<(), Stopped> {
        for n in 1..=count {
            self.delta(format!("tok{n} ")).await?;
        }
        Ok(())
    }

    async fn delta(&mut self, word: impl Into<String>) -> Result<(), Stopped> {
        // Even a sleep of zero waits for the timer's next millisecond.
        if !self.delay.is_zero() {
            sleep(self.delay).await;
        }
        self.output_words += 1;
        self.out.delta(word).await
    }
}

/// Splits a text into words, each with the white space after it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end_of_word = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (_, tail) = rest.split_at(end_of_word);
        let (word, next) = rest.split_at(rest.len() - tail.trim_start().len());
        rest = next;
        (!word.is_empty()).then_some(word)
    })
}

/// The first half of a text, cut between two words.
pub(super) fn first_half(text: &str) -> String {
    words(text).take(words(text).count() / 2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_join_to_the_text_they_were_cut_from() {
        for text in
            ["", "one", "one two", "a  b\n\n  c ", "\u{2003}wide\u{2003}spaces", "日本語 text"]
        {
            assert_eq!(words(text).collect::<String>(), text);
        }
    }

    #[test]
    fn a_word_keeps_the_space_behind_it() {
        assert_eq!(words("one two\n\nthree").collect::<Vec<_>>(), ["one ", "two\n\n", "three"]);
    }

    #[test]
    fn half_of_a_text_ends_between_words() {
        assert_eq!(first_half("one two three four"), "one two ");
        assert_eq!(first_half("one"), "");
    }
}
