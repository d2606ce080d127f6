//! Every strict case of the conformance vectors gets the reference's verdict and canonical form.

use crate::common::{deep, is_strict, vectors};
use capstan_protocol::Profile;
use capstan_protocol::model::{self, Model};
use serde_json::Value;

fn model_of(case: &Value) -> Option<&'static Model> {
    let profile: Profile = case["profile"].as_str().unwrap().parse().unwrap();
    model::find(profile, case["model"].as_str().unwrap())
}

/// Equal as the vectors mean it: numbers by value, a missing member equals null, placeholders match
/// anything.
fn same(expected: &Value, found: &Value) -> bool {
    match (expected, found) {
        (Value::String(mark), Value::String(_)) if mark == "<uuid>" || mark == "<now>" => true,
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            // Each name once: visiting shared ones twice would double the work at every level.
            let mut names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            names.all(|name| {
                same(a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null))
            })
        }
        _ => expected == found,
    }
}

fn check(case: &Value, text: &str) -> Result<(), String> {
    let (id, why) = (&case["id"], &case["why"]);
    let verdict = model_of(case).ok_or_else(|| format!("{id}: no such model"))?.canonical(text);
    match (case["accept"] == true, verdict) {
        (true, Err(e)) => Err(format!("{id}: refused ({e}), but {why}: {text}")),
        (false, Ok(found)) => Err(format!("{id}: accepted as {found}, but {why}")),
        (false, Err(_)) => Ok(()),
        (true, Ok(found)) => {
            let found: Value = deep(&found);
            if !same(&case["canonical"], &found) {
                return Err(format!("{id}: canonical {found}, expected {}", case["canonical"]));
            }
            for pair in case["same"].as_array().into_iter().flatten() {
                let at = |n: usize| found.pointer(pair[n].as_str().unwrap());
                if at(0) != at(1) {
                    return Err(format!("{id}: {pair} differ"));
                }
            }
            Ok(())
        }
    }
}

fn report(failures: Vec<String>, total: usize, at_least: usize) {
    assert!(total >= at_least, "only {total} cases were run");
    assert!(
        failures.is_empty(),
        "{} of {total} cases differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn every_strict_model_case_gets_the_references_verdict() {
    let cases: Vec<Value> = vectors("cap/models.jsonl").into_iter().filter(is_strict).collect();
    let cases: Vec<Value> =
        cases.into_iter().filter(|case| case["model"] != "SSE-from-packet").collect();
    let failures =
        cases.iter().filter_map(|case| check(case, &case["input"].to_string()).err()).collect();
    report(failures, cases.len(), 1600);
}

#[test]
fn every_strict_text_case_gets_the_references_verdict() {
    let cases: Vec<Value> = vectors("cap/text.jsonl").into_iter().filter(is_strict).collect();
    let failures =
        cases.iter().filter_map(|case| check(case, case["raw"].as_str().unwrap()).err()).collect();
    report(failures, cases.len(), 60);
}

#[test]
fn no_case_lax_or_not_panics() {
    for case in vectors("cap/models.jsonl") {
        let _ = model_of(&case).map(|model| model.canonical(&case["input"].to_string()));
    }
    for case in vectors("cap/text.jsonl") {
        let _ = model_of(&case).map(|model| model.canonical(case["raw"].as_str().unwrap()));
    }
}
