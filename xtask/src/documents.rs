//! Checks the documents: what they link to is there, and the tests that PROTOCOL.md names exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) fn check(root: &Path) -> Result<String, String> {
    let (mut wrong, mut links) = (Vec::new(), 0);
    for document in tracked(root, &["*.md"])? {
        let text = fs::read_to_string(root.join(&document)).map_err(|e| format!("{document}: {e}"))?;
        let folder = root.join(&document).parent().map(Path::to_path_buf).unwrap_or_default();
        for target in linked(&text) {
            links += 1;
            if !folder.join(target).exists() {
                wrong.push(format!("{document}: links to {target}, which is not there"));
            }
        }
    }
    let protocol = fs::read_to_string(root.join("PROTOCOL.md")).map_err(|e| format!("PROTOCOL.md: {e}"))?;
    let (named, functions) = (named(&protocol), functions(root)?);
    wrong.extend(
        named
            .iter()
            .filter(|name| !functions.contains(**name))
            .map(|name| format!("PROTOCOL.md: no test is called {name}")),
    );
    match wrong.is_empty() {
        true => Ok(format!("{links} links lead somewhere, {} tests of PROTOCOL.md exist", named.len())),
        false => Err(format!("the documents:\n  {}", wrong.join("\n  "))),
    }
}

/// Files that git knows or would take.
pub(crate) fn tracked(root: &Path, patterns: &[&str]) -> Result<Vec<String>, String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .args(patterns)
        .current_dir(root)
        .output()
        .map_err(|e| format!("git ls-files: {e}"))?;
    let names = String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    Ok(names.into_iter().filter(|name| root.join(name).exists()).collect())
}

/// Targets of links into the repository, without their anchors.
fn linked(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next());
    let own = targets.filter(|target| !target.contains(':') && !target.starts_with(['#', '/']));
    own.filter_map(|target| target.split('#').next())
}

/// Names in back-ticks that read as a sentence: nothing on the wire has as many words.
fn named(text: &str) -> BTreeSet<&str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    quoted.filter(|name| name.chars().all(is_word) && name.matches('_').count() >= 4).collect()
}

/// All functions in Rust, tests of the journal's contract among them, which a macro makes tests.
fn functions(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for file in tracked(root, &["*.rs"])? {
        let text = fs::read_to_string(root.join(&file)).map_err(|e| format!("{file}: {e}"))?;
        for rest in text.split("fn ").skip(1) {
            names.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_into_the_repository_are_found() {
        let text = "[a](docs/a.md#part) ![b](b.png \"title\") [c](https://example.org) [d](#here)";
        assert_eq!(linked(text).collect::<Vec<_>>(), ["docs/a.md", "b.png"]);
    }

    #[test]
    fn names_of_tests_are_told_from_names_on_the_wire() {
        let text = "`rate_limit_exceeded` is told (`a_fault_is_told_in_types`), `Last-Event-ID`";
        assert_eq!(named(text).into_iter().collect::<Vec<_>>(), ["a_fault_is_told_in_types"]);
    }
}
