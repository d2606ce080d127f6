//! The trait of a face: a protocol that clients speak to the gateway.
//!
//! A face owns everything that its protocol defines: routes and their description, how a body is
//! decoded, the key of a request, refusals, and how a stream is encoded. All faces share one
//! request path (`post`) and one response path (`reader`). Neither knows which faces exist.

pub mod context;
pub mod count_tokens;
pub mod delivery;
pub mod last_event_id;
pub mod models;
pub mod passthrough;
pub mod post;
pub mod reader;
pub mod repeats;
pub mod sent_answers;
pub mod taken_back;
mod trace_context;
pub mod writer;

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use capstan_agent::{Turn, async_trait};
use capstan_journal::{ArmedBy, Run, RunState};
use capstan_protocol::{ChatMessage, Fault, FaultKind};
use http::HeaderMap;
use http::request::Parts;
use uuid::Uuid;

use crate::face::last_event_id::resume_point;
use crate::face::reader::ViewerKind;
use crate::openapi::{Model, Routes};
use crate::refusal::Refusal;
use capstan_engine::ask::{Ask, RequestBody};
use capstan_engine::ports::Protocols;
use capstan_engine::resume::ResumePoint;
pub use context::{FaceContext, FaceObserver, Shared, Site, WeakContext};
pub use delivery::{DueDelivery, WebhookMessage};
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

    /// Finds a face by its name.
    pub fn named(&self, name: &str) -> Option<&Arc<dyn Face>> {
        self.iter().find(|face| face.name() == name)
    }

    fn face_of(&self, run: &Run) -> Option<&Arc<dyn Face>> {
        self.named(&run.face)
    }
}

impl Protocols for Faces {
    fn decode(&self, protocol: &str, body: &RequestBody) -> Option<Result<Ask, Fault>> {
        self.named(protocol).map(|face| face.decode(body))
    }

    fn native_messages(&self, protocol: &str, body: &[u8]) -> Option<Vec<ChatMessage>> {
        self.named(protocol)?.native_messages(body)
    }

    fn asks_for_rest(&self, run: &Run) -> bool {
        self.face_of(run).is_some_and(|face| face.asks_for_rest(run))
    }

    fn ends_unread(&self, run: &Run) -> bool {
        self.face_of(run).is_some_and(|face| face.ends_unread(run))
    }

    fn is_keyless(&self, run: &Run) -> bool {
        self.face_of(run).is_some_and(|face| face.is_keyless(run))
    }

    fn forget(&self, stream: Uuid) {
        self.0.iter().for_each(|face| face.forget(stream));
    }
}

/// How often each face does its periodic work.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(60);

/// Runs the periodic work of all faces, for as long as it is polled.
pub async fn maintain(cx: &FaceContext, faces: &Faces) {
    loop {
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        for face in faces.iter() {
            face.maintain(cx).await;
        }
    }
}

/// A protocol that clients speak to the gateway.
#[async_trait]
pub trait Face: Send + Sync + 'static {
    /// The face's name in the records of its runs, and in queries.
    fn name(&self) -> &'static str;

    /// The face's routes, each with the row that describes it.
    fn routes(self: Arc<Self>) -> Routes<FaceContext>;

    /// Routes that need no key. For example: a client reads what an agent can do before it has one.
    fn open_routes(self: Arc<Self>) -> Routes<FaceContext> {
        Routes::default()
    }

    /// Request headers of this protocol, beside those of all faces. Pages of other origins may send
    /// them.
    fn request_headers(&self) -> &'static [&'static str] {
        &[]
    }

    /// Response headers of this protocol. Pages of other origins may read them.
    fn response_headers(&self) -> &'static [&'static str] {
        &[]
    }

    /// The model of the face's events, for the description of routes that serve any face.
    fn events(&self) -> Model;

    /// The types of the face's events, if metrics count them.
    fn event_types(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the face decodes bodies of this media type.
    fn reads(&self, media_type: &str) -> bool {
        media_type.eq_ignore_ascii_case("application/json")
    }

    /// Decodes a body. The gateway decodes the stored body again when it continues a run itself.
    fn decode(&self, body: &RequestBody) -> Result<Ask, Fault>;

    /// The messages of a stored body, with the items that the client wrote. `None` if the messages
    /// of `decode` say all of it.
    fn native_messages(&self, _body: &[u8]) -> Option<Vec<ChatMessage>> {
        None
    }

    /// Adds to a request what its body does not contain: values from headers or from the journal.
    /// The run's record stores session, chat and previous run, so a later attempt has them.
    async fn complete(
        &self,
        _cx: &FaceContext,
        _tenant: &str,
        _parts: &Parts,
        _ask: &mut Ask,
    ) -> Result<(), Fault> {
        Ok(())
    }

    /// The key under which a request runs at most once. By default the body contains it. The key of
    /// an existing run attaches the request to that run.
    async fn key(&self, _cx: &FaceContext, request: &Request<'_>) -> Result<String, Fault> {
        Ok(request.ask.key.clone())
    }

    /// The position after which the request wants to resume.
    fn resume_point(&self, request: &Parts) -> Result<ResumePoint, Fault> {
        resume_point(&request.headers)
    }

    /// Whether the client of this request understands a reset.
    fn accepts_reset(&self, _request: &Parts) -> bool {
        false
    }

    /// Whether the client waits for one object at the end, and sees nothing of the run before.
    fn wants_collected(&self, _request: &Request<'_>) -> bool {
        false
    }

    /// Who starts the next attempt if the run of this request has to wait.
    fn armed_by(&self, _request: &Request<'_>) -> ArmedBy {
        ArmedBy::Client
    }

    /// Whether the gateway posts the end of this request's run to the tenant's webhook.
    fn sends_webhook(&self, _ask: &Ask) -> bool {
        false
    }

    /// Whether the client of this run asks by itself for the rest of an answer that broke off
    /// behind a complete block. It may come back later than other clients.
    fn asks_for_rest(&self, _run: &Run) -> bool {
        false
    }

    /// Whether the gateway stops a run of this face that had no reader for a while, because its
    /// client cannot come back.
    fn ends_unread(&self, _run: &Run) -> bool {
        false
    }

    /// Whether no request can name this run. Then a repeated request may attach to it if it has no
    /// reader.
    fn is_keyless(&self, run: &Run) -> bool {
        self.ends_unread(run)
    }

    /// The answer in one object, if the request wants one. `None` for a stream.
    async fn collected(
        &self,
        _cx: &FaceContext,
        _request: &Request<'_>,
        _run: &Run,
    ) -> Option<Response> {
        None
    }

    /// Encodes a refusal in the protocol's own form. `None` for problem details.
    fn refuse(
        &self,
        _cx: &FaceContext,
        _fault: &Fault,
        _target: RefusalTarget<'_>,
    ) -> Option<Response> {
        None
    }

    /// Whether this face encodes all refusals at this path. They include a missing key, an unknown
    /// path and a wrong method, which are refused before the face sees the request.
    fn owns(&self, _path: &str) -> bool {
        false
    }

    /// Creates the writer of a response.
    async fn open(
        &self,
        cx: &FaceContext,
        request: ViewRequest<'_>,
    ) -> Result<Box<dyn FaceWriter>, Fault>;

    /// The run's events after a packet as items of a list. `None` if the face has no such form.
    async fn items(
        &self,
        _cx: &FaceContext,
        _run: &Run,
        _after: u64,
    ) -> Result<Option<Box<dyn Items>>, Fault> {
        Ok(None)
    }

    /// Drops all caches of a stream that was erased.
    fn forget(&self, _stream: Uuid) {}

    /// The delivery that this turn of the internal agent makes, if this face has begun it.
    fn delivery_of(&self, _turn: &Turn) -> Option<DueDelivery> {
        None
    }

    /// Builds the message of a delivery of this face, after the run has ended.
    async fn delivery_message(
        &self,
        _cx: &FaceContext,
        _run: &Run,
        _turn: &Turn,
    ) -> Result<WebhookMessage, Fault> {
        Err(Fault::new(FaultKind::StreamNotFound))
    }

    /// Does the face's periodic work.
    async fn maintain(&self, _cx: &FaceContext) {}

    /// Whether this viewer has received the whole run already.
    async fn has_all(&self, _cx: &FaceContext, request: &ViewRequest<'_>) -> Result<bool, Fault> {
        let after = request.point.in_run(request.run)?;
        Ok(request.run.state == RunState::Closed && after >= request.run.last_seq)
    }

    /// Adds this protocol's headers to the response of a stream.
    async fn headers(
        &self,
        _cx: &FaceContext,
        _request: &ViewRequest<'_>,
        _headers: &mut HeaderMap,
    ) -> Result<(), Fault> {
        Ok(())
    }
}

/// The request that is refused, as far as it was read.
#[derive(Clone, Copy)]
pub enum RefusalTarget<'a> {
    /// A request to this path that was refused before its face saw it.
    BeforeFace(&'a str),
    /// A request whose body was not decoded.
    Undecoded(&'a Parts),
    /// A request that only watches a run.
    Viewer(&'a Parts),
    /// A request whose body was decoded.
    Client(&'a Parts, &'a Ask),
}

impl<'a> RefusalTarget<'a> {
    /// The request's path.
    pub fn path(self) -> &'a str {
        match self {
            Self::BeforeFace(path) => path,
            Self::Undecoded(parts) | Self::Viewer(parts) | Self::Client(parts, _) => {
                parts.uri.path()
            }
        }
    }

    /// The head of the request, with the extensions that a route of the face has added.
    pub fn parts(self) -> Option<&'a Parts> {
        match self {
            Self::BeforeFace(_) => None,
            Self::Undecoded(parts) | Self::Viewer(parts) | Self::Client(parts, _) => Some(parts),
        }
    }
}

/// A POST whose body was decoded.
pub struct Request<'a> {
    pub tenant: &'a str,
    pub parts: &'a Parts,
    pub body: &'a RequestBody,
    /// The agent that the path names.
    pub agent: Option<&'a str>,
    /// The hash by which a repeat of the body is known.
    pub hash: [u8; 32],
    pub ask: &'a Arc<Ask>,
}

/// A request to read a run.
#[derive(Clone, Copy)]
pub struct ViewRequest<'a> {
    pub run: &'a Run,
    pub point: ResumePoint,
    pub view: ViewerKind,
    pub parts: &'a Parts,
    /// The request that was posted, if it is a POST.
    pub posted: Option<&'a Ask>,
}

/// Builds the refusal of a request to this face.
pub fn refusal(
    cx: &FaceContext,
    face: &dyn Face,
    fault: Fault,
    target: RefusalTarget<'_>,
) -> Refusal {
    let shaped = face.refuse(cx, &fault, target);
    Refusal::from(fault).shaped_as(shaped)
}
