//! The paths in a piece of code that begin at the crate, at a module's parent or at itself. Tokens
//! are read rather than syntax: so macro calls, attributes and `use` are one case.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;

/// A module's place below the crate's root, or a path to an item.
pub(crate) type Names = Vec<String>;

/// A path, with `crate`, `super` and `self` as written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mention {
    pub(crate) path: Names,
    pub(crate) line: usize,
}

/// All paths of an item. Parts of it that only tests compile are left out.
pub(crate) fn mentioned(item: &impl ToTokens) -> Vec<Mention> {
    let mut found = Vec::new();
    scan(item.to_token_stream(), &mut found);
    found
}

fn scan(tokens: TokenStream, found: &mut Vec<Mention>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut rest = tokens.as_slice();
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            TokenTree::Ident(name) if is_start(&name.to_string()) && is_separator(after) => {
                tree(rest, &mut Vec::new(), found)
            }
            TokenTree::Punct(mark) if mark.as_char() == '#' && is_cfg_test(after) => {
                let end = after.iter().position(ends_item).map_or(after.len(), |at| at + 1);
                after.get(end..).unwrap_or_default()
            }
            TokenTree::Group(group) => {
                scan(group.stream(), found);
                after
            }
            TokenTree::Literal(literal) => {
                found.extend(in_literal(literal));
                after
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => after,
        };
    }
}

/// Reads `a::b`, `a::{b, c::d}` or `a::*` and returns what follows.
fn tree<'a>(
    mut rest: &'a [TokenTree],
    path: &mut Names,
    found: &mut Vec<Mention>,
) -> &'a [TokenTree] {
    let mut line = 0;
    while let Some((TokenTree::Ident(name), after)) = rest.split_first() {
        path.push(name.to_string());
        line = name.span().start().line;
        rest = after;
        if !is_separator(after) {
            break;
        }
        rest = after.get(2..).unwrap_or_default();
        if let Some((TokenTree::Group(group), after)) = rest.split_first()
            && group.delimiter() == Delimiter::Brace
        {
            branches(group.stream(), path, found);
            return after;
        }
    }
    found.push(Mention { path: path.clone(), line });
    rest
}

/// The parts of a group in a `use`, each behind the path before it.
fn branches(tokens: TokenStream, path: &Names, found: &mut Vec<Mention>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for part in
        tokens.split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ','))
    {
        if !part.is_empty() {
            tree(part, &mut path.clone(), found);
        }
    }
}

/// Attributes such as `#[serde(default = "super::yes")]` name paths in text.
fn in_literal(literal: &proc_macro2::Literal) -> Option<Mention> {
    let text = literal.to_string();
    let path = text.strip_prefix('"')?.strip_suffix('"')?;
    let names: Names = path.split("::").map(str::to_owned).collect();
    let is_name = |name: &String| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let is_path = names.len() > 1 && is_start(names.first()?) && names.iter().all(is_name);
    is_path.then(|| Mention { path: names, line: literal.span().start().line })
}

fn is_start(name: &str) -> bool {
    matches!(name, "crate" | "super" | "self")
}

fn is_separator(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ':');
    tokens.get(..2).is_some_and(|two| two.iter().all(is_colon))
}

fn is_cfg_test(tokens: &[TokenTree]) -> bool {
    tokens.first().is_some_and(|token| token.to_string().replace(' ', "") == "[cfg(test)]")
}

/// A body or a semicolon.
fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(code: &str) -> Vec<String> {
        let mut found = Vec::new();
        scan(code.parse().unwrap(), &mut found);
        found.into_iter().map(|mention| mention.path.join("::")).collect()
    }

    #[test]
    fn nested_use_trees() {
        let expected = ["crate::a", "crate::b::c", "crate::b::self", "super::super::d"];
        assert_eq!(paths("use crate::{a, b::{c, self}}; use super::super::d as e;"), expected);
    }

    #[test]
    fn code_macros_and_attributes() {
        let code =
            r#"#[serde(with = "crate::time")] fn f() { m!(crate::a::B { x: self::c::<T>() }) }"#;
        assert_eq!(paths(code), ["crate::time", "crate::a::B", "self::c"]);
    }

    #[test]
    fn test_code_and_prose_do_not_count() {
        let code =
            r#"#[cfg(test)] fn f() -> crate::A { crate::b() } const C: &str = "crate::a b";"#;
        assert_eq!(paths(code), Vec::<String>::new());
        assert_eq!(paths("#[cfg(test)] use crate::a; use crate::b;"), ["crate::b"]);
    }
}
