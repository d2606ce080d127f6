//! The text of a process's messages: streamed piece by piece, then stated as a whole.
//!
//! A message is told once, although it comes twice. When a stream breaks and the process starts its
//! message anew, what was said before is void, but already seen: the new one is held back until it
//! has said the same, or is whole.

use capstan_agent::Output;

/// What stands between two messages: a paragraph's end, as markdown has it.
const GAP: &str = "\n\n";

/// What was said of the messages, in the order of their coming.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// Bytes of finished text.
    settled: usize,
    /// The message that it ends with, if that has an id.
    settled_id: Option<String>,
    /// A gap was told between it and the message that follows.
    is_parted: bool,
    /// The message being streamed.
    id: Option<String>,
    /// What it has said since its last finished block.
    streamed: String,
    /// What a reader has seen beyond the finished text.
    shown: String,
}

impl Text {
    /// A message begins.
    pub(super) fn open(&mut self, id: Option<&str>) {
        self.id = id.map(str::to_owned);
        self.streamed.clear();
        self.close();
    }

    /// What comes next is another message, even if it has the same id.
    pub(super) fn close(&mut self) {
        self.settled_id = None;
    }

    /// A piece of it.
    pub(super) fn piece(&mut self, piece: &str, out: &mut Vec<Output>) {
        self.streamed.push_str(piece);
        self.follow(out);
    }

    /// Shows what goes on from what was shown; what differs waits until it is certain.
    fn follow(&mut self, out: &mut Vec<Output>) {
        let new = self.streamed.strip_prefix(self.shown.as_str()).filter(|new| !new.is_empty());
        if let Some(new) = new.map(str::to_owned) {
            self.part(self.id.clone().as_deref(), out);
            out.push(Output::Delta(new));
            self.shown = self.streamed.clone();
        }
    }

    /// Between two messages there is a gap. It counts as finished text: whatever becomes of the
    /// second, it stays.
    fn part(&mut self, id: Option<&str>, out: &mut Vec<Output>) {
        let is_same = id.is_some() && id == self.settled_id.as_deref();
        if self.settled > 0 && self.shown.is_empty() && !self.is_parted && !is_same {
            self.is_parted = true;
            self.settled += GAP.len();
            out.push(Output::Delta(GAP.into()));
        }
    }

    /// A finished block: this is what stands, whatever was streamed.
    pub(super) fn whole(&mut self, id: Option<&str>, text: &str, out: &mut Vec<Output>) {
        let is_open = id.is_some() && id == self.id.as_deref();
        if !is_open {
            self.streamed.clear();
        }
        self.part(id, out);
        let ahead = self.shown.strip_prefix(text).map(str::to_owned);
        match (&ahead, text.strip_prefix(self.shown.as_str())) {
            // More than this block was shown, and the stream still says so.
            (Some(_), _) if is_open && self.streamed.starts_with(&self.shown) => {}
            (_, Some("")) => {}
            (_, Some(new)) => out.push(Output::Delta(new.to_owned())),
            (_, None) => {
                out.push(Output::Again { keep: self.settled });
                out.push(Output::Delta(text.to_owned()));
                self.shown = text.to_owned();
            }
        }
        self.shown = self.shown.strip_prefix(text).unwrap_or_default().to_owned();
        self.streamed = self.streamed.strip_prefix(text).unwrap_or_default().to_owned();
        self.settled += text.len();
        (self.settled_id, self.is_parted) = (id.map(str::to_owned), false);
        self.follow(out);
    }

    /// The run is over and went well: a stream that was never stated as a whole stands as it is.
    pub(super) fn settle(&mut self, out: &mut Vec<Output>) {
        if self.streamed != self.shown {
            out.push(Output::Again { keep: self.settled });
            out.push(Output::Delta(std::mem::take(&mut self.streamed)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(out: &[Output]) -> String {
        let mut text = String::new();
        for output in out {
            match output {
                Output::Delta(piece) => text.push_str(piece),
                Output::Again { keep } => text.truncate(*keep),
                Output::Event { .. }
                | Output::Warning(_)
                | Output::Model(_)
                | Output::Usage(_)
                | Output::Reason(_)
                | Output::FarId(_)
                | Output::Interrupt(_)
                | Output::CallBegan(_)
                | Output::CallEnded(_)
                | Output::Member(_) => {}
            }
        }
        text
    }

    #[test]
    fn a_message_that_was_streamed_is_not_told_twice() {
        let (mut text, mut out) = (Text::default(), Vec::new());
        text.open(Some("a"));
        text.piece("One ", &mut out);
        text.piece("two.", &mut out);
        text.whole(Some("a"), "One two.", &mut out);
        text.piece("Three.", &mut out);
        text.whole(Some("a"), "Three.", &mut out);
        text.whole(Some("b"), "Four.", &mut out);
        assert_eq!(told(&out), "One two.Three.\n\nFour.");
        assert!(!out.iter().any(|output| matches!(output, Output::Again { .. })));
    }

    #[test]
    fn a_message_that_begins_anew_goes_on_where_the_broken_one_was() {
        let (mut text, mut out) = (Text::default(), Vec::new());
        text.whole(None, "Before. ", &mut out);
        text.open(Some("a"));
        text.piece("Hello the", &mut out);
        text.open(Some("b"));
        text.piece("Hello", &mut out);
        text.piece(" there.", &mut out);
        assert_eq!(told(&out), "Before. \n\nHello there.");
        text.whole(Some("b"), "Hello there.", &mut out);
        assert_eq!(told(&out), "Before. \n\nHello there.");
        assert!(!out.iter().any(|output| matches!(output, Output::Again { .. })));
    }

    #[test]
    fn a_message_that_differs_waits_until_it_is_whole() {
        let (mut text, mut out) = (Text::default(), Vec::new());
        text.whole(None, "Before. ", &mut out);
        text.open(Some("a"));
        text.piece("Partial", &mut out);
        text.open(Some("b"));
        text.piece("More", &mut out);
        assert_eq!(told(&out), "Before. \n\nPartial", "nothing is certain yet");
        text.whole(Some("b"), "More.", &mut out);
        assert_eq!(told(&out), "Before. \n\nMore.");
        assert!(out.contains(&Output::Again { keep: 10 }));
    }
}
