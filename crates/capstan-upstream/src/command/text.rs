//! The text of a process's messages. It comes twice: streamed in pieces, then as a complete block.
//!
//! Viewers get it once. If a stream breaks and the process begins its message again, viewers have
//! seen text that is void. The new text is held back until it has reached the same length, or is
//! complete.

use capstan_agent::Output;

/// The text between two messages: a paragraph break of markdown.
const GAP: &str = "\n\n";

/// The text of the messages, in their order.
#[derive(Debug, Default)]
pub(super) struct Text {
    /// Finished blocks.
    blocks: Vec<Finished>,
    /// Their length in bytes, with a gap that was sent after them.
    settled: usize,
    /// The id of the message that the finished text ends with, if it has one.
    settled_id: Option<String>,
    /// A gap was sent after the finished text.
    is_parted: bool,
    /// The id of the message that is streamed.
    id: Option<String>,
    /// Its stream is over.
    is_over: bool,
    /// Its text since the last finished block.
    streamed: String,
    /// What viewers have seen beyond the finished text.
    shown: String,
}

/// A finished block: the id of its frame, and its text with the gap before it.
#[derive(Debug)]
struct Finished {
    frame: Option<String>,
    text: String,
}

/// A complete block from a frame.
pub(super) struct Stated<'a> {
    /// The id of the message.
    pub(super) id: Option<&'a str>,
    /// The id of the frame, by which the CLI can retract it.
    pub(super) frame: Option<&'a str>,
    pub(super) text: &'a str,
}

impl Text {
    /// Begins a message.
    pub(super) fn open(&mut self, id: Option<&str>) {
        self.id = id.map(str::to_owned);
        self.is_over = false;
        self.streamed.clear();
        self.close();
    }

    /// Ends the stream of a message. It may have been cut, so nothing else happens.
    pub(super) fn end(&mut self) {
        self.is_over = true;
    }

    /// Drops the streamed message: the process will write it again, with or without a stream.
    pub(super) fn abandon(&mut self) {
        self.open(None);
    }

    /// Closes the message: later text belongs to another one, even with the same id.
    pub(super) fn close(&mut self) {
        self.settled_id = None;
    }

    /// Takes a piece.
    pub(super) fn piece(&mut self, piece: &str, out: &mut Vec<Output>) {
        self.streamed.push_str(piece);
        self.follow(out);
    }

    /// Sends the part that continues what viewers have seen. Text that differs waits until it is
    /// certain.
    fn follow(&mut self, out: &mut Vec<Output>) {
        let new = self.streamed.strip_prefix(self.shown.as_str()).filter(|new| !new.is_empty());
        if let Some(new) = new.map(str::to_owned) {
            self.part(self.id.clone().as_deref(), out);
            out.push(Output::Delta(new));
            self.shown = self.streamed.clone();
        }
    }

    /// Sends the gap between two messages. It counts as finished text: it stays even if the second
    /// message does not.
    fn part(&mut self, id: Option<&str>, out: &mut Vec<Output>) {
        let is_same = id.is_some() && id == self.settled_id.as_deref();
        if self.settled > 0 && self.shown.is_empty() && !self.is_parted && !is_same {
            self.is_parted = true;
            self.settled += GAP.len();
            out.push(Output::Delta(GAP.into()));
        }
    }

    /// Takes a finished block, which replaces the streamed text.
    pub(super) fn whole(&mut self, stated: Stated<'_>, out: &mut Vec<Output>) {
        let Stated { id, frame, text } = stated;
        let is_open = id.is_some() && id == self.id.as_deref();
        if !is_open {
            self.streamed.clear();
        }
        self.part(id, out);
        let ahead = self.shown.strip_prefix(text).map(str::to_owned);
        match (&ahead, text.strip_prefix(self.shown.as_str())) {
            // Viewers have seen more than this block, and the stream still agrees.
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
        let gap = if self.is_parted { GAP } else { "" };
        let finished = Finished { frame: frame.map(str::to_owned), text: format!("{gap}{text}") };
        self.blocks.push(finished);
        (self.settled_id, self.is_parted) = (id.map(str::to_owned), false);
        self.follow(out);
    }

    /// The message calls a tool and has no text before it. Removes what viewers have seen of a
    /// message that it replaces.
    pub(super) fn calls(&mut self, out: &mut Vec<Output>) {
        if !self.shown.is_empty() && self.streamed.is_empty() {
            self.take_back(self.blocks.len(), out);
        }
    }

    /// Removes the text of these frames. Sends the later text again.
    pub(super) fn retract(&mut self, frames: &[&str], out: &mut Vec<Output>) {
        let is_named =
            |block: &Finished| block.frame.as_deref().is_some_and(|frame| frames.contains(&frame));
        let Some(first) = self.blocks.iter().position(is_named) else { return };
        let rest: Vec<Finished> =
            self.blocks.split_off(first).into_iter().filter(|block| !is_named(block)).collect();
        self.take_back(first, out);
        for mut block in rest {
            if self.settled == 0 {
                block.text = block.text.strip_prefix(GAP).unwrap_or(&block.text).to_owned();
            }
            self.settled += block.text.len();
            out.push(Output::Delta(block.text.clone()));
            self.blocks.push(block);
        }
        self.follow(out);
    }

    /// Drops the streamed message: it was refused, and no frame contains it.
    pub(super) fn refuse(&mut self, out: &mut Vec<Output>) {
        if self.is_over && !self.shown.is_empty() {
            self.streamed.clear();
            self.take_back(self.blocks.len(), out);
        }
    }

    /// Removes all text after the first blocks.
    fn take_back(&mut self, blocks: usize, out: &mut Vec<Output>) {
        self.blocks.truncate(blocks);
        self.settled = self.blocks.iter().map(|block| block.text.len()).sum();
        self.shown.clear();
        self.is_parted = false;
        self.settled_id = None;
        out.push(Output::Again { keep: self.settled });
    }

    /// The run ended well: streamed text without a complete block counts as it is.
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

    fn stated<'a>(id: Option<&'a str>, text: &'a str) -> Stated<'a> {
        Stated { id, frame: id, text }
    }

    fn written(out: &[Output]) -> String {
        let mut text = String::new();
        for output in out {
            match output {
                Output::Delta(piece) => text.push_str(piece),
                Output::Again { keep } => text.truncate(*keep),
                Output::Event { .. }
                | Output::Continued(_)
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
    fn a_streamed_message_is_sent_once() {
        let (mut text, mut out) = (Text::default(), Vec::new());
        text.open(Some("a"));
        text.piece("One ", &mut out);
        text.piece("two.", &mut out);
        text.whole(stated(Some("a"), "One two."), &mut out);
        text.piece("Three.", &mut out);
        text.whole(stated(Some("a"), "Three."), &mut out);
        text.whole(stated(Some("b"), "Four."), &mut out);
        assert_eq!(written(&out), "One two.Three.\n\nFour.");
        assert!(!out.iter().any(|output| matches!(output, Output::Again { .. })));
    }

    #[test]
    fn a_repeated_message_continues_the_broken_one() {
        let (mut text, mut out) = (Text::default(), Vec::new());
        text.whole(stated(None, "Before. "), &mut out);
        text.open(Some("a"));
        text.piece("Hello the", &mut out);
        text.open(Some("b"));
        text.piece("Hello", &mut out);
        text.piece(" there.", &mut out);
        assert_eq!(written(&out), "Before. \n\nHello there.");
        text.whole(stated(Some("b"), "Hello there."), &mut out);
        assert_eq!(written(&out), "Before. \n\nHello there.");
        assert!(!out.iter().any(|output| matches!(output, Output::Again { .. })));
    }

    #[test]
    fn a_message_that_differs_waits_until_it_is_whole() {
        let (mut text, mut out) = (Text::default(), Vec::new());
        text.whole(stated(None, "Before. "), &mut out);
        text.open(Some("a"));
        text.piece("Partial", &mut out);
        text.open(Some("b"));
        text.piece("More", &mut out);
        assert_eq!(written(&out), "Before. \n\nPartial", "nothing is certain yet");
        text.whole(stated(Some("b"), "More."), &mut out);
        assert_eq!(written(&out), "Before. \n\nMore.");
        assert!(out.contains(&Output::Again { keep: 10 }));
    }

    #[test]
    fn retracted_text_is_reset_and_later_text_is_sent_again() {
        let (mut text, mut out) = (Text::default(), Vec::new());
        text.whole(stated(Some("a"), "One."), &mut out);
        text.whole(stated(Some("b"), "Two."), &mut out);
        text.whole(stated(Some("c"), "Three."), &mut out);
        text.open(Some("d"));
        text.piece("Fo", &mut out);
        text.retract(&["b", "x"], &mut out);
        text.piece("ur.", &mut out);
        assert_eq!(written(&out), "One.\n\nThree.\n\nFour.");
        text.retract(&["a"], &mut out);
        text.whole(stated(Some("d"), "Four."), &mut out);
        assert_eq!(written(&out), "Three.\n\nFour.");
        text.retract(&["a", "b"], &mut out);
        assert_eq!(written(&out), "Three.\n\nFour.", "it is gone already");
    }

    #[test]
    fn an_empty_second_try_resets_the_first() {
        let (mut text, mut out) = (Text::default(), Vec::new());
        text.whole(stated(None, "Before."), &mut out);
        text.open(Some("a"));
        text.piece("Partial", &mut out);
        text.end();
        text.abandon();
        text.open(Some("b"));
        assert_eq!(written(&out), "Before.\n\nPartial", "it may be said again");
        text.calls(&mut out);
        assert_eq!(written(&out), "Before.");
    }

    #[test]
    fn a_refused_stream_is_reset_and_a_continued_one_is_not() {
        let (mut text, mut out) = (Text::default(), Vec::new());
        text.open(Some("a"));
        text.piece("I can", &mut out);
        text.end();
        text.refuse(&mut out);
        assert_eq!(written(&out), "");
        text.open(Some("b"));
        text.piece("Here", &mut out);
        text.refuse(&mut out);
        assert_eq!(written(&out), "Here");
    }
}
