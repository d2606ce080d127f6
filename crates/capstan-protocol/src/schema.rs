//! Corrections to derived JSON Schemas where decoding is hand-written: members that decoding fills
//! in are optional.

use schemars::Schema;
use serde_json::Value;

fn make_optional(schema: &mut Schema, names: &[&str]) {
    if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !names.iter().any(|optional| name == optional));
    }
}

/// `AgentRequest` of both profiles: ids, time and the empty collections are filled in, and a null
/// root is none.
pub(crate) fn agent_request(schema: &mut Schema) {
    make_optional(
        schema,
        &["request_id", "root_request_id", "timestamp", "metadata", "files", "meta"],
    );
    let root =
        schema.get_mut("properties").and_then(|properties| properties.get_mut("root_request_id"));
    if let Some(kind) = root.and_then(|root| root.get_mut("type")) {
        *kind = serde_json::json!(["string", "null"]);
    }
}

/// v2's `PresentationEvent` and `ChatMessage`: id and time are filled in.
pub(crate) fn stamped(schema: &mut Schema) {
    make_optional(schema, &["id", "timestamp"]);
}

/// v2's `GraphEvent`: the members alone may identify a kind, so several kinds may fit.
pub(crate) fn graph_event(schema: &mut Schema) {
    let Some(Value::Array(mut kinds)) = schema.remove("oneOf") else { return };
    for kind in &mut kinds {
        if let Some(required) = kind.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| name != "event_type");
        }
    }
    schema.insert("anyOf".into(), Value::Array(kinds));
}
