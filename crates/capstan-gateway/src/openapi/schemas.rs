//! What several routes answer with, and where to go from there.

use schemars::{Schema, SchemaGenerator, json_schema};

use super::Link;
use crate::face;

/// An event of any face.
pub(crate) fn events_of_any_face(generator: &mut SchemaGenerator) -> Schema {
    let events: Vec<Schema> = face::all().iter().map(|face| face.events()(generator)).collect();
    json_schema!({ "anyOf": events })
}

/// The names of all faces.
pub(crate) fn face_names(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<&str> = face::all().iter().map(|face| face.name()).collect();
    json_schema!({ "enum": names })
}

const STREAM: &str = "$response.header.X-Stream-ID";

pub(crate) const fn of_stream(method: &'static str, path: &'static str) -> Link {
    Link { method, path, parameter: "id", value: STREAM }
}

pub(crate) const fn of_session(method: &'static str, value: &'static str) -> Link {
    Link { method, path: "/v1/sessions/{id}", parameter: "id", value }
}
