//! What the binary is made of, as a CycloneDX document: every crate that is linked into it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Prints the document, from cargo's own resolution for one platform.
pub(crate) fn write(root: &Path, platform: &str) -> Result<String, String> {
    let metadata = metadata(root, platform)?;
    let packages = by_id(metadata.get("packages"));
    let nodes = by_id(metadata.pointer("/resolve/nodes"));
    let binary = packages
        .values()
        .find(|package| package["name"] == "capstan")
        .ok_or("there is no package capstan")?;
    let mut linked = BTreeSet::new();
    let mut open = vec![text(&binary["id"])];
    while let Some(id) = open.pop() {
        if linked.insert(id) {
            open.extend(nodes.get(id).into_iter().flat_map(|node| uses(node)));
        }
    }
    let components: Vec<_> = linked
        .iter()
        .filter_map(|id| packages.get(id))
        .map(|&package| component(package))
        .collect();
    let known = linked.iter().filter_map(|id| packages.get(id).zip(nodes.get(id)));
    let depends = |(package, node): (&&Value, &&Value)| {
        let uses = uses(node).filter_map(|id| packages.get(id)).map(|package| purl(package));
        json!({ "ref": purl(package), "dependsOn": uses.collect::<Vec<_>>() })
    };
    let dependencies: Vec<Value> = known.map(depends).collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": { "component": component(binary) },
        "components": components,
        "dependencies": dependencies,
    });
    serde_json::to_string_pretty(&document).map_err(|error| error.to_string())
}

fn metadata(root: &Path, platform: &str) -> Result<Value, String> {
    let mut cargo = Command::new("cargo");
    cargo
        .args(["metadata", "--locked", "--format-version=1", "--filter-platform", platform])
        .current_dir(root);
    let output = cargo.output().map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}

fn by_id(list: Option<&Value>) -> BTreeMap<&str, &Value> {
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|item| (text(&item["id"]), item))
        .collect()
}

/// What is linked into it: neither what builds it nor what tests it.
fn uses(node: &Value) -> impl Iterator<Item = &str> {
    let is_linked = |dep: &&Value| {
        dep["dep_kinds"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    node["deps"].as_array().into_iter().flatten().filter(is_linked).map(|dep| text(&dep["pkg"]))
}

fn component(package: &Value) -> Value {
    json!({
        "type": if package["name"] == "capstan" { "application" } else { "library" },
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
        "licenses": [{ "expression": text(&package["license"]).replace('/', " OR ") }],
    })
}

fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
