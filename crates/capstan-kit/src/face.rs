//! What a face is: a protocol in which runs are asked for and told.
//!
//! A face owns everything that its protocol has an opinion on: routes and their description, the
//! body it reads, the key of a request, refusals, and how a stream is told. There is one way in for
//! all of them (`post`) and one way out (`reader`); neither knows which faces there are.

pub mod context;
pub mod count_tokens;
pub mod delivery;
pub mod heard;
pub mod last_event_id;
pub mod models;
pub mod passthrough;
pub mod post;
pub mod reader;
pub mod repeats;
pub mod taken_back;
mod trace_context;
pub mod writer;

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use capstan_agent::{Turn, async_trait};
use capstan_journal::{ArmedBy, Run, RunState};
use capstan_protocol::{Fault, FaultKind};
use http::HeaderMap;
use http::request::Parts;
use uuid::Uuid;

use crate::face::last_event_id::resume_point;
use crate::face::reader::ViewerKind;
use crate::openapi::{Model, Routes};
use crate::refusal::Refusal;
use capstan_engine::ask::Ask;
use capstan_engine::ports::Protocols;
use capstan_engine::resume::ResumePoint;
pub use context::{FaceContext, FaceObserver, Shared, Site, WeakContext};
pub use delivery::{DueDelivery, Parcel};
pub use writer::{BodyStep, Emit, FaceWriter, Items};

/// The protocols of a gateway. Cheap to clone.
#[derive(Clone)]
pub struct Faces(Arc<[Arc<dyn Face>]>);

impl From<Vec<Arc<dyn Face>>> for Faces {
    fn from(faces: Vec<Arc<dyn Face>>) -> Self {
        Self(faces.into())
    }
}

impl Faces {
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Face>> {
        self.0.iter()
    }

    /// The face under a name.
    pub fn named(&self, name: &str) -> Option<&Arc<dyn Face>> {
        self.iter().find(|face| face.name() == name)
    }

    fn of(&self, run: &Run) -> Option<&Arc<dyn Face>> {
        self.named(&run.face)
    }
}

impl Protocols for Faces {
    fn decode(&self, protocol: &str, body: &[u8]) -> Option<Result<Ask, Fault>> {
        self.named(protocol).map(|face| face.decode(body))
    }

    fn ends_unread(&self, run: &Run) -> bool {
        self.of(run).is_some_and(|face| face.ends_unread(run))
    }

    fn is_keyless(&self, run: &Run) -> bool {
        self.of(run).is_some_and(|face| face.is_keyless(run))
    }

    fn forget(&self, stream: Uuid) {
        self.0.iter().for_each(|face| face.forget(stream));
    }
}

/// How often faces are asked whether there is something to do.
const KEEP_EVERY: Duration = Duration::from_secs(60);

/// Asks these, for as long as it is awaited.
pub async fn keep_house(cx: &FaceContext, faces: &Faces) {
    loop {
        tokio::time::sleep(KEEP_EVERY).await;
        for face in faces.iter() {
            face.keep_house(cx).await;
        }
    }
}

/// A protocol.
#[async_trait]
pub trait Face: Send + Sync + 'static {
    /// Under which its runs are kept; a query names it like this, too.
    fn name(&self) -> &'static str;

    /// Its routes, each with the row that describes it.
    fn routes(self: Arc<Self>) -> Routes<FaceContext>;

    /// Those that are open to everybody: who reads what an agent can do has no key yet.
    fn open_routes(self: Arc<Self>) -> Routes<FaceContext> {
        Routes::default()
    }

    /// Headers that its clients send, beside those of every face: pages of other origins may send
    /// them, too.
    fn request_headers(&self) -> &'static [&'static str] {
        &[]
    }

    /// Headers that its clients read, likewise.
    fn response_headers(&self) -> &'static [&'static str] {
        &[]
    }

    /// What its events hold, for the description of routes that serve any face.
    fn events(&self) -> Model;

    /// The types of its events, if they are worth counting.
    fn event_types(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it reads bodies of this media type.
    fn reads(&self, media_type: &str) -> bool {
        media_type.eq_ignore_ascii_case("application/json")
    }

    /// Reads a body. The same body is read again when the gateway itself goes on with its run.
    fn decode(&self, body: &[u8]) -> Result<Ask, Fault>;

    /// Adds to a question what its body does not tell: what stands in the head of its request, or
    /// in the journal. What the run's record keeps of it (session, chat, previous run) need not be
    /// found again.
    async fn complete(
        &self,
        _app: &FaceContext,
        _tenant: &str,
        _parts: &Parts,
        _ask: &mut Ask,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// The key under which a request runs at most once, if the body does not say it. The key of a
    /// run that is there attaches to it.
    async fn key(&self, _app: &FaceContext, request: &Request<'_>) -> Result<String, Fault> {
        Ok(request.ask.key.clone())
    }

    /// Where a request says that it reads on.
    fn resume_point(&self, request: &Parts) -> Result<ResumePoint, Fault> {
        resume_point(&request.headers)
    }

    /// Whether a reset can be told to whoever sent this request.
    fn accepts_reset(&self, _request: &Parts) -> bool {
        false
    }

    /// Whether whoever sent this request waits for the whole run, and sees nothing of it before.
    fn wants_whole(&self, _request: &Parts) -> bool {
        false
    }

    /// Who arms the next attempt of a run that this request starts.
    fn armed_by(&self, _request: &Parts) -> ArmedBy {
        ArmedBy::Client
    }

    /// Whether the end of a run that is asked for like this is told to its tenant's webhook.
    fn tells_end(&self, _ask: &Ask) -> bool {
        false
    }

    /// Whether a run of this face is stopped when nobody has read it for a while: nobody can come
    /// back for it.
    fn ends_unread(&self, _run: &Run) -> bool {
        false
    }

    /// Whether no request can name a run of this face, so that who repeats it may have it if nobody
    /// reads it.
    fn is_keyless(&self, run: &Run) -> bool {
        self.ends_unread(run)
    }

    /// The answer to one who wants the whole run at once; `None` for a stream.
    async fn whole(
        &self,
        _app: &FaceContext,
        _request: &Request<'_>,
        _run: &Run,
    ) -> Option<Response> {
        None
    }

    /// A refusal in the protocol's own shape; `None` for problem details.
    fn refuse(
        &self,
        _app: &FaceContext,
        _fault: &Fault,
        _asker: RefusalTarget<'_>,
    ) -> Option<Response> {
        None
    }

    /// Whether refusals at this path are this face's to shape, even before it sees the request: by
    /// credentials, by a path that leads nowhere, or by a method.
    fn owns(&self, _path: &str) -> bool {
        false
    }

    /// Begins to tell a run.
    async fn open(
        &self,
        cx: &FaceContext,
        opening: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault>;

    /// Its events as items of a list, after a packet; `None` if it has none.
    async fn items(
        &self,
        _cx: &FaceContext,
        _run: &Run,
        _after: u64,
    ) -> Result<Option<Box<dyn Items>>, Fault> {
        Ok(None)
    }

    /// A stream was erased: nothing of it may be remembered.
    fn forget(&self, _stream: Uuid) {}

    /// The delivery that the internal agent is to make, if it is one of this face's.
    fn delivery_of(&self, _turn: &Turn) -> Option<DueDelivery> {
        None
    }

    /// What is to be posted for a delivery of this face's, now that its run is over.
    async fn parcel(&self, _cx: &FaceContext, _run: &Run, _turn: &Turn) -> Result<Parcel, Fault> {
        Err(Fault::new(FaultKind::StreamNotFound))
    }

    /// What is done every now and then, unasked.
    async fn keep_house(&self, _app: &FaceContext) {}

    /// Whether this viewer has all that the run will ever say.
    async fn has_all(&self, _app: &FaceContext, opening: &ViewRequest<'_>) -> Result<bool, Fault> {
        let after = opening.point.in_run(opening.run)?;
        Ok(opening.run.state == RunState::Closed && after >= opening.run.last_seq)
    }

    /// Headers of a response that tells a run, beside those of every stream.
    async fn headers(
        &self,
        _app: &FaceContext,
        _opening: &ViewRequest<'_>,
        _headers: &mut HeaderMap,
    ) -> Result<(), Fault> {
        Ok(())
    }
}

/// Who is refused.
#[derive(Clone, Copy)]
pub enum RefusalTarget<'a> {
    /// Whoever came to this path: its request was refused before its face saw it.
    Stranger(&'a str),
    /// Its request could not be read.
    Unread(&'a Parts),
    /// It only looks.
    Viewer(&'a Parts),
    /// It asked this.
    Client(&'a Parts, &'a Ask),
}

impl<'a> RefusalTarget<'a> {
    /// Where it came to.
    pub fn path(self) -> &'a str {
        match self {
            Self::Stranger(path) => path,
            Self::Unread(parts) | Self::Viewer(parts) | Self::Client(parts, _) => parts.uri.path(),
        }
    }

    /// The head of its request. What a route of the face has put into its extensions is there as
    /// well.
    pub fn parts(self) -> Option<&'a Parts> {
        match self {
            Self::Stranger(_) => None,
            Self::Unread(parts) | Self::Viewer(parts) | Self::Client(parts, _) => Some(parts),
        }
    }
}

/// A POST that was read.
pub struct Request<'a> {
    pub tenant: &'a str,
    pub parts: &'a Parts,
    pub body: &'a Bytes,
    /// The agent that the path names.
    pub agent: Option<&'a str>,
    /// By which repeats of the body are known.
    pub hash: [u8; 32],
    pub ask: &'a Arc<Ask>,
}

/// A viewer that comes to a run.
#[derive(Clone, Copy)]
pub struct ViewRequest<'a> {
    pub run: &'a Run,
    pub point: ResumePoint,
    pub view: ViewerKind,
    pub parts: &'a Parts,
    /// What was posted, if it comes by POST.
    pub posted: Option<&'a Ask>,
}

/// The answer to a request of this face that failed.
pub fn refusal(
    cx: &FaceContext,
    face: &dyn Face,
    fault: Fault,
    asker: RefusalTarget<'_>,
) -> Refusal {
    let shaped = face.refuse(cx, &fault, asker);
    Refusal::from(fault).shaped_as(shaped)
}
