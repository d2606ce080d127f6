//! Faces: the protocols in which a stream is served. A new one is a file here and a row in the list.
//!
//! A face turns what the one reader meets (frames, and where the run stands) into the bytes of a body. It never
//! looks at the clock, and what it writes depends on the stream alone: that is what makes a resume possible.

pub(crate) mod agui;
pub(crate) mod cap;

use bytes::Bytes;
use capstan_journal::{JournalError, RunState};
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use agui::Agui;
pub(crate) use cap::Cap;

use crate::app::App;
use crate::reader::View;

/// The face in which one response is written.
pub(crate) enum Face {
    Cap(Cap),
    Agui(Box<Agui>),
}

/// A face, as a query names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaceName {
    Cap,
    AgUi,
}

/// How a body goes on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// With these bytes; there may be none.
    Write(Bytes),
    /// With these, and then it is complete.
    Last(Bytes),
    /// It is complete.
    End,
    /// It breaks off: to end it cleanly would be to say something that is not so.
    Cut,
}

impl Face {
    /// Frames that are due.
    pub(crate) async fn frames(&mut self, app: &App, frames: Vec<Bytes>) -> Result<Next, JournalError> {
        match self {
            Self::Cap(cap) => Ok(Next::Write(cap.frames(frames))),
            Self::Agui(agui) => agui.frames(app, &frames).await,
        }
    }

    /// All frames were read and the run stands still.
    pub(crate) fn caught_up(&mut self, app: &App, state: RunState, view: View) -> Next {
        match (self, state, view) {
            (Self::Agui(agui), _, _) => agui.caught_up(app, state, view),
            (Self::Cap(_), RunState::Closed, _) | (Self::Cap(_), RunState::Waiting, View::Post) => Next::End,
            // A viewer stays: the next step comes when the run goes on.
            (Self::Cap(_), RunState::Waiting | RunState::Running, _) => Next::Write(Bytes::new()),
        }
    }

    /// The server goes down while the body is open.
    pub(crate) fn closing(&self) -> Next {
        match self {
            Self::Cap(_) => Next::End,
            // A clean end without a terminal event would be read as success.
            Self::Agui(_) => Next::Cut,
        }
    }
}
