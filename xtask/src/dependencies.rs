//! Which crates and modules depend on which, and what must not.
//!
//! A crate may depend only on the crates that its row names, and modules that are children of the
//! same module must not depend on each other in a circle.

mod crates;
mod cycles;
mod graph;
mod modules;
mod paths;
mod rules;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crates::{Crate, Crates};
use modules::{Edges, Modules, Witness};
use paths::Names;
use rules::{APART, RULES, Rule};

pub(crate) use graph::with_graph;

pub(crate) fn check(root: &Path) -> Result<String, String> {
    let crates = crates::read(root)?;
    let mut wrong = Vec::new();
    for (name, member) in &crates {
        let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
            wrong.push(format!("{name} has no row in xtask/src/dependencies/rules.rs"));
            continue;
        };
        wrong.extend(forbidden(rule, member, &crates));
        wrong.extend(in_circles(name, &cycles_of(member)?, root));
        if let Some((_, shared)) = APART.iter().find(|(apart, _)| apart == name) {
            wrong.extend(known_to_each_other(name, member, shared)?);
        }
    }
    match wrong.is_empty() {
        true => Ok(format!("{} crates depend as they may; no module is in a cycle", crates.len())),
        false => Err(format!("dependencies:\n{}", wrong.join("\n"))),
    }
}

/// How many modules of each crate are in cycles, and every edge of each cycle.
pub(crate) fn show(root: &Path) -> Result<String, String> {
    let mut text = String::new();
    for (name, member) in &crates::read(root)? {
        let cycles = cycles_of(member)?;
        let modules: usize = all_modules(member)?.iter().map(Modules::top_level).sum();
        let top = cycles.iter().filter(|cycle| cycle.place.is_empty());
        let top: usize = top.map(|cycle| cycle.modules.len()).sum();
        let _ = writeln!(
            text,
            "{name}: {top} of {modules} top-level modules in cycles; with nested modules {}",
            size(&cycles)
        );
        cycles.iter().for_each(|cycle| text.push_str(&cycle.describe(root)));
    }
    Ok(text)
}

fn forbidden(rule: &Rule, member: &Crate, crates: &Crates) -> Vec<String> {
    let name = rule.name;
    let ours = member.dependencies.iter().filter(|other| crates.contains_key(*other));
    let ours = ours.filter(|other| !rule.may_know(other)).map(|other| {
        format!(
            "{name} must not depend on {other}: move what it needs below both, or allow it in \
             xtask/src/dependencies/rules.rs"
        )
    });
    let others = member.dependencies.iter().filter(|other| rule.never.contains(&other.as_str()));
    ours.chain(others.map(|other| format!("{name} must not depend on {other}"))).collect()
}

/// Modules with the same parent that reach each other.
struct Cycle {
    place: Names,
    modules: Vec<String>,
    edges: Edges,
}

fn all_modules(member: &Crate) -> Result<Vec<Modules>, String> {
    member.roots.iter().map(|root| Modules::read(root)).collect()
}

fn cycles_of(member: &Crate) -> Result<Vec<Cycle>, String> {
    let levels = all_modules(member)?.iter().map(Modules::edges).collect::<Vec<_>>();
    let levels = levels.into_iter().flatten();
    Ok(levels.flat_map(|(place, edges)| cycles_among(&place, &edges)).collect())
}

fn cycles_among(place: &Names, edges: &Edges) -> Vec<Cycle> {
    let names = edges.keys().map(|(from, to)| (from.as_str(), to.as_str()));
    let found = cycles::cycles(names);
    let cycle = |modules: std::collections::BTreeSet<&str>| {
        let is_within = |(from, to): &(String, String)| {
            modules.contains(from.as_str()) && modules.contains(to.as_str())
        };
        let within = edges.iter().filter(|(names, _)| is_within(names));
        let edges: BTreeMap<_, _> = within.map(|(n, w)| (n.clone(), w.clone())).collect();
        let modules = modules.into_iter().map(str::to_owned).collect();
        Cycle { place: place.clone(), modules, edges }
    };
    found.into_iter().map(cycle).collect()
}

fn size(cycles: &[Cycle]) -> usize {
    cycles.iter().map(|cycle| cycle.modules.len()).sum()
}

fn in_circles(name: &str, cycles: &[Cycle], root: &Path) -> Option<String> {
    let edges: String = cycles.iter().map(|cycle| cycle.describe(root)).collect();
    (!cycles.is_empty()).then(|| format!("{name}: {} modules in cycles:\n{edges}", size(cycles)))
}

/// Edges between modules that must not know each other.
fn known_to_each_other(name: &str, member: &Crate, shared: &[&str]) -> Result<Vec<String>, String> {
    let levels = all_modules(member)?.iter().map(Modules::edges).collect::<Vec<_>>();
    let top = levels.iter().flatten().filter(|(place, _)| place.is_empty());
    let edges = top.flat_map(|(_, edges)| edges.keys());
    let wrong = edges.filter(|(_, to)| !shared.contains(&to.as_str()));
    Ok(wrong
        .map(|(from, to)| format!("{name}: {from} must not know {to}: move what both need below"))
        .collect())
}

impl Cycle {
    /// Its modules, and below them each edge with the first place that makes it.
    fn describe(&self, root: &Path) -> String {
        let place = [&["crate".to_owned()], self.place.as_slice()].concat().join("::");
        let mut text = format!("  {place}: {}\n", self.modules.join(", "));
        for ((from, to), Witness { file, line }) in &self.edges {
            let file = file.strip_prefix(root).unwrap_or(file).display();
            let _ = writeln!(text, "    {from} -> {to}  {file}:{line}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A crate with these files.
    fn written(folder: &Path, files: &[(&str, &str)]) -> Crate {
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Crate { dependencies: Default::default(), roots: vec![folder.join("lib.rs")] }
    }

    /// The modules in the cycles of a crate with these files.
    fn cycles_in(files: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        let folder = tempfile::tempdir().unwrap();
        let found = cycles_of(&written(folder.path(), files)).unwrap();
        found.into_iter().map(|cycle| (cycle.place.join("::"), cycle.modules)).collect()
    }

    fn cycle(place: &str, modules: &[&str]) -> (String, Vec<String>) {
        (place.to_owned(), modules.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_planted_cycle_is_found() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use super::c; pub struct B;"),
            ("c.rs", "fn f() { vec![crate::a::f()]; }"),
        ];
        assert_eq!(cycles_in(&files), [cycle("", &["a", "b", "c"])]);
    }

    #[test]
    fn a_cycle_through_nested_files_and_re_exports_is_found() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::B;"),
            ("a.rs", "mod inner; pub struct A;"),
            ("a/inner.rs", "use crate::B;"),
            ("b/mod.rs", "mod deep; pub use deep::*; use crate::a::A;"),
            ("b/deep.rs", "pub struct B;"),
        ];
        assert_eq!(cycles_in(&files), [cycle("", &["a", "b"])]);
    }

    #[test]
    fn siblings_below_a_module_are_checked_too() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a.rs", "mod b; mod c { use super::b::B; pub struct C; }"),
            ("a/b.rs", "pub struct B(super::c::C);"),
        ];
        assert_eq!(cycles_in(&files), [cycle("a", &["b", "c"])]);
    }

    #[test]
    fn tests_parents_and_other_crates_make_no_cycle() {
        let files = [
            ("lib.rs", "mod a; mod b; pub struct Root;"),
            ("a.rs", "mod inner; use crate::{Root, b::B}; use inner::I; pub struct A;"),
            ("a/inner.rs", "use super::A; pub struct I;"),
            ("b.rs", "use other::a::A; pub struct B; #[cfg(test)] mod tests { use crate::a::A; }"),
        ];
        assert_eq!(cycles_in(&files), []);
    }

    #[test]
    fn modules_that_are_apart_know_only_what_all_of_them_share() {
        let folder = tempfile::tempdir().unwrap();
        let files = [
            ("lib.rs", "mod a; mod b; mod shared;"),
            ("a.rs", "use crate::shared::S; use crate::b::B;"),
            ("b.rs", "use crate::shared::S; pub struct B;"),
            ("shared.rs", "pub struct S;"),
        ];
        let wrong = known_to_each_other("x", &written(folder.path(), &files), &["shared"]).unwrap();
        assert_eq!(wrong, ["x: a must not know b: move what both need below"]);
    }

    #[test]
    fn a_cycle_is_an_error() {
        let modules = vec!["a".into(), "b".into()];
        let found = Cycle { place: Vec::new(), modules, edges: Edges::new() };
        let outcome = |cycles: &[Cycle]| in_circles("x", cycles, Path::new(""));
        assert!(outcome(&[found]).is_some_and(|text| text.contains("2 modules in cycles")));
        assert_eq!(outcome(&[]), None);
    }

    #[test]
    fn a_forbidden_crate_is_an_error() {
        let member = |dependencies: &[&str]| Crate {
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
            roots: Vec::new(),
        };
        let crates = Crates::from([("low".into(), member(&[])), ("high".into(), member(&[]))]);
        let rule = Rule { name: "x", knows: &["low"], never: &["axum"] };
        assert!(forbidden(&rule, &member(&["low", "serde"]), &crates).is_empty());
        let wrong = forbidden(&rule, &member(&["high", "axum"]), &crates);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
    }
}
