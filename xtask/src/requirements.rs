//! Checks `docs/requirements.md`: every row is proven by a test that exists, or says why none can
//! be; and each MUST of PROTOCOL.md has a row.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::documents::tracked;

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
    let protocol =
        fs::read_to_string(root.join("PROTOCOL.md")).map_err(|e| format!("PROTOCOL.md: {e}"))?;
    wrong.extend(unmapped(&protocol, &ids));
    if wrong.is_empty() {
        return Ok(format!(
            "{} requirements: {} proven by tests, {settled} that no test can prove",
            rows.len(),
            rows.len() - settled
        ));
    }
    Err(format!("docs/requirements.md:\n  {}", wrong.join("\n  ")))
}

/// The sections of PROTOCOL.md whose MUSTs are not numbered from 1 among the ids.
fn unmapped(protocol: &str, ids: &BTreeSet<&str>) -> Vec<String> {
    let (mut musts, mut section) = (BTreeMap::<&str, usize>::new(), "");
    for line in protocol.lines() {
        if let Some((number, _)) =
            line.strip_prefix("## ").and_then(|heading| heading.split_once('.'))
        {
            section = number;
        }
        // What stands before the first section says what the word means.
        if !section.is_empty() {
            *musts.entry(section).or_default() += line.matches("MUST").count();
        }
    }
    let wanted: BTreeSet<String> = musts
        .iter()
        .flat_map(|(section, count)| (1..=*count).map(move |n| format!("CAP-{section}.{n}")))
        .collect();
    let missing = wanted.iter().filter(|id| !ids.contains(id.as_str()));
    let missing = missing.map(|id| format!("{id}: PROTOCOL.md has a MUST without a row"));
    let extra = ids.iter().filter(|id| id.starts_with("CAP-") && !wanted.contains(**id));
    missing.chain(extra.map(|id| format!("{id}: PROTOCOL.md has no such MUST"))).collect()
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
            let found = if file.ends_with(".rs") { rust_tests(&text) } else { other_tests(&text) };
            names.extend(found);
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
        assert!(
            unmapped(protocol, &BTreeSet::from(["RFC-1", "CAP-1.1", "CAP-1.2", "CAP-12.1"]))
                .is_empty()
        );
        let found = unmapped(protocol, &BTreeSet::from(["CAP-1.1", "CAP-12.1", "CAP-12.2"]));
        let expected = [
            "CAP-1.2: PROTOCOL.md has a MUST without a row",
            "CAP-12.2: PROTOCOL.md has no such MUST",
        ];
        assert_eq!(found, expected);
    }
}
