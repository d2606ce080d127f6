//! Writes a route as a working command line.

use serde_json::Value;

use super::{Operation, array, members};
use crate::html::escape;

/// The default address of a gateway.
const BASE: &str = "http://127.0.0.1:8787";

pub(super) fn curl(operation: Operation<'_>) -> String {
    let mut words = vec!["curl".to_owned()];
    if operation.object["responses"]["200"]["content"].get("text/event-stream").is_some() {
        words.push("-N".into());
    }
    if operation.method == "delete" {
        words.push("-X DELETE".into());
    }
    let body =
        members(&operation.object["requestBody"]["content"]["application/json"]["examples"]).next();
    if operation.method == "post" && body.is_none() {
        words.push("-X POST".into());
    }
    words.push(format!("'{BASE}{}'", target(operation)));
    let mut lines = vec![words.join(" ")];
    if array(&operation.object["security"]).count() > 0 {
        lines.push("  -H \"Authorization: Bearer $CAPSTAN_KEY\"".into());
    }
    if let Some((_, example)) = body {
        let body = serde_json::to_string_pretty(&example["value"]).unwrap_or_default();
        lines.push("  -H 'Content-Type: application/json'".into());
        lines.push(format!("  -d '{body}'"));
    }
    format!("<h4>Example</h4><pre tabindex=0><code>{}</code></pre>", escape(&lines.join(" \\\n")))
}

/// The path with examples for its parameters, and the required parameters of the query.
fn target(operation: Operation<'_>) -> String {
    let mut path = operation.path.to_owned();
    let mut query = Vec::new();
    for parameter in operation.parameters() {
        let name = parameter["name"].as_str().unwrap_or_default();
        let example = parameter.get("example").or_else(|| parameter["schema"]["examples"].get(0));
        let example = example.and_then(Value::as_str).unwrap_or_default();
        match (parameter["in"].as_str(), parameter["required"] == true) {
            (Some("path"), _) => path = path.replace(&format!("{{{name}}}"), example),
            (Some("query"), true) => query.push(format!("{name}={example}")),
            _ => {}
        }
    }
    if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
}
