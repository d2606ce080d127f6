//! JSON Schemas of all wire models: `schemas/<profile>/<Model>.json`.

use capstan_protocol::model::MODELS;
use schemars::generate::SchemaSettings;

use super::Files;

pub(super) fn files() -> Files {
    let write = |model: &capstan_protocol::model::Model| {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let schema = model.schema(&mut generator);
        let path = format!("schemas/{}/{}.json", model.profile, model.name);
        (path.into(), format!("{}\n", serde_json::to_string_pretty(&schema).unwrap_or_default()))
    };
    MODELS.iter().map(write).collect()
}
