//! The conformance vectors, for every suite that reads them.

use std::path::PathBuf;

use serde_json::Value;

pub(crate) fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(file)
}

pub(crate) fn text(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

pub(crate) fn vectors(file: &str) -> Vec<Value> {
    text(file).split('\n').filter(|line| !line.is_empty()).map(deep).collect()
}

/// Parses without serde_json's depth limit: a case may sit right at it, and the vector wraps it
/// once more.
pub(crate) fn deep(line: &str) -> Value {
    let mut reader = serde_json::Deserializer::from_str(line);
    reader.disable_recursion_limit();
    serde::Deserialize::deserialize(&mut reader).unwrap()
}

/// A case whose verdict is the contract's, not an accident of the reference.
pub(crate) fn is_strict(case: &Value) -> bool {
    let tags = case["tags"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_quirk =
        |tag: &Value| tag.as_str().is_some_and(|t| t.starts_with("quirk:") || t == "bigint");
    case["lax"] != true && !tags.iter().any(is_quirk)
}
