//! The migration guide quotes the command's real output.

use std::io::Write as _;
use std::process::{Command, Stdio};

const GUIDE: &str = include_str!("../../../../docs/migration.md");

/// The first fenced block that contains a word.
fn block(language: &str, word: &str) -> &'static str {
    let fence = format!("```{language}\n");
    let mut blocks = GUIDE.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.contains(word)).unwrap()
}

#[test]
fn the_migration_guide_shows_the_verdicts_on_its_recorded_stream() {
    let mut validate = Command::new(env!("CARGO_BIN_EXE_capstan"));
    validate.args(["validate", "--model", "sse"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = validate.spawn().unwrap();
    child.stdin.take().unwrap().write_all(block("text", "stream.packet").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    let refused: Vec<_> = said.lines().filter(|line| line.contains("\"ok\":false")).collect();
    let shown: Vec<_> = block("console", "validate").lines().skip(1).collect();
    assert_eq!(refused, shown);
    assert_eq!(said.lines().count(), 6);
}

#[test]
fn every_code_that_the_migration_guide_proposes_is_in_the_catalogue() {
    let table = GUIDE.split("## Choose the code").nth(1).unwrap().split("\n## ").next().unwrap();
    let codes = table
        .lines()
        .filter_map(|line| line.split('|').nth(2))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let codes: Vec<_> = codes.filter(|code| *code != "code").collect();
    assert!(codes.len() > 15);
    for code in codes {
        assert!(capstan_protocol::FaultKind::parse(code).is_some(), "{code}");
    }
}
