//! What the routes say of themselves: a row each, beside its handler. From these rows, the wire
//! models and the catalogue come `/openapi.json` and `/docs`; nothing about a route is written down
//! twice.

mod bodies;
mod document;
mod headers;
mod models;
mod page;
mod parameters;
mod routes;
mod schemas;

use capstan_protocol::FaultKind;
use capstan_protocol::fault::Entry;
use schemars::{Schema, SchemaGenerator};

use crate::identity::scopes::Operation;
pub use bodies::{Body, of_user};
pub use document::document;
pub use headers::{
    ALLOW_RESET, CURSOR, ETAG, Header, KNOWN_TAG, REQUEST_ID, STREAM_ID, STREAM_TICKET, TENANT_ID,
    WAIT,
};
pub use page::page;
pub use parameters::{AGENT, FILE, PathParameter, SESSION, SLUG, STREAM, TENANT, VIEW};
pub use routes::{Described, Routes};
pub use schemas::{of_session, of_stream};

/// A type's JSON Schema.
pub type Model = fn(&mut SchemaGenerator) -> Schema;

/// A model by its type: `model::<T>`.
pub fn model<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// One route and method, in words and types. Statuses of refusals are not here: they are the
/// faults' own.
pub struct Row {
    /// Which part of the page it belongs to.
    pub tag: &'static Tag,
    /// A headline.
    pub summary: &'static str,
    /// What it does, in markdown of the plainest kind: paragraphs and `code`.
    pub says: &'static str,
    /// What stands in the braces of the path, in their order.
    pub places: &'static [&'static PathParameter],
    /// A struct with a member for each parameter of the query: its own schema, not a reference.
    pub query: Option<Model>,
    /// Headers that it reads, beside those that all read.
    pub headers: &'static [&'static Header],
    /// What is posted.
    pub body: Option<&'static Body>,
    /// How it answers when nothing is in the way.
    pub answers: &'static [Answer],
    /// Why it may refuse, beside what any route of its kind may say.
    pub faults: &'static [FaultKind],
    /// It may also answer with the fault of a run, which is any.
    pub tells_of_run: bool,
    /// How its face words them, if not as problems.
    pub refusals: Option<&'static Refusals>,
    /// What its requests do, which decides the scopes that they need.
    pub does: Does,
}

/// What the requests of a route do.
#[derive(Debug, Clone, Copy)]
pub enum Does {
    /// What its method says: GET reads, POST starts a run, DELETE stops one.
    Usual,
    /// Always this.
    This(Operation),
    /// The request chooses, by its body or the end of its path. The handler checks the scopes once
    /// it knows.
    AsRequested,
}

impl Row {
    /// For the rest of a row.
    pub const NONE: Self = Self {
        tag: &Tag::SERVER,
        summary: "",
        says: "",
        places: &[],
        query: None,
        headers: &[],
        body: None,
        answers: &[],
        faults: &[],
        tells_of_run: false,
        refusals: None,
        does: Does::Usual,
    };
}

/// Faults in the words of a face.
pub struct Refusals {
    /// The status of a fault.
    pub status: fn(&Entry) -> u16,
    pub content: Content,
}

/// A part of the page.
#[derive(Debug, PartialEq, Eq)]
pub struct Tag {
    pub name: &'static str,
    /// What belongs to it.
    pub says: &'static str,
}

impl Tag {
    pub const RUNS: Self =
        Self { name: "Runs", says: "Start a run, or attach to one that was started." };
    pub const STREAMS: Self = Self {
        name: "Streams",
        says: "Watch, list, page through, stop and erase the streams of runs.",
    };
    pub const SESSIONS: Self =
        Self { name: "Sessions", says: "What a conversation remembers, and how it is forgotten." };
    pub const FAULTS: Self = Self {
        name: "Faults",
        says: "The catalogue: every way in which a request or a run can fail.",
    };
    pub const CONSOLE: Self = Self {
        name: "Console",
        says: "What runs, and why it failed: for tenants of their own, for operators of those \
         they look after.",
    };
    pub const SERVER: Self = Self { name: "Server", says: "How the server feels, and its pages." };
}

/// One way to answer.
pub struct Answer {
    pub status: u16,
    pub says: &'static str,
    /// Media types; none is an empty body.
    pub content: &'static [Content],
    pub headers: &'static [&'static Header],
    /// What can be done next.
    pub links: &'static [Link],
}

impl Answer {
    /// 200 with one kind of content.
    pub const fn ok(says: &'static str, content: &'static [Content]) -> Self {
        Self { status: 200, says, content, headers: &[], links: &[] }
    }
}

/// A body of an answer.
pub enum Content {
    /// `application/json`.
    Json(Model),
    /// `text/event-stream`, whose `data:` lines hold this.
    Events(Model),
    /// Text of another media type.
    Text(&'static str),
}

/// A route that goes on where an answer ends: `GET /v1/streams/{id}` and what to put into the
/// braces or the query.
pub struct Link {
    pub method: &'static str,
    pub path: &'static str,
    pub parameter: &'static str,
    /// A runtime expression of OpenAPI.
    pub value: &'static str,
}
