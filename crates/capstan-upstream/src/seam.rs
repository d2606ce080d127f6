//! The seam of a continued answer: joins the model's continuation to the text that was sent,
//! without a repeated or missing character.
//!
//! A prefill ends without whitespace, because some APIs require that. So the model may begin with
//! whitespace that was sent already. A server may also repeat the prefill, or ignore it and answer
//! anew. A new answer is compared with the sent text, as in any later attempt.

use capstan_agent::{Continued, Output};

/// If the answer begins with this many characters of the prefill, it is a new answer and no
/// continuation.
const ANEW: usize = 24;
/// A shorter text is not continued, because repeating it takes no time.
const SHORTEST: usize = 12;

/// The prefill for a text that was sent; `None` if it is too short.
pub(crate) fn prefill_of(sent: &str) -> Option<&str> {
    let prefill = sent.trim_end();
    (prefill.chars().count() >= SHORTEST).then_some(prefill)
}

/// Joins a continuation to the text that was sent.
pub(crate) struct Seam {
    sent: String,
    /// The length of the prefill: the sent text without whitespace at its end.
    prefill: usize,
    state: State,
}

enum State {
    /// The text so far does not show yet whether the model continues.
    Deciding(String),
    /// The model continues. The sent text after this offset, which is whitespace, may be repeated.
    Joining(usize),
    Closed,
}

impl Seam {
    pub(crate) fn new(sent: &str) -> Self {
        Self {
            sent: sent.to_owned(),
            prefill: sent.trim_end().len(),
            state: State::Deciding(String::new()),
        }
    }

    /// Later pieces pass unchanged.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Takes a piece. Returns the outputs that are ready.
    pub(crate) fn take(&mut self, piece: &str) -> Vec<Output> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Closed => vec![Output::Delta(piece.to_owned())],
            State::Joining(at) => self.join(at, piece),
            State::Deciding(held) => self.decide(held + piece),
        }
    }

    fn decide(&mut self, held: String) -> Vec<Output> {
        let prefill = self.sent.get(..self.prefill).unwrap_or_default();
        if let Some(rest) = held.strip_prefix(prefill) {
            let rest = rest.to_owned();
            return self.join(self.prefill, &rest);
        }
        if prefill.starts_with(&held) {
            self.state = State::Deciding(held);
            return Vec::new();
        }
        if common(prefill, &held) >= ANEW {
            return vec![Output::Delta(held)];
        }
        self.join(self.prefill, &held)
    }

    /// Skips whitespace that was sent already.
    fn join(&mut self, at: usize, piece: &str) -> Vec<Output> {
        let whitespace = self.sent.get(at..).unwrap_or_default();
        let same = bytes_in_common(whitespace, piece);
        let rest = piece.get(same..).unwrap_or_default();
        if rest.is_empty() {
            self.state = State::Joining(at + same);
            return Vec::new();
        }
        self.state = State::Closed;
        let mut outputs = self.continued();
        outputs.push(Output::Delta(rest.to_owned()));
        outputs
    }

    /// The model has continued: the sent text stands.
    fn continued(&mut self) -> Vec<Output> {
        let sent = Output::Delta(std::mem::take(&mut self.sent));
        vec![Output::Continued(Continued::Prefill), sent]
    }

    /// Returns held text: the answer is complete, or something other than text follows.
    pub(crate) fn finish(&mut self) -> Vec<Output> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Closed => Vec::new(),
            State::Joining(_) => self.continued(),
            State::Deciding(held) if held.chars().count() >= ANEW => vec![Output::Delta(held)],
            State::Deciding(held) => {
                let mut outputs = self.continued();
                outputs.extend(Some(held).filter(|held| !held.is_empty()).map(Output::Delta));
                outputs
            }
        }
    }
}

fn common(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

fn bytes_in_common(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &str = "A capstan is a machine for pulling ropes. ";

    /// The text that the relay writes if the model sends these pieces.
    fn written(sent: &str, pieces: &[&str]) -> String {
        let mut seam = Seam::new(sent);
        let mut outputs: Vec<Output> = pieces.iter().flat_map(|piece| seam.take(piece)).collect();
        outputs.extend(seam.finish());
        let text = |output: &Output| {
            if let Output::Delta(text) = output { text.clone() } else { String::new() }
        };
        outputs.iter().map(text).collect()
    }

    #[test]
    fn whitespace_at_the_seam_occurs_once() {
        let whole = format!("{SENT}It stands upright.");
        for pieces in [
            &[" It stands", " upright."][..],
            &[" ", "It stands upright."],
            &["It stands upright."],
        ] {
            assert_eq!(written(SENT, pieces), whole, "{pieces:?}");
        }
        let sent = "A list of three things:\n\n";
        assert_eq!(written(sent, &["\n", "\n- one"]), format!("{sent}- one"));
        assert_eq!(
            written("Some words that e", &["nd here."]),
            "Some words that end here.",
            "in the middle of a word"
        );
    }

    #[test]
    fn a_server_that_repeats_the_prefill_doubles_nothing() {
        let whole = format!("{SENT}It stands upright.");
        assert_eq!(
            written(
                SENT,
                &["A capstan is a machine ", "for pulling ropes. It", " stands upright."]
            ),
            whole
        );
    }

    #[test]
    fn a_server_that_answers_anew_is_compared_from_its_beginning() {
        let anew = "A capstan is a machine for hoisting.";
        assert_eq!(written(SENT, &["A capstan is a machine ", "for hoisting."]), anew);
    }

    #[test]
    fn an_answer_that_was_complete_already_stays_as_it_is() {
        assert_eq!(written(SENT, &[]), SENT);
        assert_eq!(written(SENT, &[" "]), SENT);
        assert_eq!(written(SENT, &["A c"]), format!("{SENT}A c"), "too little to be a repetition");
    }

    #[test]
    fn short_texts_are_no_prefill_and_a_prefill_ends_without_whitespace() {
        assert_eq!(prefill_of("A capstan "), None);
        assert_eq!(prefill_of(SENT), Some("A capstan is a machine for pulling ropes."));
    }

    proptest::proptest! {
        #[test]
        fn a_continuation_completes_the_text(
            sent in "[a-z]{12,20}[ \n]{0,3}", rest in "[A-Z][A-Za-z ]{0,30}", cut in 0_usize..4,
            repeats: bool,
        ) {
            // The model may repeat the whitespace that the prefill lacks, or not.
            let gap = &sent[sent.trim_end().len()..];
            let says = if repeats { format!("{gap}{rest}") } else { rest.clone() };
            let (first, second) = says.split_at(cut.min(says.len()));
            proptest::prop_assert_eq!(written(&sent, &[first, second]), format!("{sent}{rest}"));
        }
    }
}
