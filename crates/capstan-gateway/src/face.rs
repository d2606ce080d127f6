//! Faces: the protocols in which runs are asked for and told. A new one is a file here and a row in [`all`].
//!
//! A face owns everything that its protocol has an opinion on: routes and their description, the body it reads, the key
//! of a request, refusals, and how a stream is told. There is one way in for all of them (`post`) and one way out
//! (`reader`); neither knows which faces there are.

pub(crate) mod agui;
pub(crate) mod cap;
#[cfg(test)]
mod numbers;

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use capstan_agent::async_trait;
use capstan_journal::{ArmedBy, JournalError, Run, RunState};
use capstan_protocol::{Fault, sse};
use futures_util::future::BoxFuture;
use http::HeaderMap;
use http::request::Parts;
use uuid::Uuid;

use crate::app::App;
use crate::ask::Ask;
use crate::openapi::{Model, Routes};
use crate::reader::View;
use crate::refusal::Refusal;
use crate::resume::ResumePoint;

/// The faces of every gateway, one row each. They hold what they remember between requests.
pub(crate) fn all() -> Vec<Arc<dyn Face>> {
    vec![
        Arc::new(cap::Cap),
        Arc::new(agui::Agui::default()),
        #[cfg(test)]
        Arc::new(numbers::Numbers),
    ]
}

/// A protocol.
#[async_trait]
pub(crate) trait Face: Send + Sync + 'static {
    /// Under which its runs are kept; a query names it like this, too.
    fn name(&self) -> &'static str;

    /// Its routes, each with the row that describes it.
    fn routes(self: Arc<Self>) -> Routes;

    /// What its events hold, for the description of routes that serve any face.
    fn events(&self) -> Model;

    /// The types of its events, if they are worth counting.
    fn event_types(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reads a body. The same body is read again whenever its run is attempted.
    fn decode(&self, body: &[u8]) -> Result<Ask, Fault>;

    /// The key under which a request runs at most once, if the body does not say it.
    fn key(&self, ask: &Ask, _request: &Request<'_>) -> String {
        ask.key.clone()
    }

    /// Where a request says that it reads on.
    fn resume_point(&self, request: &Parts) -> Result<ResumePoint, Fault> {
        ResumePoint::of_headers(&request.headers)
    }

    /// Whether a reset can be told to whoever sent this request.
    fn accepts_reset(&self, _request: &Parts) -> bool {
        false
    }

    /// Whether whoever sent this request waits for the whole run, and sees nothing of it before.
    fn wants_whole(&self, _request: &Parts) -> bool {
        false
    }

    /// Who arms the next attempt of a run that this face started.
    fn armed_by(&self) -> ArmedBy {
        ArmedBy::Client
    }

    /// The answer to one who wants the whole run at once; `None` for a stream.
    async fn whole(&self, _app: &App, _request: &Request<'_>, _run: &Run) -> Option<Response> {
        None
    }

    /// A refusal in the protocol's own shape; `None` for problem details.
    fn refuse(&self, _app: &App, _fault: &Fault, _asker: Asker<'_>) -> Option<Response> {
        None
    }

    /// Whether refusals at this path are this face's to shape, even before it sees the request: those by credentials.
    fn owns(&self, _path: &str) -> bool {
        false
    }

    /// Begins to tell a run.
    async fn open(&self, app: &App, opening: Opening<'_>) -> Result<Box<dyn FaceWriter>, Fault>;

    /// A stream was erased: nothing of it may be remembered.
    fn forget(&self, _stream: Uuid) {}

    /// Whether this viewer has all that the run will ever say.
    async fn has_all(&self, _app: &App, opening: &Opening<'_>) -> Result<bool, Fault> {
        let after = opening.point.in_run(opening.run)?;
        Ok(opening.run.state == RunState::Closed && after >= opening.run.last_seq)
    }

    /// Headers of a response that tells a run, beside those of every stream.
    async fn headers(
        &self,
        _app: &App,
        _opening: &Opening<'_>,
        _headers: &mut HeaderMap,
    ) -> Result<(), Fault> {
        Ok(())
    }
}

/// Who is refused.
#[derive(Clone, Copy)]
pub(crate) enum Asker<'a> {
    /// Its request could not be read, or was refused before anybody tried.
    Unread,
    /// It only looks.
    Viewer,
    /// It asked this.
    Client(&'a Ask),
}

/// A POST that was read.
pub(crate) struct Request<'a> {
    pub(crate) tenant: &'a str,
    pub(crate) parts: &'a Parts,
    pub(crate) body: &'a Bytes,
    pub(crate) ask: &'a Arc<Ask>,
}

/// A viewer that comes to a run.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'a> {
    pub(crate) run: &'a Run,
    pub(crate) point: ResumePoint,
    pub(crate) view: View,
    pub(crate) parts: &'a Parts,
    /// What was posted, if it comes by POST.
    pub(crate) posted: Option<&'a Ask>,
}

/// One response. It turns what the reader meets (frames, and where the run stands) into the bytes of a body. What it
/// writes depends on the stream alone, never on the clock: that is what makes a resume possible.
pub(crate) trait FaceWriter: Send {
    /// The packet after which the journal is read.
    fn base(&self) -> u64;

    /// What the body begins with, at once; there may be nothing.
    fn opening(&mut self, app: &App) -> Bytes;

    /// Frames that are due.
    fn frames<'a>(&'a mut self, app: &'a App, frames: Vec<Bytes>) -> Telling<'a>;

    /// All frames were read and the run stands still.
    fn caught_up(&mut self, app: &App, state: RunState, view: View) -> Next;

    /// The server goes down while the body is open.
    fn closing(&mut self) -> Next;

    /// What is written when nothing else was for an interval.
    fn heartbeat(&self) -> &'static [u8] {
        sse::HEARTBEAT
    }

    /// The interval, given the one that is set.
    fn heartbeat_every(&self, set: Duration) -> Duration {
        set
    }
}

/// How frames are told.
pub(crate) enum Telling<'a> {
    /// As nearly always: nothing else is needed.
    Now(Next),
    /// The journal has to be asked first.
    Later(BoxFuture<'a, Result<Next, JournalError>>),
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

/// The answer to a request of this face that failed.
pub(crate) fn refusal(app: &App, face: &dyn Face, fault: Fault, asker: Asker<'_>) -> Refusal {
    let shaped = face.refuse(app, &fault, asker);
    Refusal::from(fault).shaped_as(shaped)
}
