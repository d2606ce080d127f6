//! How a face encodes a run: from frames and the run's state to the bytes of one response.

use std::time::Duration;

use bytes::Bytes;
use capstan_journal::{Frames, JournalError, RunState};
use capstan_protocol::sse;
use futures_util::future::BoxFuture;

use crate::face::FaceContext;

/// Encodes one response: it turns frames and states of the run into the bytes of a body. What it
/// writes depends on the stream alone, never on the clock. That makes a resume possible.
pub trait FaceWriter: Send {
    /// The packet after which the reader begins.
    fn base(&self) -> u64;

    /// The first bytes of the body, which are sent at once. They may be empty.
    fn opening(&mut self, cx: &FaceContext) -> Bytes;

    /// Encodes the next frames.
    fn frames<'a>(&'a mut self, cx: &'a FaceContext, frames: Frames) -> Emit<'a>;

    /// The reader has read all frames, and the run is in this state.
    fn caught_up(&mut self, cx: &FaceContext, state: RunState, view: ViewerKind) -> BodyStep;

    /// The server shuts down while the body is open, or the body has reached `max_duration`.
    fn closing(&mut self) -> BodyStep;

    /// The longest time that a body stays open, for protocols whose caches need an end.
    fn max_duration(&self) -> Option<Duration> {
        None
    }

    /// The bytes that are written after an interval without others.
    fn heartbeat(&self) -> &'static [u8] {
        sse::HEARTBEAT
    }

    /// The interval, given the configured one.
    fn heartbeat_interval(&self, configured: Duration) -> Duration {
        configured
    }
}

/// Encodes the events of a run as items of a list, for protocols that poll.
pub trait Items: Send {
    /// Encodes the items of these frames, each as JSON.
    fn encode(&mut self, frames: &Frames) -> Vec<String>;
}

/// The result of encoding frames.
pub enum Emit<'a> {
    /// The usual case: the result is ready.
    Now(BodyStep),
    /// The writer has to read the journal first.
    Later(BoxFuture<'a, Result<BodyStep, JournalError>>),
}

/// The next step of a body.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyStep {
    /// Write these bytes, which may be empty.
    Write(Bytes),
    /// Write these bytes, and end the body.
    Last(Bytes),
    /// End the body.
    End,
    /// Cut the connection, because a clean end would claim that the answer is complete.
    Cut,
}

/// The kind of a viewer. It decides what a viewer gets when the run waits or has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewerKind {
    /// The client itself, by POST. When the run waits, the body ends and the client comes back. If
    /// it resumes after the end, it gets the CLOSE again.
    Post,
    /// A viewer that only watches, by GET. The body stays open while the run waits.
    Get,
}
