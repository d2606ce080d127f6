//! Describes the routes: each has a row beside its handler. `/openapi.json` and `/docs` are made
//! from these rows, the wire models and the catalogue, so nothing about a route is written twice.

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

/// The description of one route and method. Statuses of refusals come from the faults.
pub struct Row {
    /// The section of the page.
    pub tag: &'static Tag,
    /// A headline.
    pub summary: &'static str,
    /// What it does, in markdown of the plainest kind: paragraphs and `code`.
    pub says: &'static str,
    /// The parameters of the path, in order.
    pub places: &'static [&'static PathParameter],
    /// A struct with a member for each parameter of the query: its own schema, not a reference.
    pub query: Option<Model>,
    /// Request headers, beside those of all routes.
    pub headers: &'static [&'static Header],
    /// The request body.
    pub body: Option<&'static Body>,
    /// The successful answers.
    pub answers: &'static [Answer],
    /// The faults of this route, beside those of all routes of its kind.
    pub faults: &'static [FaultKind],
    /// Whether the route may also answer with the fault of a run, which may be any.
    pub tells_of_run: bool,
    /// The face's own form of refusals, if it has one.
    pub refusals: Option<&'static Refusals>,
    /// The operation, which decides the scopes.
    pub does: Does,
}

/// The operation of a route.
#[derive(Debug, Clone, Copy)]
pub enum Does {
    /// By method: GET reads, POST starts a run, DELETE stops one.
    Usual,
    /// Always this.
    This(Operation),
    /// The body or the end of the path chooses the operation, so the handler checks the scopes.
    AsRequested,
}

impl Row {
    /// The default of all members.
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

/// A face's own form of faults.
pub struct Refusals {
    /// The status of a fault.
    pub status: fn(&Entry) -> u16,
    pub content: Content,
}

/// A section of the page.
#[derive(Debug, PartialEq, Eq)]
pub struct Tag {
    pub name: &'static str,
    /// The description of the section.
    pub says: &'static str,
}

impl Tag {
    pub const RUNS: Self =
        Self { name: "Runs", says: "Start a run, or attach to one that was started." };
    pub const STREAMS: Self = Self {
        name: "Streams",
        says: "Watch, list, page through, stop and erase the streams of runs.",
    };
    pub const SESSIONS: Self = Self {
        name: "Sessions",
        says: "The stored turns of a conversation, and how to erase \
            them.",
    };
    pub const FAULTS: Self =
        Self { name: "Faults", says: "The catalogue of all faults of requests and runs." };
    pub const CONSOLE: Self = Self {
        name: "Console",
        says: "Runs and their failures: a tenant sees its own, an operator those of its tenants.",
    };
    pub const SERVER: Self =
        Self { name: "Server", says: "The health of the server, and its pages." };
}

/// An answer of a route.
pub struct Answer {
    pub status: u16,
    pub says: &'static str,
    /// Media types; none is an empty body.
    pub content: &'static [Content],
    pub headers: &'static [&'static Header],
    /// Links to further routes.
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

/// A link from an answer to another route, such as `GET /v1/streams/{id}`, with its parameters.
pub struct Link {
    pub method: &'static str,
    pub path: &'static str,
    pub parameter: &'static str,
    /// A runtime expression of OpenAPI.
    pub value: &'static str,
}
