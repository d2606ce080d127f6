//! How a face tells a run: from frames and the run's standing to the bytes of one response.

use std::time::Duration;

use bytes::Bytes;
use capstan_journal::{Frames, JournalError, RunState};
use capstan_protocol::sse;
use futures_util::future::BoxFuture;

use crate::face::FaceContext;

/// One response. It turns what the reader meets (frames, and where the run stands) into the bytes
/// of a body. What it writes depends on the stream alone, never on the clock: that is what makes a
/// resume possible.
pub trait FaceWriter: Send {
    /// The packet after which the journal is read.
    fn base(&self) -> u64;

    /// What the body begins with, at once; there may be nothing.
    fn opening(&mut self, cx: &FaceContext) -> Bytes;

    /// Frames that are due.
    fn frames<'a>(&'a mut self, cx: &'a FaceContext, frames: Frames) -> Emit<'a>;

    /// All frames were read and the run stands still.
    fn caught_up(&mut self, cx: &FaceContext, state: RunState, view: ViewerKind) -> BodyStep;

    /// The server goes down while the body is open, or it has lasted as long as it may.
    fn closing(&mut self) -> BodyStep;

    /// How long a body lasts at most, where caches between want to see an end.
    fn lasts(&self) -> Option<Duration> {
        None
    }

    /// What is written when nothing else was for an interval.
    fn heartbeat(&self) -> &'static [u8] {
        sse::HEARTBEAT
    }

    /// The interval, given the one that is set.
    fn heartbeat_every(&self, set: Duration) -> Duration {
        set
    }
}

/// The events of a run as items of a list, for those who read it by other means than a stream.
pub trait Items: Send {
    /// The items of frames, each as JSON.
    fn take(&mut self, frames: &Frames) -> Vec<String>;
}

/// How frames are told.
pub enum Emit<'a> {
    /// As nearly always: nothing else is needed.
    Now(BodyStep),
    /// The journal has to be asked first.
    Later(BoxFuture<'a, Result<BodyStep, JournalError>>),
}

/// How a body goes on.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyStep {
    /// With these bytes; there may be none.
    Write(Bytes),
    /// With these, and then it is complete.
    Last(Bytes),
    /// It is complete.
    End,
    /// It breaks off: to end it cleanly would be to say something that is not so.
    Cut,
}

/// How a viewer came, which decides what happens when the run waits for its client, or is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewerKind {
    /// By POST: it is the client. When the run waits, the body ends and it comes back; past the end
    /// it gets the CLOSE again, so that it knows.
    Post,
    /// By GET: it only watches, so the body stays open while the run waits.
    Get,
}
