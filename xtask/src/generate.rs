//! Files that are written from the code, and the check that they still match it.

mod checks;
mod cli;
mod errors;
mod members;
mod schema;
mod typescript;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::dependencies;

/// Generated files by path.
type Files = BTreeMap<PathBuf, String>;

/// The document that shows the crates in layers.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// The document that says what becomes of the members of a request.
const AGENTS: &str = "docs/agents.md";

/// A document with a new text between two marks.
fn between(text: &str, name: &str, new: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {name}:begin -->"), format!("<!-- {name}:end -->"));
    let parts =
        text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("a document lacks {begin} and {end}"))?;
    Ok(format!("{before}{begin}\n\n{new}{end}{after}"))
}

/// Folders that hold nothing but generated files: what is no longer generated is removed there.
const OWNED: [&str; 3] =
    ["schemas", "web/packages/capstan/src/generated", "web/playground/src/console/generated"];

fn all(root: &Path) -> Result<Files, String> {
    let architecture =
        fs::read_to_string(root.join(ARCHITECTURE)).map_err(|e| format!("{ARCHITECTURE}: {e}"))?;
    let mut files = whole();
    files.insert(ARCHITECTURE.into(), dependencies::with_graph(root, &architecture)?);
    let agents = fs::read_to_string(root.join(AGENTS)).map_err(|e| format!("{AGENTS}: {e}"))?;
    files.insert(AGENTS.into(), between(&agents, "members", &members::markdown())?);
    Ok(files)
}

/// The files that are generated as a whole.
fn whole() -> Files {
    let mut files = Files::new();
    files.extend(schema::files());
    files.extend(typescript::files());
    files.insert("schemas/openapi.json".into(), openapi());
    files.insert("docs/errors.md".into(), errors::markdown());
    files.insert("docs/check.md".into(), checks::markdown());
    files.insert("docs/cli.md".into(), cli::markdown());
    files
}

/// Where those files are.
pub(crate) fn paths() -> BTreeSet<String> {
    whole().keys().map(|path| path.display().to_string()).collect()
}

/// The description of the gateway's routes.
fn openapi() -> String {
    format!("{}\n", serde_json::to_string_pretty(&capstan_gateway::openapi()).unwrap_or_default())
}

pub(crate) fn write(root: &Path) -> Result<String, String> {
    let files = all(root)?;
    for stale in strays(root, &files)? {
        fs::remove_file(root.join(&stale)).map_err(|e| format!("{}: {e}", stale.display()))?;
    }
    for (path, text) in &files {
        let target = root.join(path);
        let folder = target.parent().unwrap_or(root);
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        fs::write(&target, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(format!("{} files generated", files.len()))
}

pub(crate) fn check(root: &Path) -> Result<String, String> {
    let files = all(root)?;
    let differs = |path: &&PathBuf| {
        fs::read_to_string(root.join(path)).ok().as_deref() != files.get(*path).map(String::as_str)
    };
    let mut stale: Vec<String> =
        files.keys().filter(differs).map(|p| p.display().to_string()).collect();
    stale.extend(
        strays(root, &files)?.iter().map(|p| format!("{} (no longer generated)", p.display())),
    );
    if stale.is_empty() {
        return Ok(format!("{} generated files are up to date", files.len()));
    }
    Err(format!(
        "generated files differ from the code; run `make gen` and commit:\n  {}",
        stale.join("\n  ")
    ))
}

fn strays(root: &Path, files: &Files) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for folder in OWNED {
        collect(&root.join(folder), &mut found).map_err(|e| format!("{folder}: {e}"))?;
    }
    let relative =
        found.into_iter().filter_map(|path| path.strip_prefix(root).map(Path::to_path_buf).ok());
    Ok(relative.filter(|path| !files.contains_key(path)).collect())
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}
