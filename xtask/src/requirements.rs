//! Checks `docs/requirements.md`: every row is proven by a test that exists, or says why none can
//! be; and each MUST of the contracts has a row.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::documents::tracked;

/// The pages with a contract, and with what the ids of their MUSTs begin. Those of PROTOCOL.md are
/// numbered in each section, those of other pages from the first to the last.
const CONTRACTS: [(&str, &str); 6] = [
    ("PROTOCOL.md", "CAP"),
    ("docs/ag-ui.md", "AGUI"),
    ("docs/upstreams.md", "UPSTREAM"),
    ("docs/openai.md", "OPENAI"),
    ("docs/ai-sdk.md", "AISDK"),
    ("docs/a2a.md", "A2A"),
];

/// A row: `| id | requirement | proof |`.
struct Row<'a> {
    id: &'a str,
    proof: &'a str,
}

pub(crate) fn check(root: &Path) -> Result<String, String> {
    let text = fs::read_to_string(root.join("docs/requirements.md"))
        .map_err(|e| format!("docs/requirements.md: {e}"))?;
    let rows: Vec<Row<'_>> = text.lines().filter_map(row).collect();
    if rows.is_empty() {
        return Err("docs/requirements.md holds no rows".into());
    }
    let tests = tests(root)?;
    let mut ids = BTreeSet::new();
    let (mut wrong, mut settled) = (Vec::new(), 0);
    for Row { id, proof } in &rows {
        if !ids.insert(*id) {
            wrong.push(format!("{id}: this id appears twice"));
        }
        let named: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            settled += 1;
            if !proof.starts_with("n/a: ") {
                wrong.push(format!("{id}: names no test and does not say \"n/a: why\""));
            }
        }
        wrong.extend(
            named
                .iter()
                .filter(|name| !tests.contains(**name))
                .map(|name| format!("{id}: no test is called {name}")),
        );
    }
    for (page, prefix) in CONTRACTS {
        let text = fs::read_to_string(root.join(page)).map_err(|e| format!("{page}: {e}"))?;
        wrong.extend(unmapped(page, prefix, &text, &ids));
    }
    if wrong.is_empty() {
        return Ok(format!(
            "{} requirements: {} proven by tests, {settled} that no test can prove",
            rows.len(),
            rows.len() - settled
        ));
    }
    Err(format!("docs/requirements.md:\n  {}", wrong.join("\n  ")))
}

/// MUSTs of a page without a row, and rows without one.
fn unmapped(page: &str, prefix: &str, text: &str, ids: &BTreeSet<&str>) -> Vec<String> {
    let wanted = musts(prefix, text);
    let missing = wanted.iter().filter(|id| !ids.contains(id.as_str()));
    let missing = missing.map(|id| format!("{id}: {page} has a MUST without a row"));
    let mine = ids.iter().filter(|id| id.strip_prefix(prefix).is_some_and(|n| n.starts_with('-')));
    let extra = mine.filter(|id| !wanted.contains(**id));
    missing.chain(extra.map(|id| format!("{id}: {page} has no such MUST"))).collect()
}

/// The ids of a page's MUSTs, by the numbers of its sections if it has some.
fn musts(prefix: &str, text: &str) -> BTreeSet<String> {
    let has_sections = text.lines().any(|line| section(line).is_some());
    let (mut counts, mut at) = (BTreeMap::<&str, usize>::new(), "");
    for line in text.lines() {
        at = section(line).unwrap_or(at);
        // What stands before the first section says what the word means.
        if !at.is_empty() || !has_sections {
            *counts.entry(at).or_default() += line.matches("MUST").count();
        }
    }
    let id = |at: &str, n: usize| match at {
        "" => format!("{prefix}-{n}"),
        at => format!("{prefix}-{at}.{n}"),
    };
    counts.iter().flat_map(|(at, count)| (1..=*count).map(move |n| id(at, n))).collect()
}

/// The number of a heading.
fn section(line: &str) -> Option<&str> {
    let (number, _) = line.strip_prefix("## ")?.split_once('.')?;
    number.bytes().all(|b| b.is_ascii_digit()).then_some(number)
}

fn row(line: &str) -> Option<Row<'_>> {
    let cells: Vec<&str> =
        line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    match cells.as_slice() {
        [id, _, proof] if id.contains('-') && !id.starts_with('-') => Some(Row { id, proof }),
        _ => None,
    }
}

/// The names of all tests in tracked or new files: Rust and Python functions, TypeScript titles,
/// checks.
fn tests(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut names: BTreeSet<String> =
        capstan_check::CHECKS.iter().map(|check| check.id.to_owned()).collect();
    for file in tracked(root, &["*.rs", "*.py", "*.ts", "*.tsx", "*.mjs"])? {
        if let Ok(text) = fs::read_to_string(root.join(&file)) {
            names.extend(match file.as_str() {
                // A macro makes tests of these, one for each store.
                f if f.contains("/tests/it/contract/") => functions(&text),
                f if f.ends_with(".rs") => rust_tests(&text),
                _ => other_tests(&text),
            });
        }
    }
    Ok(names)
}

/// A function is a test only if an attribute above it says so.
fn rust_tests(text: &str) -> Vec<String> {
    let (mut names, mut is_test) = (Vec::new(), false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]")
            || line.starts_with("#[tokio::test")
            || line.starts_with("proptest!")
        {
            is_test = true;
        } else if let Some(rest) =
            line.strip_prefix("fn ").or_else(|| line.strip_prefix("async fn "))
            && std::mem::take(&mut is_test)
        {
            names.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    names
}

/// The functions of a contract suite.
fn functions(text: &str) -> Vec<String> {
    let rest = text.split("pub(crate) async fn ").skip(1);
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    rest.map(name).collect()
}

fn other_tests(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines().map(str::trim) {
        let python = line.strip_prefix("def ").or_else(|| line.strip_prefix("async def "));
        if let Some(rest) = python.filter(|rest| rest.starts_with("test_")) {
            names.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
        let titled = line.strip_prefix("test(").or_else(|| line.strip_prefix("it("));
        if let Some(title) = titled.and_then(|rest| rest.split(['"', '\'', '`']).nth(1)) {
            names.push(title.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_must_of_the_protocol_has_a_row_and_no_row_is_without_one() {
        let protocol =
            "MUST as in RFC 2119\n## 1. One\nA MUST b, and MUST NOT c.\n## 12. Twelve\nd MUST e.\n";
        let ids = BTreeSet::from(["RFC-1", "CAP-1.1", "CAP-1.2", "CAP-12.1", "A2A-1"]);
        assert!(unmapped("P", "CAP", protocol, &ids).is_empty());
        let ids = BTreeSet::from(["CAP-1.1", "CAP-12.1", "CAP-12.2"]);
        let expected = ["CAP-1.2: P has a MUST without a row", "CAP-12.2: P has no such MUST"];
        assert_eq!(unmapped("P", "CAP", protocol, &ids), expected);
    }

    #[test]
    fn the_musts_of_a_page_without_numbers_are_counted_through() {
        let page = "# A\n## What? 2. is no number\na MUST b.\n## Other\nMUST NOT\n";
        assert_eq!(musts("A2A", page), BTreeSet::from(["A2A-1", "A2A-2"].map(str::to_owned)));
    }
}
