//! The refusals of a route: the codes of the catalogue that each status may carry.

use capstan_protocol::CATALOGUE;
use serde_json::Value;

use super::{array, members, table};
use crate::html::inline;

pub(super) fn told(responses: &Value) -> String {
    let refused: Vec<(&String, &Value)> =
        members(responses).filter(|(status, _)| status.as_str() >= "400").collect();
    let rows: String = refused.iter().map(|(status, response)| rows(status, response)).collect();
    let statuses: Vec<&str> = refused.iter().map(|(status, _)| status.as_str()).collect();
    format!(
        "<details><summary>Refusals: {}</summary><p><code>application/problem+json</code>: \
         <a href=#model-Problem><code>Problem</code></a></p>{}</details>",
        statuses.join(", "),
        table(["Status", "Code", "Meaning"], &rows)
    )
}

fn rows(status: &str, response: &Value) -> String {
    let code = &response["content"]["application/problem+json"]["schema"]["properties"]["code"];
    let known = array(&code["enum"]).chain(array(&code["examples"]));
    let entries = known.filter_map(|code| CATALOGUE.iter().find(|entry| *code == entry.code));
    let row = |entry: &capstan_protocol::fault::Entry| {
        format!(
            "<tr><th scope=row>{status}</th><td><a href=\"{}\"><code>{}</code></a></td><td>{}</td></tr>",
            entry.problem_type(),
            entry.code,
            inline(entry.meaning)
        )
    };
    entries.map(row).collect()
}
