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
pub(crate) use bodies::{Body, of_user};
pub(crate) use document::document;
pub(crate) use headers::{
    ALLOW_RESET, CURSOR, ETAG, Header, KNOWN_TAG, REQUEST_ID, STREAM_ID, STREAM_TICKET, TENANT_ID,
    WAIT,
};
pub(crate) use page::page;
pub(crate) use parameters::{AGENT, FILE, PathParameter, SESSION, SLUG, STREAM, TENANT, VIEW};
pub(crate) use routes::{Described, Routes};
pub(crate) use schemas::{of_session, of_stream};

/// A type's JSON Schema.
pub(crate) type Model = fn(&mut SchemaGenerator) -> Schema;

/// A model by its type: `model::<T>`.
pub(crate) fn model<T: schemars::JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// One route and method, in words and types. Statuses of refusals are not here: they are the
/// faults' own.
pub(crate) struct Row {
    /// Which part of the page it belongs to.
    pub(crate) tag: &'static Tag,
    /// A headline.
    pub(crate) summary: &'static str,
    /// What it does, in markdown of the plainest kind: paragraphs and `code`.
    pub(crate) says: &'static str,
    /// What stands in the braces of the path, in their order.
    pub(crate) places: &'static [&'static PathParameter],
    /// A struct with a member for each parameter of the query: its own schema, not a reference.
    pub(crate) query: Option<Model>,
    /// Headers that it reads, beside those that all read.
    pub(crate) headers: &'static [&'static Header],
    /// What is posted.
    pub(crate) body: Option<&'static Body>,
    /// How it answers when nothing is in the way.
    pub(crate) answers: &'static [Answer],
    /// Why it may refuse, beside what any route of its kind may say.
    pub(crate) faults: &'static [FaultKind],
    /// It may also answer with the fault of a run, which is any.
    pub(crate) tells_of_run: bool,
    /// How its face words them, if not as problems.
    pub(crate) refusals: Option<&'static Refusals>,
    /// What its requests do, which decides the scopes that they need.
    pub(crate) does: Does,
}

/// What the requests of a route do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Does {
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
    pub(crate) const NONE: Self = Self {
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
pub(crate) struct Refusals {
    /// The status of a fault.
    pub(crate) status: fn(&Entry) -> u16,
    pub(crate) content: Content,
}

/// A part of the page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) name: &'static str,
    /// What belongs to it.
    pub(crate) says: &'static str,
}

impl Tag {
    pub(crate) const RUNS: Self =
        Self { name: "Runs", says: "Start a run, or attach to one that was started." };
    pub(crate) const STREAMS: Self = Self {
        name: "Streams",
        says: "Watch, list, page through, stop and erase the streams of runs.",
    };
    pub(crate) const SESSIONS: Self =
        Self { name: "Sessions", says: "What a conversation remembers, and how it is forgotten." };
    pub(crate) const FAULTS: Self = Self {
        name: "Faults",
        says: "The catalogue: every way in which a request or a run can fail.",
    };
    pub(crate) const CONSOLE: Self = Self {
        name: "Console",
        says: "What runs, and why it failed: for tenants of their own, for operators of those \
         they look after.",
    };
    pub(crate) const SERVER: Self =
        Self { name: "Server", says: "How the server feels, and its pages." };
}

/// One way to answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) says: &'static str,
    /// Media types; none is an empty body.
    pub(crate) content: &'static [Content],
    pub(crate) headers: &'static [&'static Header],
    /// What can be done next.
    pub(crate) links: &'static [Link],
}

impl Answer {
    /// 200 with one kind of content.
    pub(crate) const fn ok(says: &'static str, content: &'static [Content]) -> Self {
        Self { status: 200, says, content, headers: &[], links: &[] }
    }
}

/// A body of an answer.
pub(crate) enum Content {
    /// `application/json`.
    Json(Model),
    /// `text/event-stream`, whose `data:` lines hold this.
    Events(Model),
    /// Text of another media type.
    Text(&'static str),
}

/// A route that goes on where an answer ends: `GET /v1/streams/{id}` and what to put into the
/// braces or the query.
pub(crate) struct Link {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) parameter: &'static str,
    /// A runtime expression of OpenAPI.
    pub(crate) value: &'static str,
}
