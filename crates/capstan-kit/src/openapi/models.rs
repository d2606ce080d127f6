//! The wire models under `components/schemas`. What is read and what is written may differ in one
//! model (a member that is filled in may be left out, but is always written), so there are two
//! generators.

use std::collections::BTreeSet;

use schemars::SchemaGenerator;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Map, Value};

use super::Model;

/// Collects models, and gives references to them.
pub(super) struct Models {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

/// Where the references of each generator point until all names are known.
const READ: &str = "#/read/";
const WRITTEN: &str = "#/written/";

impl Models {
    pub(super) fn new() -> Self {
        let generator = |path: &'static str, contract| {
            let settings = SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = path.into();
                settings.meta_schema = None;
                settings.contract = contract;
            });
            settings.into_generator()
        };
        Self {
            read: generator(READ, Contract::Deserialize),
            written: generator(WRITTEN, Contract::Serialize),
        }
    }

    /// A model in a request.
    pub(super) fn read(&mut self, model: Model) -> Value {
        model(&mut self.read).to_value()
    }

    /// A model in a response.
    pub(super) fn written(&mut self, model: Model) -> Value {
        model(&mut self.written).to_value()
    }

    /// The models under their final names; the references of the document are made to point at
    /// them.
    pub(super) fn settle(mut self, document: &mut Value) -> Value {
        let (read, written) =
            (self.read.take_definitions(true), self.written.take_definitions(true));
        let split = split(&read, &written);
        let of_read = |name: &str| {
            if split.contains(name) { format!("{}-Input", plain(name)) } else { plain(name) }
        };
        let mut schemas: Map<String, Value> =
            written.into_iter().map(|(name, schema)| (plain(&name), schema)).collect();
        schemas.extend(read.into_iter().map(|(name, schema)| (of_read(&name), schema)));
        schemas.sort_keys();
        let mut schemas = Value::Object(schemas);
        for value in [document, &mut schemas] {
            redirect(value, &|reference| {
                let read = reference.strip_prefix(READ).map(of_read);
                let name = read.or_else(|| reference.strip_prefix(WRITTEN).map(plain));
                name.map(|name| format!("#/components/schemas/{name}"))
            });
        }
        schemas
    }
}

/// The generator numbers namesakes; ours are the two profiles, of which v1 comes first.
fn plain(name: &str) -> String {
    name.strip_suffix('2').map_or_else(|| name.to_owned(), |name| format!("{name}V2"))
}

/// The names of models whose request form differs from their response form, also in a nested model.
fn split(read: &Map<String, Value>, written: &Map<String, Value>) -> BTreeSet<String> {
    let text = |models: &Map<String, Value>, name: &str| {
        models.get(name).map(|schema| schema.to_string().replace(READ, "#/").replace(WRITTEN, "#/"))
    };
    let shared: Vec<&String> = read.keys().filter(|name| written.contains_key(*name)).collect();
    let differs = |name: &&&String| text(read, name) != text(written, name);
    let mut split: BTreeSet<String> =
        shared.iter().filter(differs).map(|name| (*name).clone()).collect();
    loop {
        let holds_one = |name: &&&String| {
            let schema = text(read, name).unwrap_or_default();
            split.iter().any(|other| schema.contains(&format!("\"#/{other}\"")))
        };
        let more: Vec<String> =
            shared.iter().filter(holds_one).map(|name| (*name).clone()).collect();
        let known = split.len();
        split.extend(more);
        if split.len() == known {
            return split;
        }
    }
}

/// Rewrites every reference that `target` knows.
fn redirect(value: &mut Value, target: &dyn Fn(&str) -> Option<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match (name.as_str(), member.as_str().and_then(target)) {
                    ("$ref", Some(reference)) => *member = reference.into(),
                    _ => redirect(member, target),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| redirect(item, target)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
