//! Describes schemas in a few words: a type, a choice, a link to a model.

use serde_json::Value;

use super::{array, members, table};
use crate::html::{escape, inline};

/// What a schema allows, in one line.
pub(super) fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|to| to.rsplit('/').next()) {
        return format!("<a href=\"#model-{0}\"><code>{0}</code></a>", escape(name));
    }
    for (name, word) in [("allOf", " and "), ("anyOf", " or "), ("oneOf", " or ")] {
        let parts: Vec<String> = array(&schema[name]).map(kind).collect();
        if !parts.is_empty() {
            return parts.join(word);
        }
    }
    let values: Vec<&Value> = array(&schema["enum"]).chain(schema.get("const")).collect();
    if !values.is_empty() {
        return values.into_iter().map(value).collect::<Vec<_>>().join(", ");
    }
    let types = &schema["type"];
    let types: Vec<String> = types
        .as_str()
        .into_iter()
        .chain(array(types).filter_map(Value::as_str))
        .map(|one| plain(one, schema))
        .collect();
    if types.is_empty() { "anything".to_owned() } else { types.join(" or ") }
}

fn value(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("<code>{}</code>", escape(&text))
}

fn plain(kind_name: &str, schema: &Value) -> String {
    match (kind_name, schema["format"].as_str()) {
        ("array", _) => {
            format!("list of {}", schema.get("items").map_or("anything".to_owned(), kind))
        }
        ("string", Some(format)) => format!("string, {}", escape(format)),
        (other, _) => escape(other),
    }
}

/// A model: its members as a table where it has some, its choices, or what it is.
pub(super) fn definition(schema: &Value) -> String {
    let choices: Vec<&Value> =
        ["anyOf", "oneOf"].iter().flat_map(|name| array(&schema[*name])).collect();
    if choices.iter().any(|choice| choice.get("properties").is_some()) {
        let all: String = choices.into_iter().map(definition).collect();
        return format!("<p>One of:</p>{all}");
    }
    let is_required = |name: &str| array(&schema["required"]).any(|required| required == name);
    let row = |(name, member): (&String, &Value)| {
        let optional = if is_required(name) { "" } else { "<br>may be absent" };
        let says = member["description"].as_str().unwrap_or_default();
        format!(
            "<tr><th scope=row><code>{}</code></th><td>{}{optional}</td><td>{}</td></tr>",
            escape(name),
            kind(member),
            inline(says)
        )
    };
    let rows: String = members(&schema["properties"]).map(row).collect();
    if rows.is_empty() {
        return format!("<p>{}</p>", kind(schema));
    }
    table(["Member", "What", "Meaning"], &rows)
}
