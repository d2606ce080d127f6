//! The refusals of a route: the codes of the catalogue that each status may carry, and the shape
//! they have.

use std::collections::BTreeSet;

use capstan_protocol::CATALOGUE;
use capstan_protocol::fault::Entry;
use serde_json::Value;

use super::kind::kind;
use super::{members, table};
use crate::html::{escape, inline};

pub(super) fn section(responses: &Value) -> String {
    let refused: Vec<(&String, &Value)> =
        members(responses).filter(|(status, _)| status.as_str() >= "400").collect();
    let rows: String = refused.iter().map(|(status, response)| rows(status, response)).collect();
    let statuses: Vec<&str> = refused.iter().map(|(status, _)| status.as_str()).collect();
    let shapes: BTreeSet<String> =
        refused.iter().flat_map(|(_, response)| shapes(response)).collect();
    format!(
        "<details><summary>Refusals: {}</summary>{}{}</details>",
        statuses.join(", "),
        shapes.into_iter().collect::<String>(),
        table(["Status", "Code", "Meaning"], &rows)
    )
}

/// The media types of a refusal.
fn shapes(response: &Value) -> impl Iterator<Item = String> {
    members(&response["content"]).map(|(media, content)| {
        format!("<p><code>{}</code>: {}</p>", escape(media), kind(&content["schema"]))
    })
}

/// One line of the description explains a code.
fn rows(status: &str, response: &Value) -> String {
    let lines = response["description"].as_str().unwrap_or_default().lines();
    let codes =
        lines.filter_map(|line| line.strip_prefix("- `")?.split_once('`').map(|(code, _)| code));
    let entries = codes.filter_map(|code| CATALOGUE.iter().find(|entry| code == entry.code));
    let row = |entry: &Entry| {
        format!(
            "<tr><th scope=row>{status}</th><td><a \
             href=\"{}\"><code>{}</code></a></td><td>{}</td></tr>",
            entry.problem_type(),
            entry.code,
            inline(entry.meaning)
        )
    };
    entries.map(row).collect()
}
