//! Checks the documents: what they link to is there, the tests that PROTOCOL.md names exist, the
//! code map of ARCHITECTURE.md is that of this tree, and what docs/observability.md says of the log
//! is what is logged.

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
    let protocol = read(&root.join("PROTOCOL.md"))?;
    let (named, functions) = (named(&protocol), functions(root)?);
    wrong.extend(
        named
            .iter()
            .filter(|name| !functions.contains(**name))
            .map(|name| format!("PROTOCOL.md: no test is called {name}")),
    );
    wrong.extend(off_the_map(&read(&root.join("ARCHITECTURE.md"))?, &tracked(root, &["*"])?));
    let mut sources = String::new();
    for file in tracked(root, &["crates/*/src/*.rs"])? {
        sources.push_str(&read(&root.join(file))?);
    }
    let lines = read(&root.join("docs/observability.md"))?;
    let unsaid = logged(&lines).filter(|line| !sources.contains(&format!("\"{line}\"")));
    wrong.extend(unsaid.map(|line| format!("docs/observability.md: nothing logs {line:?}")));
    match wrong.is_empty() {
        true => {
            Ok(format!("{links} links lead somewhere, {} tests of PROTOCOL.md exist", named.len()))
        }
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

/// What the code map names and is not there; crates that it leaves out, and places that it has
/// twice.
fn off_the_map(architecture: &str, files: &[String]) -> Vec<String> {
    let map = architecture.lines().skip_while(|line| *line != "## Code map").skip(1);
    let (mut wrong, mut places) = (Vec::new(), BTreeSet::new());
    let mut place = "";
    for line in map.take_while(|line| !line.starts_with("## ")) {
        let Some(line) = line.strip_prefix("    ") else { continue };
        if let Some(name) = line.split_whitespace().next().filter(|name| line.starts_with(name)) {
            place = name;
            if !places.insert(name) {
                wrong.push(format!("ARCHITECTURE.md: {name} is twice in the code map"));
            }
        }
        let words = line.split(|c: char| c.is_whitespace() || "();:,".contains(c));
        let named = words.filter(|word| word.ends_with(".rs") && place.starts_with("crates/"));
        let is_there = |word: &&str| {
            let end = format!("/{word}");
            files.iter().any(|file| file.starts_with(place) && file.ends_with(&end))
        };
        let gone = named.filter(|word| !is_there(word));
        wrong.extend(gone.map(|word| format!("ARCHITECTURE.md: {place} has no {word}")));
    }
    let crates: BTreeSet<&str> =
        files.iter().filter_map(|file| file.strip_prefix("crates/")?.split('/').next()).collect();
    let left_out =
        crates.into_iter().filter(|name| !places.contains(format!("crates/{name}/").as_str()));
    wrong
        .extend(left_out.map(|name| format!("ARCHITECTURE.md: the code map lacks crates/{name}/")));
    wrong
}

/// Names in back-ticks that read as a sentence: nothing on the wire has as many words.
fn named(text: &str) -> BTreeSet<&str> {
    let quoted = text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    quoted.filter(|name| name.chars().all(is_word) && name.matches('_').count() >= 4).collect()
}

/// All functions in Rust and Python, tests of the journal's contract among them, which a macro
/// makes tests.
fn functions(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for file in tracked(root, &["*.rs", "*.py"])? {
        let text = read(&root.join(&file))?;
        for rest in text.split("fn ").skip(1).chain(text.split("def ").skip(1)) {
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
        assert_eq!(linked(text).collect::<Vec<_>>(), ["docs/a.md#part", "b.png", "#here"]);
    }

    #[test]
    fn headings_are_written_as_links_have_them() {
        let text = "# 12. Upstreams\ntext\n## `[[agents]]`, and more\n";
        assert_eq!(anchors(text).collect::<Vec<_>>(), ["12-upstreams", "agents-and-more"]);
    }

    #[test]
    fn a_code_map_that_is_not_that_of_the_tree_is_told() {
        let map = "# A\n## Code map\n\n    crates/a/   one\n      x.rs y.rs   two; sub/z.rs\n    \
         docs/   three\n    docs/   three\n\n## B\n";
        let files =
            ["crates/a/src/x.rs", "crates/a/src/sub/z.rs", "crates/b/src/y.rs"].map(str::to_owned);
        let expected = [
            "ARCHITECTURE.md: crates/a/ has no y.rs",
            "ARCHITECTURE.md: docs/ is twice in the code map",
            "ARCHITECTURE.md: the code map lacks crates/b/",
        ];
        assert_eq!(off_the_map(map, &files), expected);
    }

    #[test]
    fn lines_of_the_log_are_found_in_their_table() {
        let text = "`a`\n| message | level | says |\n|---|---|---|\n| `run ended` | info | `x` \
         |\n| `KEY is not`, `b c` | warn | |\n\n| `d` | e | |\n";
        assert_eq!(logged(text).collect::<Vec<_>>(), ["run ended", "b c"]);
    }

    #[test]
    fn names_of_tests_are_told_from_names_on_the_wire() {
        let text = "`rate_limit_exceeded` is told (`a_fault_is_told_in_types`), `Last-Event-ID`";
        assert_eq!(named(text).into_iter().collect::<Vec<_>>(), ["a_fault_is_told_in_types"]);
    }
}
