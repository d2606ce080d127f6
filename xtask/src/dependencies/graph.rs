//! The crates in layers, as text between two marks of ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::crates::{self, Crates};

const BEGIN: &str = "<!-- crates:begin -->";
const END: &str = "<!-- crates:end -->";
/// A document's line is no longer.
const WIDTH: usize = 100;

type Graph = BTreeMap<String, BTreeSet<String>>;

/// The text of ARCHITECTURE.md with today's graph.
pub(crate) fn with_graph(root: &Path, text: &str) -> Result<String, String> {
    let parts = text
        .split_once(BEGIN)
        .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
    let Some((before, after)) = parts else {
        return Err(format!("ARCHITECTURE.md lacks {BEGIN} and {END}"));
    };
    let drawn = draw(&graph(&crates::read(root)?));
    Ok(format!("{before}{BEGIN}\n\n```text\n{drawn}```\n\n{END}{after}"))
}

/// What each crate of ours depends on directly, without what it also reaches through others.
fn graph(crates: &Crates) -> Graph {
    let ours = |name: &String| crates.contains_key(name);
    let all: Graph = crates
        .iter()
        .map(|(name, member)| {
            (name.clone(), member.dependencies.iter().filter(|name| ours(name)).cloned().collect())
        })
        .collect();
    let direct = |(name, known): (&String, &BTreeSet<String>)| {
        let reached = |other: &&String| {
            !known.iter().any(|between| between != *other && reaches(&all, between, other))
        };
        (name.clone(), known.iter().filter(reached).cloned().collect())
    };
    all.iter().map(direct).collect()
}

fn reaches(graph: &Graph, from: &str, to: &str) -> bool {
    let known = graph.get(from).into_iter().flatten();
    known.into_iter().any(|next| next == to || reaches(graph, next, to))
}

/// A layer is one above the highest that it depends on.
fn layer(graph: &Graph, name: &str) -> usize {
    let known = graph.get(name).into_iter().flatten();
    known.map(|other| layer(graph, other) + 1).max().unwrap_or(0)
}

/// The highest layer first; a rule between two layers.
fn draw(graph: &Graph) -> String {
    let mut layers = BTreeMap::<usize, Vec<&String>>::new();
    for name in graph.keys() {
        layers.entry(layer(graph, name)).or_default().push(name);
    }
    let width = graph.keys().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    for (layer, names) in layers.iter().rev() {
        for name in names {
            let _ = writeln!(text, "{}", row(name, graph.get(*name), width));
        }
        if *layer > 0 {
            let _ = writeln!(text, "{}", "-".repeat(width));
        }
    }
    text
}

/// `name -> what it depends on`, continued below itself if it is long.
fn row(name: &str, known: Option<&BTreeSet<String>>, width: usize) -> String {
    let mut lines = vec![format!("{name:width$} ->")];
    for other in known.into_iter().flatten() {
        let last = lines.last().map_or(0, String::len);
        if last + 1 + other.len() > WIDTH {
            lines.push(" ".repeat(width + 3));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(other);
        }
    }
    match known.is_none_or(BTreeSet::is_empty) {
        true => name.to_owned(),
        false => lines.join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(edges: &[(&str, &[&str])]) -> Crates {
        let member = |known: &[&str]| crates::Crate {
            dependencies: known.iter().map(|name| (*name).to_owned()).collect(),
            roots: Vec::new(),
        };
        edges.iter().map(|(name, known)| ((*name).to_owned(), member(known))).collect()
    }

    #[test]
    fn layers_without_edges_that_others_imply() {
        let crates = of(&[
            ("binary", &["engine", "agent", "protocol", "serde"]),
            ("engine", &["agent", "protocol"]),
            ("agent", &["protocol"]),
            ("protocol", &[]),
            ("proxy", &[]),
        ]);
        let expected = "binary   -> engine\n--------\nengine   -> agent\n--------\nagent    -> \
                        protocol\n--------\nprotocol\nproxy\n";
        assert_eq!(draw(&graph(&crates)), expected);
    }

    #[test]
    fn long_rows_continue_below_themselves() {
        let names: BTreeSet<String> = (0..20).map(|n| format!("crate-{n:02}")).collect();
        let row = row("binary", Some(&names), 8);
        assert!(row.lines().all(|line| line.len() <= WIDTH) && row.lines().count() > 1, "{row}");
    }
}
