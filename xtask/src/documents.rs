//! Checks the documents: what they link to is there, the files that they name exist,
//! ARCHITECTURE.md has a row for every crate, docs/observability.md quotes the log, and the rules
//! for pages hold.

mod pages;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) fn check(root: &Path) -> Result<String, String> {
    let (mut wrong, mut links) = (Vec::new(), 0);
    // A template's links are those of the document that is made from it.
    let is_document = |name: &String| !name.starts_with("xtask/");
    let documents: Vec<_> = tracked(root, &["*.md"])?.into_iter().filter(is_document).collect();
    let files = tracked(root, &["*"])?;
    let names = Names::of(&files);
    for document in &documents {
        let path = root.join(document);
        let text = read(&path)?;
        wrong.extend(pages::faults(document, &text));
        wrong.extend(names.unknown(document, &text));
        for target in linked(&text) {
            links += 1;
            if !leads_somewhere(&path, target) {
                wrong.push(format!("{document}: links to {target}, which is not there"));
            }
        }
    }
    let architecture = read(&root.join("ARCHITECTURE.md"))?;
    wrong.extend(without_a_row(&architecture, &files));
    wrong.extend(pages::unlisted(&read(&root.join("docs/SUMMARY.md"))?, &documents));
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

/// The files and folders of the repository.
struct Names<'a> {
    /// Each file, and each folder with `/` at its end.
    paths: BTreeSet<&'a str>,
    /// Folders with which a path may begin.
    tops: BTreeSet<&'a str>,
}

impl<'a> Names<'a> {
    fn of(files: &'a [String]) -> Self {
        let folders = |file: &'a String| file.match_indices('/').map(|(at, _)| &file[..=at]);
        let folders: BTreeSet<&str> = files.iter().flat_map(folders).collect();
        let top = |folder: &&'a str| {
            let name = folder.strip_suffix('/')?;
            // Without `capstan`, which is the name of a package of npm, too.
            let name =
                name.strip_prefix("crates/").filter(|name| *name != "capstan").unwrap_or(name);
            (!name.contains('/')).then_some(name)
        };
        let tops = folders.iter().filter_map(top).collect();
        let paths = files.iter().map(String::as_str).chain(folders).collect();
        Self { paths, tops }
    }

    /// What a document names in back-ticks and is nowhere: paths, and Rust files by any part of
    /// their path. `<name>` stands for any name.
    fn unknown(&self, document: &str, text: &str) -> Vec<String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let named = prose(text).flat_map(|line| line.split('`').skip(1).step_by(2));
        let named = named.filter(|name| name.chars().all(is_plain) && self.is_path(name));
        let unknown = named.filter(|name| !self.is_there(name));
        unknown.map(|name| format!("{document}: there is no {name}")).collect()
    }

    fn is_path(&self, name: &str) -> bool {
        let top = name.split_once('/').map_or("", |(top, _)| top);
        // What a build writes is not in the repository.
        name.ends_with(".rs") || self.tops.contains(top) && !name.ends_with("/dist")
    }

    fn is_there(&self, name: &str) -> bool {
        let (file, folder) = (format!("/{name}"), format!("/{}/", name.trim_end_matches('/')));
        self.paths.iter().any(|path| {
            let path = format!("/{path}");
            path.ends_with(&file) || path.ends_with(&folder)
        })
    }
}

/// The lines outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
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
        assert_eq!(Names::of(&files).unknown("A.md", text), ["A.md: there is no gone.rs"]);
    }

    #[test]
    fn a_path_that_is_nowhere_is_found() {
        let files =
            ["docs/a.md", "crates/capstan-x/src/y/z.rs", "web/p/index.ts"].map(str::to_owned);
        let text = "`docs/a.md` `docs/` `crates/capstan-x/src/y` `capstan-x/src` `web/p/dist`\n\
                    `a/b`\n```\n`docs/in-code.md`\n```\n`docs/gone.md` `capstan-x/gone` `y/z.rs`";
        let unknown = ["A.md: there is no docs/gone.md", "A.md: there is no capstan-x/gone"];
        assert_eq!(Names::of(&files).unknown("A.md", text), unknown);
    }

    #[test]
    fn lines_of_the_log_are_found_in_their_table() {
        let text = "`a`\n| message | level | says |\n|---|---|---|\n| `run ended` | info | `x` \
         |\n| `KEY is not`, `b c` | warn | |\n\n| `d` | e | |\n";
        assert_eq!(logged(text).collect::<Vec<_>>(), ["run ended", "b c"]);
    }
}
