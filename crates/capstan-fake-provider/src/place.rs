//! THE PLACES in a stream at which a fault can strike.

use std::fmt;
use std::str::FromStr;

use crate::shape::{Frame, Mark, Part};

/// A place in a stream. A fault strikes only at answers that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// After the headers, before the first event.
    BeforeEvents,
    /// After the event that opens the stream, before any content.
    AfterStart,
    /// Half-way through the thinking's text.
    MidThinking,
    /// After the thinking, before anything else.
    AfterThinking,
    /// Half-way through the text.
    MidText,
    /// After the text.
    AfterText,
    /// Half-way through the first tool call's arguments.
    MidArguments,
    /// After the content, before the event with the finish reason.
    BeforeFinish,
    /// Before the last event.
    BeforeEnd,
}

/// The places by name.
pub const PLACES: [(Place, &str); 9] = [
    (Place::BeforeEvents, "before-events"),
    (Place::AfterStart, "after-start"),
    (Place::MidThinking, "mid-thinking"),
    (Place::AfterThinking, "after-thinking"),
    (Place::MidText, "mid-text"),
    (Place::AfterText, "after-text"),
    (Place::MidArguments, "mid-arguments"),
    (Place::BeforeFinish, "before-finish"),
    (Place::BeforeEnd, "before-end"),
];

impl Place {
    /// The number of frames before this place; none if the stream does not have it.
    pub(crate) fn cut(self, frames: &[Frame]) -> Option<usize> {
        let after_last =
            |part| Some(frames.iter().rposition(|frame| frame.part == Some(part))? + 1);
        match self {
            Self::BeforeEvents => Some(0),
            Self::AfterStart => frames.iter().position(|frame| frame.part.is_some()),
            Self::MidThinking => half(frames, Part::Thinking),
            Self::AfterThinking => after_last(Part::Thinking),
            Self::MidText => half(frames, Part::Text),
            Self::AfterText => after_last(Part::Text),
            Self::MidArguments => half(frames, Part::FirstArguments),
            Self::BeforeFinish => Some(frames.iter().rposition(|frame| frame.part.is_some())? + 1),
            Self::BeforeEnd => frames.len().checked_sub(1),
        }
    }
}

/// After half of a part's tokens, at least one.
fn half(frames: &[Frame], part: Part) -> Option<usize> {
    let is_token = |frame: &Frame| frame.mark == Mark::Token && frame.part == Some(part);
    let tokens = frames.iter().enumerate().filter(|(_, frame)| is_token(frame));
    let places: Vec<usize> = tokens.map(|(place, _)| place + 1).collect();
    places.get((places.len() / 2).max(1) - 1).copied()
}

impl FromStr for Place {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        PLACES.iter().find(|(_, own)| *own == name).map(|(place, _)| *place).ok_or(())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = PLACES.iter().find(|(place, _)| place == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}
