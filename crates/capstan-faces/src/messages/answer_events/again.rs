//! A later attempt takes back thoughts and the text behind them. A client cannot take back
//! anything. If the text comes again, it goes on where it was. The client keeps the first thoughts
//! with their signature, and does not get the new ones.

use capstan_protocol::{Event, EventView, Fault, FaultKind, NATIVE};
use serde_json::Value;

use super::super::event::Sink;
use super::{AnswerEvents, End};

/// The text that the client has.
pub(super) struct Again {
    text: String,
    /// How much of it has come again.
    at: usize,
}

impl AnswerEvents {
    /// After a reset: `told` is the text before it, and `kept` the length of what is left of it.
    pub(in super::super) fn go_back(&mut self, told: String, kept: usize) {
        let text = self.again.take().map_or(told, |again| again.text);
        self.sealer.skip();
        self.again = Some(Again { text, at: kept }).filter(|again| again.at < again.text.len());
    }

    /// Takes a text that the client may have.
    pub(super) fn say_again(&mut self, seq: u64, text: &str, sink: &mut impl Sink) -> Option<End> {
        let again = self.again.as_mut()?;
        let rest = again.text.get(again.at..).unwrap_or_default();
        if rest.starts_with(text) && rest.len() > text.len() {
            again.at += text.len();
            return None;
        }
        let Some(new) = text.strip_prefix(rest) else { return Some(diverged()) };
        self.again = None;
        self.say(seq, new, sink);
        None
    }

    /// Takes an event before the text has come again. Thoughts are left out, but a part at the end
    /// of the answer may need them.
    pub(super) fn event_again(&mut self, seq: u64, event: Event) -> Option<End> {
        match event.view() {
            EventView::Reset(reset) => self.reset(seq, reset.after_seq),
            EventView::Thought(trace) => {
                self.sealer.thought(&trace.thought);
                None
            }
            EventView::Progress(_) | EventView::Media(_) | EventView::UserError(_) => None,
            EventView::Other if event.kind.as_deref() == Some(NATIVE) => {
                self.native_again(seq, &event.data);
                None
            }
            EventView::Markdown(_)
            | EventView::Citations(_)
            | EventView::Interrupt(_)
            | EventView::Other => Some(diverged()),
        }
    }

    fn native_again(&mut self, seq: u64, data: &Value) {
        match data.get("event") {
            Some(event) => {
                self.native.take_end(seq, event);
            }
            None => self.sealer.skip(),
        }
    }
}

fn diverged() -> End {
    End::Failed(Fault::new(FaultKind::AttemptDiverged))
}
