//! Checks the documents: what they link to is there, ARCHITECTURE.md has a row for every crate, the
//! Rust files that it and the decisions name exist, and docs/observability.md quotes the log.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) fn check(root: &Path) -> Result<String, String> {
    let (mut wrong, mut links) = (Vec::new(), 0);
    // A template's links are those of the document that is made from it.
    let is_document = |name: &String| !name.starts_with("xtask/");
    for document in tracked(root, &["*.md"])?.into_iter().filter(is_document) {
        let path = root.join(&document);
        let text = read(&path)?;
        for target in linked(&text) {
            links += 1;
            if !leads_somewhere(&path, target) {
                wrong.push(format!("{document}: links to {target}, which is not there"));
            }
        }
    }
    let architecture = read(&root.join("ARCHITECTURE.md"))?;
    let files = tracked(root, &["*"])?;
    wrong.extend(without_a_row(&architecture, &files));
    wrong.extend(unknown_files("ARCHITECTURE.md", &architecture, &files));
    for decision in tracked(root, &["docs/decisions/*.md"])? {
        wrong.extend(unknown_files(&decision, &read(&root.join(&decision))?, &files));
    }
    let mut sources = String::new();
    for file in tracked(root, &["crates/*/src/*.rs"])? {
        sources.push_str(&read(&root.join(file))?);
    }
    let lines = read(&root.join("docs/observability.md"))?;
    let unsaid = logged(&lines).filter(|line| !sources.contains(&format!("\"{line}\"")));
    wrong.extend(unsaid.map(|line| format!("docs/observability.md: nothing logs {line:?}")));
    match wrong.is_empty() {
        true => Ok(format!("{links} links lead somewhere")),
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
    let names =
        String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect::<Vec<_>>();
    Ok(names.into_iter().filter(|name| root.join(name).exists()).collect())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Targets of links into the repository.
fn linked(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next());
    targets.filter(|target| !target.contains(':') && !target.starts_with('/'))
}

/// The file is there and, if the link names one, the heading.
fn leads_somewhere(document: &Path, target: &str) -> bool {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { document.to_owned() } else { document.with_file_name(file) };
    match (path.exists(), anchor) {
        (is_there, "") => is_there,
        (false, _) => false,
        (true, anchor) => read(&path).is_ok_and(|text| anchors(&text).any(|known| known == anchor)),
    }
}

/// Headings as they stand in links: small letters, hyphens for spaces, nothing else.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
    })
}

/// The lines of the log in the table of them. One that begins with a name is no text of ours as it
/// stands.
fn logged(text: &str) -> impl Iterator<Item = &str> {
    let rows = text.lines().skip_while(|line| !line.starts_with("| message | level |")).skip(2);
    let cells = rows.map_while(|row| row.strip_prefix("| ")?.split(" | ").next());
    let lines = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    lines.filter(|line| line.starts_with(|first: char| first.is_lowercase()))
}

/// Crates that have no row in the table of crates.
fn without_a_row(architecture: &str, files: &[String]) -> Vec<String> {
    let crates: BTreeSet<&str> =
        files.iter().filter_map(|file| file.strip_prefix("crates/")?.split('/').next()).collect();
    let has_row = |name: &&str| architecture.contains(&format!("\n| `{name}` |"));
    crates
        .into_iter()
        .filter(|name| !has_row(name))
        .map(|name| format!("ARCHITECTURE.md: the table of crates lacks {name}"))
        .collect()
}

/// Rust files that a document names in back-ticks and that are nowhere. `<name>` stands for any
/// name.
fn unknown_files(document: &str, text: &str, files: &[String]) -> Vec<String> {
    let named = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let named = named.filter(|name| name.ends_with(".rs") && !name.contains('<'));
    let is_there = |name: &&str| {
        let end = format!("/{name}");
        files.iter().any(|file| file == name || file.ends_with(&end))
    };
    named
        .filter(|name| !is_there(name))
        .map(|name| format!("{document}: there is no {name}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_into_the_repository_are_found() {
        let text = "[a](docs/a.md#part) ![b](b.png \"title\") [c](https://example.org) [d](#here)";
        assert_eq!(linked(text).collect::<Vec<_>>(), ["docs/a.md#part", "b.png", "#here"]);
    }

    #[test]
    fn headings_are_written_as_links_have_them() {
        let text = "# 12. Upstreams\ntext\n## `[[agents]]`, and more\n";
        assert_eq!(anchors(text).collect::<Vec<_>>(), ["12-upstreams", "agents-and-more"]);
    }

    #[test]
    fn a_crate_without_a_row_and_a_file_that_is_nowhere_are_told() {
        let text = "\n| `a` | one, `x.rs` and `a/src/<name>.rs` | `gone.rs` |\n";
        let files = ["crates/a/src/x.rs", "crates/b/src/y.rs"].map(str::to_owned);
        let lacking = ["ARCHITECTURE.md: the table of crates lacks b"];
        assert_eq!(without_a_row(text, &files), lacking);
        assert_eq!(unknown_files("A.md", text, &files), ["A.md: there is no gone.rs"]);
    }

    #[test]
    fn lines_of_the_log_are_found_in_their_table() {
        let text = "`a`\n| message | level | says |\n|---|---|---|\n| `run ended` | info | `x` \
         |\n| `KEY is not`, `b c` | warn | |\n\n| `d` | e | |\n";
        assert_eq!(logged(text).collect::<Vec<_>>(), ["run ended", "b c"]);
    }
}
