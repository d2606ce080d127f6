//! `docs/check.md`: how to check a server, and the table of checks, written from the table itself.

use std::fmt::Write as _;

use capstan_check::{CHECKS, Check, Use};

const INTRODUCTION: &str = include_str!("checks.md");

pub(super) fn markdown() -> String {
    let mut out = String::from(INTRODUCTION);
    let _ = write!(out, "\n## What are the {} checks?\n\n", CHECKS.len());
    out.push_str(
        "A section with a number is one of [PROTOCOL.md](../PROTOCOL.md). The others name a page \
         of this folder.\nA check is skipped if one that it depends on did not pass.\n\n",
    );
    out.push_str("| check | section | the promise | needs | depends on |\n|---|---|---|---|---|\n");
    for check in CHECKS {
        let depends: Vec<String> = check.after.iter().map(|id| format!("`{id}`")).collect();
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            check.id,
            check.clause,
            check.title,
            needs(check),
            depends.join(", ")
        );
    }
    out
}

fn needs(check: &Check) -> String {
    let mut needs: Vec<&str> = check.uses.iter().copied().filter_map(Use::demand).collect();
    needs.dedup();
    needs.join(", ")
}
