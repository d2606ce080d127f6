//! What routes that serve any face say of it.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::face::{self, FaceSettings};

/// An event of any face.
pub(crate) fn events_of_any_face(generator: &mut SchemaGenerator) -> Schema {
    let events: Vec<Schema> =
        face::all(&FaceSettings::default()).iter().map(|face| face.events()(generator)).collect();
    json_schema!({ "anyOf": events })
}

/// The names of all faces.
pub(crate) fn face_names(_: &mut SchemaGenerator) -> Schema {
    let names: Vec<&str> =
        face::all(&FaceSettings::default()).iter().map(|face| face.name()).collect();
    json_schema!({ "enum": names })
}
