//! JSON Schemas of all wire models: `schemas/<profile>/<Model>.json`, and those of v1 in one file
//! for the Python package.

use std::collections::BTreeMap;

use capstan_protocol::Profile;
use capstan_protocol::model::{MODELS, Model};
use schemars::Schema;
use schemars::generate::SchemaSettings;

use super::Files;

pub(super) fn files() -> Files {
    let write = |model: &Model| {
        let path = format!("schemas/{}/{}.json", model.profile, model.name);
        (path.into(), format!("{}\n", serde_json::to_string_pretty(&of(model)).unwrap_or_default()))
    };
    let mut files: Files = MODELS.iter().map(write).collect();
    let path = "bindings/python/python/coreason_client/schemas.json";
    files.insert(path.into(), for_python());
    files
}

fn of(model: &Model) -> Schema {
    model.schema(&mut SchemaSettings::draft2020_12().into_generator())
}

/// Pydantic asks the package for them at runtime. Without this file it would have to be compiled
/// with the generator.
fn for_python() -> String {
    let v1 = MODELS.iter().filter(|model| model.profile == Profile::V1);
    let schemas: BTreeMap<_, _> = v1.map(|model| (model.name, of(model))).collect();
    format!("{}\n", serde_json::to_string(&schemas).unwrap_or_default())
}
