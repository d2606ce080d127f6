//! `[[agents]]`: makes an agent of each table. A mistake is refused with its line and the nearest
//! known key.

use std::collections::BTreeMap;
use std::path::Path;

use capstan_agent::{Agent, Clock};
use capstan_protocol::nearest;
use capstan_upstream::{AgentTable, Breakers, ConfigError, Group, Kind, Passthrough};
use serde_json::{Map, Value};
use toml::Spanned;

use super::kinds::kinds;
use crate::cmd::Failure;

/// A table of the file; its kind decides which keys it may have.
pub(super) type Table = BTreeMap<Spanned<String>, Spanned<Value>>;

/// An agent with its name.
pub(in crate::cmd) struct Named {
    pub(super) name: String,
    /// Its other names.
    pub(super) aliases: Vec<String>,
    pub(super) kind: String,
    pub(super) agent: Box<dyn Agent>,
    /// The routes that it forwards to its provider, beside runs.
    pub(super) passthrough: Option<Passthrough>,
    /// A probable mistake in the settings of its key.
    pub(super) key_warning: Option<String>,
}

/// The file of the tables, for error messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
    /// Whether an error message may quote a line.
    pub(super) is_quoted: bool,
}

/// Keys whose lines are not quoted, because users may write a secret there by mistake.
const SECRET_KEYS: [&str; 7] = ["api_key", "apikey", "headers", "key", "query", "token", "url"];

/// The agents of a file, in its order.
pub(super) fn agents(
    tables: &[Table],
    source: Source<'_>,
    breakers: &Breakers,
) -> Result<Vec<Named>, Failure> {
    let mut read: Vec<AgentTable> = Vec::new();
    for table in tables {
        let (name, kind) = (word(table, "name", source)?, word(table, "kind", source)?);
        check_name(&name, read.iter().any(|known| known.name == name))
            .map_err(|why| source.mistake(place(table, "name"), &why))?;
        read.push(AgentTable { name, kind, keys: keys(table) });
    }
    let aliases = aliases(tables, &read, source)?;
    let kinds = kinds();
    let built = kinds.build_all(&read, &Clock::default(), breakers).map_err(|(at, error)| {
        let found = tables.get(at).zip(read.get(at));
        found.map_or_else(
            || Failure::usage(error.to_string()),
            |(table, read)| explain(table, &read.name, &read.kind, &error, source),
        )
    })?;
    let passed = passed_on(tables, &read, source)?;
    let named =
        |(((table, agent), aliases), passthrough): (((AgentTable, Box<dyn Agent>), _), _)| {
            let key_warning = kinds.key_warning(&table.kind, &table.keys);
            Named { name: table.name, aliases, kind: table.kind, agent, passthrough, key_warning }
        };
    Ok(read.into_iter().zip(built).zip(aliases).zip(passed).map(named).collect())
}

/// The routes that each agent forwards beside runs. Such a request names no model, so each route
/// belongs to one agent.
fn passed_on(
    tables: &[Table],
    read: &[AgentTable],
    source: Source<'_>,
) -> Result<Vec<Option<Passthrough>>, Failure> {
    let (kinds, clock) = (kinds(), Clock::default());
    let (mut all, mut has_files) = (Vec::new(), false);
    for (table, agent) in tables.iter().zip(read) {
        let passed = kinds
            .passthrough(&agent.kind, agent.keys.clone(), &clock)
            .map_err(|error| explain(table, &agent.name, &agent.kind, &error, source))?;
        let files = passed.as_ref().is_some_and(|one| one.groups().contains(&Group::Files));
        if files && has_files {
            let why = "agents: passthrough: another agent has \"files\", and only one can";
            return Err(source.mistake(place(table, "passthrough"), why));
        }
        has_files |= files;
        all.push(passed);
    }
    Ok(all)
}

/// The other names of each agent. Each name belongs to one agent.
fn aliases(
    tables: &[Table],
    read: &[AgentTable],
    source: Source<'_>,
) -> Result<Vec<Vec<String>>, Failure> {
    let mut taken: Vec<String> = read.iter().map(|table| table.name.clone()).collect();
    let mut all = Vec::new();
    for table in tables {
        let wrong = |why: &str| source.mistake(place(table, ALIASES), &format!("agents: {why}"));
        let given = table.iter().find(|(key, _)| key.as_ref() == ALIASES);
        let own: Option<Vec<String>> = given
            .map(|(_, value)| serde_json::from_value(value.as_ref().clone()))
            .transpose()
            .map_err(|_| wrong("aliases: expected a list of strings"))?;
        let own = own.unwrap_or_default();
        for alias in &own {
            if !is_alias(alias) {
                return Err(wrong(&format!(
                    "the alias {alias:?} may hold letters, digits and any of -_.:@/ only"
                )));
            }
            if taken.contains(alias) {
                return Err(wrong(&format!("the alias {alias:?} is the name of another agent")));
            }
            taken.push(alias.clone());
        }
        all.push(own);
    }
    Ok(all)
}

/// A key of every kind, like `name` and `kind`.
const ALIASES: &str = "aliases";

/// Model names may have more characters than agent names.
fn is_alias(alias: &str) -> bool {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@' | '/');
    alias.chars().all(is_plain) && alias.chars().any(|c| c.is_ascii_alphanumeric())
}

/// The keys that the kind reads.
fn keys(table: &Table) -> Map<String, Value> {
    let is_ours = |key: &str| matches!(key, "name" | "kind" | ALIASES);
    let own = table.iter().filter(|(key, _)| !is_ours(key.as_ref()));
    own.map(|(key, value)| (key.as_ref().clone(), value.as_ref().clone())).collect()
}

/// The string under a key of the table, if there is one.
pub(super) fn found<'a>(table: &'a Table, key: &str) -> Option<&'a str> {
    let (_, value) = table.iter().find(|(known, _)| known.as_ref() == key)?;
    value.as_ref().as_str()
}

fn word(table: &Table, key: &str, source: Source<'_>) -> Result<String, Failure> {
    found(table, key).map(str::to_owned).ok_or_else(|| {
        let first = table.keys().map(|known| known.span().start).min();
        let help = match key {
            "kind" => {
                let named = |kind: &Kind| format!("{} ({})", kind.name, kind.what);
                format!("one of: {}", kinds().iter().map(named).collect::<Vec<_>>().join(", "))
            }
            _ => "it is the last part of the path /v1/agents/<name>".to_owned(),
        };
        let place = place(table, key).or(first);
        source.mistake(place, &format!("agents: a string `{key}` is needed")).with_help(help)
    })
}

/// Checks that a name fits into a URL path.
fn check_name(name: &str, is_taken: bool) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(format!(
            "agents: the name {name:?} may hold letters, digits, '-', '_' and '.' only"
        ));
    }
    // Clients would resolve such a path to another one.
    if name.chars().all(|c| c == '.') {
        return Err(format!(
            "agents: the name {name:?} is no part of a path; it needs a letter or a digit"
        ));
    }
    if is_taken { Err(format!("agents: the name {name:?} is taken")) } else { Ok(()) }
}

fn place(table: &Table, key: &str) -> Option<usize> {
    table.iter().find(|(known, _)| known.as_ref() == key).map(|(known, _)| known.span().start)
}

fn explain(
    table: &Table,
    name: &str,
    kind: &str,
    error: &ConfigError,
    source: Source<'_>,
) -> Failure {
    let is_secret = error.key().is_some_and(|key| SECRET_KEYS.contains(&key));
    let source = if is_secret { source.unquoted() } else { source };
    let at = error.key().and_then(|key| place(table, key)).or_else(|| place(table, "name"));
    let failure = source.mistake(at, &format!("agents: {name} ({kind}): {error}"));
    let (wrong, also) = match (error.key(), error.value()) {
        (_, Some(value)) => (value, None),
        (Some(key), None) => (key, error.known().next().map(|_| ALIASES)),
        (None, None) => return failure,
    };
    match nearest(wrong, error.known().chain(also)) {
        Some(close) => failure.with_help(format!("did you mean `{close}`?")),
        None => failure,
    }
}

impl Source<'_> {
    fn unquoted(self) -> Self {
        Self { is_quoted: false, ..self }
    }

    /// An error message like toml's: the line, with a mark under the place.
    fn mistake(&self, at: Option<usize>, message: &str) -> Failure {
        let path = self.path.display();
        let Some(before) = at.and_then(|at| self.text.get(..at)) else {
            return Failure::usage(format!("{path}: {message}"));
        };
        let line = before.lines().count().max(1)
            + usize::from(before.ends_with('\n') && !before.is_empty());
        let line = if before.is_empty() { 1 } else { line };
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
        if !self.is_quoted {
            return Failure::usage(format!("{path}: line {line}\n{message}"));
        }
        let text = self.text.lines().nth(line - 1).unwrap_or_default();
        let gutter = " ".repeat(line.to_string().len());
        let mark = " ".repeat(column);
        Failure::usage(format!(
            "{path}: line {line}, column {}\n{gutter} |\n{line} | {text}\n{gutter} | \
             {mark}^\n{message}",
            column + 1
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        #[derive(serde::Deserialize)]
        struct File {
            agents: Vec<Table>,
        }
        let file: File = toml::from_str(text).unwrap();
        let source = Source { path: Path::new("capstan.toml"), text, is_quoted: true };
        let found = agents(&file.agents, source, &Breakers::default());
        found
            .map(|all| all.into_iter().map(|agent| agent.name).collect())
            .map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn agents_keep_the_order_of_the_file() {
        let text = "[[agents]]\nname = \"b\"\nkind = \"demo\"\n\n[[agents]]\nname = \"a\"\nkind \
         = \"openai\"\nmodel = \"m\"\n\
            url = \"http://127.0.0.1:1/v1\"\ntimeouts = { idle = 1.5 \
            }\n[agents.parameters]\ntemperature = 0.5\n";
        assert_eq!(read(text).unwrap(), ["b", "a"]);
    }

    #[test]
    fn a_wrong_key_names_its_line_and_the_nearest_known_one() {
        let text = "[[agents]]\nname = \"a\"\nkind = \"openai\"\nmodle = \"m\"\n";
        let failure = read(text).unwrap_err();
        assert!(
            failure.contains("line 4") && failure.contains("did you mean `model`?"),
            "{failure}"
        );
        let text = "[[agents]]\nname = \"a\"\nkind = \"openai\"\nmodel \
         = \"m\"\n[agents.timeouts]\nidel = 1\n";
        let failure = read(text).unwrap_err();
        assert!(
            failure.contains("unknown key `idel`") && failure.contains("did you mean `idle`?"),
            "{failure}"
        );
    }

    #[test]
    fn a_wrong_value_names_its_line() {
        let failure = read("[[agents]]\nname = \"a\"\nkind = \"openai\"\nmodel = 7\n").unwrap_err();
        assert!(failure.contains("line 4") && failure.contains("expected a string"), "{failure}");
        let failure = read("[[agents]]\nname = \"a\"\nkind = \"openai\"\n").unwrap_err();
        assert!(failure.contains("`model` is missing"), "{failure}");
        let failure =
            read("[[agents]]\nname = \"a\"\nkind = \"anthropic\"\nmodel = \" \"\n").unwrap_err();
        assert!(failure.contains("line 4") && failure.contains("model: it is empty"), "{failure}");
        let demo = |delay: &str| {
            read(&format!("[[agents]]\nname = \"a\"\nkind = \"demo\"\ndelay = {delay}\n"))
        };
        assert_eq!(demo("0").unwrap(), ["a"]);
        let failure = demo("-1").unwrap_err();
        assert!(failure.contains("line 4") && failure.contains("number of seconds"), "{failure}");
    }

    #[test]
    fn a_wrong_kind_or_name_is_refused() {
        let failure = read("[[agents]]\nname = \"a\"\nkind = \"opena\"\n").unwrap_err();
        assert!(
            failure.contains("line 3") && failure.contains("did you mean `openai`?"),
            "{failure}"
        );
        assert!(read("[[agents]]\nname = \"a\"\n").unwrap_err().contains("`kind`"));
        assert!(
            read("[[agents]]\nname = \"a/b\"\nkind = \"demo\"\n").unwrap_err().contains("letters")
        );
        for dots in [".", ".."] {
            let text = format!("[[agents]]\nname = \"{dots}\"\nkind = \"demo\"\n");
            assert!(read(&text).unwrap_err().contains("no part of a path"));
        }
        let twice = "[[agents]]\nname = \"a\"\nkind = \"demo\"\n[[agents]]\nname = \"a\"\nkind \
         = \"demo\"\n";
        assert!(read(twice).unwrap_err().contains("is taken"));
    }

    #[test]
    fn an_alias_that_is_taken_or_no_name_is_refused_with_its_line() {
        let table = |name: &str, aliases: &str| {
            format!("[[agents]]\nname = {name:?}\nkind = \"demo\"\naliases = {aliases}\n")
        };
        let both = |a: &str, b: &str| read(&(table("a", a) + &table("b", b)));
        assert_eq!(both("[\"gpt-4o\", \"qwen/qwen3:8b\"]", "[]").unwrap(), ["a", "b"]);
        for (a, b, line, why) in [
            ("[\"x\"]", "[\"x\"]", 8, "is the name of another"),
            ("[\"x\", \"x\"]", "[]", 4, "is the name of another"),
            ("[\"b\"]", "[]", 4, "is the name of another"),
            ("[]", "[\"a\"]", 8, "is the name of another"),
            ("[]", "[\"a b\"]", 8, "letters"),
            ("[]", "[\"..\"]", 8, "letters"),
            ("[]", "\"x\"", 8, "a list of strings"),
        ] {
            let failure = both(a, b).unwrap_err();
            assert!(failure.contains(&format!("line {line}")), "{failure}");
            assert!(failure.contains(why), "{failure}");
        }
    }

    #[test]
    fn a_route_that_cannot_be_is_refused_with_its_line() {
        let claude = "[[agents]]\nname = \"claude\"\nkind = \"openai\"\nmodel = \"m\"\n";
        let route = |name: &str, rest: &str| {
            format!("[[agents]]\nname = \"{name}\"\nkind = \"route\"\n{rest}\n")
        };
        let wrong = |text: &str| read(&format!("{claude}{text}")).unwrap_err();
        let failure = wrong(&route("a", "use = [\"cluade\"]"));
        assert!(
            failure.contains("line 8") && failure.contains("no agent is called \\\"cluade\\\""),
            "{failure}"
        );
        assert!(failure.contains("did you mean `claude`?"), "{failure}");
        assert!(wrong(&route("a", "use = []")).contains("names no agent"));
        assert!(wrong(&route("a", "")).contains("`use` is missing"));
        assert!(wrong(&route("a", "use = [\"claude\", \"claude\"]")).contains("is named twice"));
        assert!(wrong(&route("a", "use = [\"a\"]")).contains("a circle: a → a"));
        let circle = route("a", "use = [\"claude\", \"b\"]") + &route("b", "use = [\"a\"]");
        assert!(wrong(&circle).contains("a circle: a → b → a"), "{}", wrong(&circle));
        assert!(
            wrong(&route("a", "use = [{ name = \"claude\", when = \"context\" }]"))
                .contains("to call first")
        );
        assert!(
            wrong(&route("a", "use = [\"claude\"]\nhedge = 1")).contains("needs a second member")
        );
        assert!(
            wrong(&route("a", "use = [\"claude\"]\nfirst_tokn = 1"))
                .contains("did you mean `first_token`?")
        );
        let nested =
            route("a", "use = [\"b\"]\nfirst_token = 8") + &route("b", "use = [\"claude\"]");
        assert_eq!(read(&format!("{claude}{nested}")).unwrap(), ["claude", "a", "b"]);
    }

    #[test]
    fn a_key_in_plain_text_is_refused() {
        let text =
            "[[agents]]\nname = \"a\"\nkind = \"openai\"\nmodel = \"m\"\napi_key = \"sk-1\"\n";
        let failure = read(text).unwrap_err();
        assert!(failure.contains("key_env or key_file"), "{failure}");
        assert!(failure.contains("line 5") && !failure.contains("sk-1"), "{failure}");
        let text = "[[agents]]\nname = \"a\"\nkind = \"cap\"\nurl = \"http://u:pass@localhost\"\n";
        let failure = read(text).unwrap_err();
        assert!(failure.contains("key_env or key_file") && !failure.contains("pass"), "{failure}");
        for (key, why) in [("headers", "{ env ="), ("query", "{ env =")] {
            let text = format!(
                "[[agents]]\nname = \"a\"\nkind = \"openai\"\nmodel = \"m\"\n{key} = {{ api-key \
                 = \"sk-1\" }}\n"
            );
            let failure = read(&text).unwrap_err();
            assert!(failure.contains(why) && !failure.contains("sk-1"), "{failure}");
        }
    }

    const PAGE: &str = include_str!("../../../../../docs/configuration.md");

    fn rows() -> impl Iterator<Item = &'static str> {
        let section =
            PAGE.split("## `[[agents]]`").nth(1).and_then(|rest| rest.split("\n## ").next());
        section.unwrap().lines().filter(|line| line.starts_with("| `"))
    }

    #[test]
    fn every_key_of_every_kind_stands_in_the_documentation() {
        let wrong: Map<String, Value> =
            [("no_such_key".to_owned(), 1.into())].into_iter().collect();
        for kind in kinds().iter() {
            assert!(PAGE.contains(&format!("`{}`", kind.name)), "{}", kind.name);
            let built = kinds().build(kind.name, wrong.clone(), &Clock::default());
            let Err(error) = built else { panic!("{} takes anything", kind.name) };
            for key in error.known() {
                let row = rows().find(|row| row.starts_with(&format!("| `{key}` |")));
                let row =
                    row.unwrap_or_else(|| panic!("docs/configuration.md has no row for {key}"));
                let kinds = row.split('|').nth(2).unwrap();
                assert!(kinds.contains("all") || kinds.contains(kind.name), "{key}: {}", kind.name);
            }
        }
    }

    #[test]
    fn every_default_time_and_number_stands_in_the_documentation() {
        for kind in kinds().iter().filter(|kind| !matches!(kind.name, "demo" | "route")) {
            let times = kind.timeouts;
            let cells = [times.connect, times.first_token, times.idle, times.thinking, times.total]
                .map(|t| t.as_secs().to_string());
            let row =
                format!("| `{}` | {} | {} |", kind.name, kind.retries.attempts, cells.join(" | "));
            assert!(PAGE.contains(&row), "docs/configuration.md lacks {row}");
        }
        assert!(PAGE.contains(&format!(
            "| `max_calls` | all but demo | number | {} |",
            capstan_upstream::MAX_CALLS
        )));
    }
}
