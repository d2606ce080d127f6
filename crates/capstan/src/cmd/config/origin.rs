//! The source of a value: a flag, the environment, a line of the file, or the default.

use std::collections::HashMap;
use std::path::Path;

use clap::parser::ValueSource;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The sources, by key.
pub(super) struct Origins {
    /// Flags and environment variables.
    given: HashMap<String, String>,
    /// Lines of the file.
    lines: HashMap<String, String>,
}

impl Origins {
    /// Parses the command line again, because parsed arguments do not distinguish flags from
    /// variables. It takes the file's text as an argument, because a pipe can be read only once.
    pub(super) fn of((path, text): (&Path, &str)) -> Self {
        Self { given: given(), lines: lines(&path.display().to_string(), text) }
    }

    /// The source of one key. `--port` changes `listen`, and `CAPSTAN_ENV` may switch `debug` on.
    pub(super) fn of_key(&self, key: &str, value: &str) -> String {
        let port = self.given.get("port").filter(|_| key == "listen");
        let found = port.or_else(|| self.given.get(key)).or_else(|| self.lines.get(key)).cloned();
        match (key, value, found) {
            ("debug", "true", None) => "CAPSTAN_ENV".into(),
            (_, _, found) => found.unwrap_or_else(|| "default".into()),
        }
    }
}

fn given() -> HashMap<String, String> {
    let command = crate::command();
    let flags = command
        .find_subcommand("serve")
        .into_iter()
        .flat_map(clap::Command::get_arguments)
        .cloned();
    let flags: Vec<clap::Arg> = flags.collect();
    let matches = command.get_matches();
    let leaf =
        matches.subcommand().and_then(|(_, config)| config.subcommand()).map(|(_, check)| check);
    let origin = |flag: &clap::Arg| {
        let id = flag.get_id().as_str();
        let source = leaf?.value_source(id)?;
        let word = if source == ValueSource::CommandLine {
            format!("--{}", flag.get_long()?)
        } else if source == ValueSource::EnvVariable {
            flag.get_env()?.to_string_lossy().into_owned()
        } else {
            return None;
        };
        Some((id.to_owned(), word))
    };
    flags.iter().filter_map(origin).collect()
}

/// Maps every key of a file to its place, such as `capstan.toml:3`. Another function refuses an
/// unreadable file.
fn lines(file: &str, text: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    if let Ok(table) = DeTable::parse(text) {
        walk(table.get_ref(), "", &mut |key, at| {
            let line = text.get(..at).map_or(1, |before| before.split('\n').count());
            found.insert(key, format!("{file}:{line}"));
        });
    }
    found
}

fn walk(table: &DeTable<'_>, prefix: &str, found: &mut impl FnMut(String, usize)) {
    for (key, value) in table {
        let name = format!("{prefix}{}", key.get_ref());
        found(name.clone(), Spanned::span(key).start);
        if let DeValue::Table(inner) = value.get_ref() {
            walk(inner, &format!("{name}."), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_on_its_line() {
        let text =
            "debug = true\n\n[limits]\nruns = 7\nsessions = 1\n\n[[tenants]]\nname = \"a\"\n";
        let found = lines("x.toml", text);
        let place = |key: &str| found.get(key).map(String::as_str);
        assert_eq!(place("debug"), Some("x.toml:1"));
        assert_eq!(
            (place("limits.runs"), place("limits.sessions")),
            (Some("x.toml:4"), Some("x.toml:5"))
        );
        assert_eq!(place("tenants"), Some("x.toml:7"));
        assert_eq!(place("listen"), None);
    }
}
