//! The crates of the workspace and their normal dependencies, as cargo knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A crate of the workspace.
pub(crate) struct Crate {
    /// What it depends on, in the workspace and beyond; optional dependencies count.
    pub(crate) dependencies: BTreeSet<String>,
    /// The root files of its library and its programs.
    pub(crate) roots: Vec<PathBuf>,
}

/// All crates of the workspace by their names.
pub(crate) type Crates = BTreeMap<String, Crate>;

pub(crate) fn read(root: &Path) -> Result<Crates, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    Ok(list(&metadata, "packages").filter_map(package).collect())
}

fn package(package: &Value) -> Option<(String, Crate)> {
    // Those of tests and build scripts have a kind.
    let is_normal = |dependency: &&Value| dependency.get("kind").is_none_or(Value::is_null);
    let normal = list(package, "dependencies").filter(is_normal);
    let is_shipped = |target: &&Value| {
        list(target, "kind").any(|kind| matches!(kind.as_str(), Some("lib" | "cdylib" | "bin")))
    };
    let targets = list(package, "targets").filter(is_shipped);
    Some((
        text(package, "name")?,
        Crate {
            dependencies: normal.filter_map(|dependency| text(dependency, "name")).collect(),
            roots: targets.filter_map(|target| text(target, "src_path")).map(Into::into).collect(),
        },
    ))
}

fn list<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}
