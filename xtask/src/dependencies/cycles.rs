//! Cycles in a graph: the groups of nodes that reach each other.

use std::collections::{BTreeMap, BTreeSet};

/// Strongly connected components of more than one node.
pub(crate) fn cycles<'a>(
    edges: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<BTreeSet<&'a str>> {
    let mut next = BTreeMap::<&str, Vec<&str>>::new();
    for (from, to) in edges {
        next.entry(from).or_default().push(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|node| (*node, reached_from(node, &next))).collect();
    let reaches = |a: &str, b: &str| reached.get(a).is_some_and(|nodes| nodes.contains(b));
    let mut found = Vec::new();
    let mut left: BTreeSet<&str> = reached.keys().copied().collect();
    while let Some(node) = left.pop_first() {
        let mut cycle: BTreeSet<&str> = left
            .iter()
            .copied()
            .filter(|other| reaches(node, other) && reaches(other, node))
            .collect();
        left.retain(|other| !cycle.contains(other));
        if !cycle.is_empty() {
            cycle.insert(node);
            found.push(cycle);
        }
    }
    found
}

fn reached_from<'a>(node: &'a str, next: &BTreeMap<&str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![node]);
    while let Some(node) = open.pop() {
        let others = next.get(node).into_iter().flatten();
        open.extend(others.filter(|other| reached.insert(**other)).copied());
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_without_cycles() {
        assert!(cycles([("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]).is_empty());
    }

    #[test]
    fn two_cycles_and_what_lies_between() {
        let edges = [
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("c", "between"),
            ("between", "x"),
            ("x", "y"),
            ("y", "x"),
        ];
        let expected = [BTreeSet::from(["a", "b", "c"]), BTreeSet::from(["x", "y"])];
        assert_eq!(cycles(edges), expected);
    }
}
