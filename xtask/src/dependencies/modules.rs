//! The modules of one crate, read from its source: which module names items of which other module.
//!
//! Test code does not count. A path counts wherever it stands: in `use`, in code, in macro calls
//! and in attributes. A path through a re-export counts for the module that defines the item.

#![allow(clippy::wildcard_enum_match_arm)] // Most kinds of items are neither modules nor named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::{Attribute, Item, ItemMod, UseTree};

use super::paths::{self, Mention, Names};

/// Where one module names another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
}

/// The edges among the children of one module: who names whom, and the first place.
pub(crate) type Edges = BTreeMap<(String, String), Witness>;

#[derive(Default)]
struct Module {
    items: BTreeSet<String>,
    /// What `use` brings into scope, by its name here.
    imports: BTreeMap<String, Names>,
    globs: Vec<Names>,
    mentions: Vec<(Names, Witness)>,
}

/// All modules of a crate by their places; the root is the empty place.
#[derive(Default)]
pub(crate) struct Modules(BTreeMap<Names, Module>);

/// More re-exports than this in a row are a circle.
const LONGEST_CHAIN: usize = 16;

impl Modules {
    /// Reads a crate from its root file.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let mut modules = Self::default();
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        modules.file(root, &folder, &Vec::new())?;
        Ok(modules)
    }

    /// How many modules lie directly below the root.
    pub(crate) fn top_level(&self) -> usize {
        self.0.keys().filter(|place| place.len() == 1).count()
    }

    /// The edges among siblings, by the module that they are children of.
    pub(crate) fn edges(&self) -> BTreeMap<Names, Edges> {
        let mut edges = BTreeMap::<Names, Edges>::new();
        for (place, module) in &self.0 {
            for (path, witness) in &module.mentions {
                let defined = self.owner(place, path, LONGEST_CHAIN);
                let Some(owner) = defined.or_else(|| self.walk(place, path).map(|(at, _)| at))
                else {
                    continue;
                };
                let same = place.iter().zip(&owner).take_while(|(a, b)| a == b).count();
                let (Some(from), Some(to)) = (place.get(same), owner.get(same)) else { continue };
                let level = edges.entry(owner.iter().take(same).cloned().collect()).or_default();
                level.entry((from.clone(), to.clone())).or_insert_with(|| witness.clone());
            }
        }
        edges
    }

    fn file(&mut self, file: &Path, folder: &Path, place: &Names) -> Result<(), String> {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let parsed = syn::parse_file(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        self.items(parsed.items, file, folder, place)
    }

    fn items(
        &mut self,
        items: Vec<Item>,
        file: &Path,
        folder: &Path,
        place: &Names,
    ) -> Result<(), String> {
        let mut module = Module::default();
        for item in items {
            match item {
                Item::Mod(inner) if is_test(&inner.attrs) => {}
                Item::Mod(inner) => self.inner(inner, file, folder, place)?,
                Item::Use(item) if is_test(&item.attrs) => {}
                item => module.item(&item, file),
            }
        }
        self.0.insert(place.clone(), module);
        Ok(())
    }

    fn inner(
        &mut self,
        module: ItemMod,
        file: &Path,
        folder: &Path,
        place: &Names,
    ) -> Result<(), String> {
        let name = module.ident.to_string();
        let (place, below) =
            ([place.as_slice(), std::slice::from_ref(&name)].concat(), folder.join(&name));
        if let Some((_, items)) = module.content {
            return self.items(items, file, &below, &place);
        }
        if let Some(path) = path_attribute(&module.attrs) {
            let own = file.with_file_name(path);
            let below = own.parent().unwrap_or(folder).to_owned();
            return self.file(&own, &below, &place);
        }
        let beside = folder.join(format!("{name}.rs"));
        let own = if beside.exists() { beside } else { below.join("mod.rs") };
        self.file(&own, &below, &place)
    }

    /// The module that defines what a path names, as seen from a module. Nothing for what comes
    /// from other crates or out of a macro.
    fn owner(&self, from: &Names, path: &[String], chain: usize) -> Option<Names> {
        let chain = chain.checked_sub(1)?;
        let (at, rest) = self.walk(from, path)?;
        let Some((name, after)) = rest.split_first() else { return Some(at) };
        let module = self.0.get(&at)?;
        if module.items.contains(name) {
            return Some(at);
        }
        if let Some(target) = module.imports.get(name).filter(|target| *target != path) {
            return self.owner(&at, &[target, after].concat(), chain);
        }
        module.globs.iter().find_map(|glob| self.owner(&at, &[glob, rest].concat(), chain))
    }

    /// Follows a path through modules alone: where it arrives, and what is left of it.
    fn walk<'a>(&self, from: &Names, path: &'a [String]) -> Option<(Names, &'a [String])> {
        let (mut at, mut rest) = (from.clone(), path);
        while let Some((name, after)) = rest.split_first() {
            match name.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()?),
                _ => {
                    let child = [at.as_slice(), std::slice::from_ref(name)].concat();
                    if !self.0.contains_key(&child) {
                        break;
                    }
                    at = child;
                }
            }
            rest = after;
        }
        Some((at, rest))
    }
}

impl Module {
    fn item(&mut self, item: &Item, file: &Path) {
        if let Item::Use(item) = item {
            self.import(&item.tree, &mut Vec::new());
        }
        self.items.extend(name_of(item));
        let witness = |line| Witness { file: file.to_owned(), line };
        let mentions = paths::mentioned(item);
        let mentions = mentions.into_iter().map(|Mention { path, line }| (path, witness(line)));
        self.mentions.extend(mentions);
    }

    fn import(&mut self, tree: &UseTree, path: &mut Names) {
        match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                self.import(&part.tree, path);
                path.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                if let Some(last) = path.last() {
                    self.imports.insert(last.clone(), path.clone());
                }
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                let target = [path.as_slice(), std::slice::from_ref(&name)].concat();
                self.imports.insert(name, target);
            }
            UseTree::Rename(renamed) => {
                let target = [path.as_slice(), &[renamed.ident.to_string()]].concat();
                self.imports.insert(renamed.rename.to_string(), target);
            }
            UseTree::Glob(_) => self.globs.push(path.clone()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, path)),
        }
    }
}

/// The name that an item can be reached by.
fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Whether an item is compiled for tests alone.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
    })
}

/// `#[path = "…"]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let syn::Expr::Lit(value) = &attribute.meta.require_name_value().ok()?.value else {
        return None;
    };
    let syn::Lit::Str(text) = &value.lit else { return None };
    Some(text.value())
}
