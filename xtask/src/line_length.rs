//! No line of code or prose is longer than 100 columns, unless nothing in it can be broken.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proc_macro2::{Literal, TokenStream, TokenTree};

use crate::documents::tracked;
use crate::generate;

const COLUMNS: usize = 100;
/// Endings of the files that are checked. Scripts without an ending are found by their `#!`.
const ENDINGS: [&str; 17] = [
    "conf", "css", "html", "js", "md", "mjs", "py", "pyi", "rs", "service", "sh", "sql", "toml",
    "ts", "tsx", "yaml", "yml",
];

const PRAGMAS: [&str; 2] = ["  # type: ignore", "  # noqa"];

/// Checks all files of the usual kinds, or those with the endings that are given.
pub(crate) fn check(root: &Path, endings: &[&str]) -> Result<String, String> {
    let endings = if endings.is_empty() { &ENDINGS } else { endings };
    let generated = generate::paths();
    let (mut wrong, mut files) = (Vec::new(), 0);
    for name in tracked(root, &["*"])?.into_iter().filter(|name| !generated.contains(name)) {
        let Some(text) = text_of(root, &name, endings) else { continue };
        files += 1;
        let long = too_long(&name, &text);
        wrong.extend(long.into_iter().map(|(line, width)| format!("{name}:{line}: {width}")));
    }
    match wrong.is_empty() {
        true => Ok(format!("{files} files have lines of at most {COLUMNS} columns")),
        false => Err(format!("lines over {COLUMNS} columns:\n  {}", wrong.join("\n  "))),
    }
}

/// The text of a file that is to be checked.
fn text_of(root: &Path, name: &str, endings: &[&str]) -> Option<String> {
    let ending = Path::new(name).extension().and_then(|ending| ending.to_str());
    if ending.is_some_and(|ending| !endings.contains(&ending)) {
        return None;
    }
    let text = fs::read_to_string(root.join(name)).ok()?;
    (ending.is_some() || endings == ENDINGS && text.starts_with("#!")).then_some(text)
}

/// The lines that are too long, with their widths.
fn too_long(name: &str, text: &str) -> Vec<(usize, usize)> {
    let exempt = match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("rs") => in_raw_strings(text),
        Some("md") => tables_code_and_links(text),
        _ => BTreeSet::new(),
    };
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line));
    // Comments that direct a Python tool must stay on their line.
    let numbered = numbered.map(|(number, line)| {
        (
            number,
            PRAGMAS.iter().fold(line, |line, pragma| line.split(pragma).next().unwrap_or(line)),
        )
    });
    let long = numbered.filter(|(number, line)| {
        line.chars().count() > COLUMNS && !exempt.contains(number) && can_be_broken(line)
    });
    long.map(|(number, line)| (number, line.chars().count())).collect()
}

/// Whether the longest word of a line would fit on a line of its own.
fn can_be_broken(line: &str) -> bool {
    let indent = line.chars().take_while(|c| c.is_whitespace()).count();
    let longest = line.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
    indent + longest <= COLUMNS
}

/// The lines of Rust's raw strings, where a line break would be part of the text.
fn in_raw_strings(text: &str) -> BTreeSet<usize> {
    let mut lines = BTreeSet::new();
    if let Ok(tokens) = text.parse::<TokenStream>() {
        raw_strings(tokens, &mut |literal| {
            lines.extend(literal.span().start().line..=literal.span().end().line);
        });
    }
    lines
}

fn raw_strings(tokens: TokenStream, found: &mut impl FnMut(&Literal)) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => raw_strings(group.stream(), found),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                if ["r\"", "r#", "br\"", "br#"].iter().any(|start| text.starts_with(start)) {
                    found(&literal);
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// The lines of Markdown that no line break may be put into.
fn tables_code_and_links(text: &str) -> BTreeSet<usize> {
    let (mut lines, mut fence) = (BTreeSet::new(), None);
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        let is_code = fence.is_some() || mark.is_some() || line.starts_with("    ");
        match (fence, mark) {
            (None, Some(mark)) => fence = Some(mark),
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        if is_code || start.starts_with('|') || is_link(start) {
            lines.insert(index + 1);
        }
    }
    lines
}

/// Whether a line is nothing but a link, an image or the target of one.
fn is_link(line: &str) -> bool {
    let line = line.trim_start_matches(['-', '*', ' ']).trim_end_matches(['.', ',', ' ']);
    let is_target = line.starts_with('[') && line.contains("]: ");
    let is_whole = line
        .strip_prefix('!')
        .unwrap_or(line)
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]("))
        .is_some_and(|(_, target)| target.find(')') == Some(target.len() - 1));
    is_target || is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(name: &str, text: &str) -> Vec<usize> {
        too_long(name, text).into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_long_line_is_found_and_a_long_word_is_not() {
        let long = "# word ".repeat(20);
        let word = "w".repeat(120);
        let pragma = format!("{} # type: ignore[arg-type]", "word ".repeat(18));
        assert_eq!(numbers("a.py", &format!("short\n{long}\n# {word}\n{pragma}\n")), [2]);
        assert_eq!(too_long("a.py", &"ä ".repeat(51)), [(1, 102)], "columns, not bytes");
    }

    #[test]
    fn raw_strings_of_rust_may_be_long() {
        let words = "word ".repeat(30);
        let text = format!("const A: &str = r#\"{words}\n{words}\"#;\n// {words}\n\"{words}\"");
        assert_eq!(numbers("a.rs", &text), [3, 4]);
    }

    #[test]
    fn tables_code_and_links_of_markdown_may_be_long() {
        let words = "word ".repeat(30);
        let text = format!(
            "{words}\n| {words} |\n```\n{words}\n```\n![{words}](a.png)\n- [{words}](b.md).\n\
             [{words}](b.md) and {words}\n    {words}\n"
        );
        assert_eq!(numbers("a.md", &text), [1, 8]);
    }
}
