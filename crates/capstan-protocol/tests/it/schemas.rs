//! The generated JSON Schemas say what the decoder does: they are checked against the same vectors.

use std::collections::BTreeMap;

use crate::common::{is_strict, vectors};
use capstan_protocol::Profile;
use capstan_protocol::model::{MODELS, Model};
use jsonschema::Validator;
use schemars::generate::SchemaSettings;
use serde_json::Value;

fn validator(model: &Model) -> Validator {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let schema = model.schema(&mut generator).to_value();
    jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
}

fn by_model() -> BTreeMap<(String, String), Validator> {
    MODELS.iter().map(|m| ((m.profile.to_string(), m.name.to_owned()), validator(m))).collect()
}

fn cases(accept: bool) -> Vec<Value> {
    let is_wanted = |case: &Value| {
        is_strict(case) && case["accept"] == accept && case["model"] != "SSE-from-packet"
    };
    vectors("cap/models.jsonl").into_iter().filter(is_wanted).collect()
}

fn verdicts(accept: bool) -> (usize, Vec<String>) {
    let validators = by_model();
    let cases = cases(accept);
    let key = |case: &Value| {
        (case["profile"].as_str().unwrap().to_owned(), case["model"].as_str().unwrap().to_owned())
    };
    let differs = |case: &&Value| validators[&key(case)].is_valid(&case["input"]) != accept;
    let wrong = cases
        .iter()
        .filter(differs)
        .map(|case| format!("{} {}", case["id"], case["why"]))
        .collect();
    (cases.len(), wrong)
}

#[test]
fn every_accepted_document_fits_its_schema() {
    let (total, wrong) = verdicts(true);
    // The reference knows no lower bound for seq; our schema says what our decoder takes.
    let wrong: Vec<_> = wrong.into_iter().filter(|case| !case.contains("seq ")).collect();
    assert!(wrong.is_empty(), "{} of {total}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn nearly_every_refused_document_breaks_its_schema() {
    let (total, wrong) = verdicts(false);
    // What a schema cannot say: lineage, dates and URLs that only look right.
    assert!(wrong.len() * 20 < total, "{} of {total}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_model_has_a_schema_with_a_title() {
    for model in MODELS {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let schema = model.schema(&mut generator);
        assert!(schema.get("title").is_some(), "{} {}", model.profile, model.name);
    }
    assert!(MODELS.iter().any(|m| m.profile == Profile::V2));
}

/// A link of rustdoc leads nowhere in a schema.
#[test]
fn descriptions_have_no_links_into_the_code() {
    for model in MODELS {
        let mut generator = SchemaSettings::draft2020_12().into_generator();
        let schema = model.schema(&mut generator).to_value().to_string();
        for link in ["[`", "crate::", "super::"] {
            assert!(!schema.contains(link), "{} {}: {link}", model.profile, model.name);
        }
    }
}
