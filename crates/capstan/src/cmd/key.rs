//! `capstan key`: creates keys of tenants and operators. It shows a key once; the file holds its
//! hash.

use std::io::{self, Write as _};
use std::process::ExitCode;

use capstan_gateway::{KeyHash, Scope};

use super::Failure;

/// The prefix of keys, so that scanners find leaked ones.
const PREFIX: &str = "sk_";

/// Create keys for tenants and operators
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Create a random key: it is shown once, with the table for capstan.toml that holds its hash
    ///
    /// The key goes to standard output, the table to standard error. A tenant may have several
    /// keys.
    New {
        /// The tenant's name: letters, digits, `-`, `_` and `.`
        #[arg(required_unless_present = "operator", conflicts_with = "operator")]
        tenant: Option<String>,

        /// What the key may do, by default everything; can be given several times
        #[arg(long, value_name = "run|read|stop|purge", value_parser = scope,
        conflicts_with = "operator")]
        scope: Vec<Scope>,

        /// Create a key for an operator, who looks after the server and starts no run
        #[arg(long, value_name = "NAME")]
        operator: Option<String>,
    },
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Command::New { tenant, scope, operator } = self.command;
        let name = operator.as_ref().or(tenant.as_ref()).map(String::as_str).unwrap_or_default();
        check(name)?;
        let key = random_key()?;
        writeln!(io::stdout(), "{key}")?;
        let hash = KeyHash::of(&key);
        let table = if operator.is_some() {
            operator_table(name, &hash)
        } else {
            table(name, &hash, &scope)
        };
        anstream::eprint!("{table}");
        Ok(ExitCode::SUCCESS)
    }
}

/// Checks a name that appears in a header, in logs and in files.
fn check(tenant: &str) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !tenant.is_empty() && tenant.chars().all(is_plain) {
        return Ok(());
    }
    Err(Failure::usage(format!("{tenant:?} cannot be a tenant's name"))
        .with_help("letters, digits, `-`, `_` and `.`"))
}

/// 32 bytes from the operating system. Nobody can guess them, so a plain hash of the key is enough.
fn random_key() -> Result<String, Failure> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().fold(PREFIX.to_owned(), |key, byte| format!("{key}{byte:02x}")))
}

fn scope(word: &str) -> Result<Scope, String> {
    Scope::of_word(word).ok_or_else(|| "expected run, read, stop or purge".into())
}

/// The tenant's table: valid TOML, comments included.
fn table(tenant: &str, hash: &KeyHash, scopes: &[Scope]) -> String {
    let hash = format!("\"sha256:{}\"", hash.to_hex());
    let names: Vec<String> = scopes.iter().map(|scope| format!("\"{}\"", scope.word())).collect();
    let key = match names.is_empty() {
        true => hash,
        false => format!("{{ hash = {hash}, scopes = [{}] }}", names.join(", ")),
    };
    format!(
        "# The key above is shown this once. Its hash, for capstan.toml:\n[[tenants]]\nname \
         = \"{tenant}\"\n\
         keys = [{key}]\n# If the tenant is there already, add the hash to its keys. \
         A running server reads them at SIGHUP.\n"
    )
}

/// The operator's table, with the right `look`.
fn operator_table(name: &str, hash: &KeyHash) -> String {
    format!(
        "# The key above is shown this once. Its hash, for capstan.toml:\n[[operators]]\nname \
         = \"{name}\"\n\
         keys = [\"sha256:{}\"]\ntenants = [\"*\"]\nmay = [\"look\"]\n\
         # It may also have \"content\" and \"act\". A running server reads this at SIGHUP.\n",
        hash.to_hex()
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_and_differ() {
        let (one, other) = (random_key().unwrap(), random_key().unwrap());
        assert!(one.starts_with(PREFIX) && one.len() == PREFIX.len() + 64);
        assert_ne!(one, other);
    }

    #[test]
    fn the_tables_are_toml_and_say_what_the_key_may_do() {
        let hash = KeyHash::of("k");
        let read = |text: String| text.parse::<toml::Table>().unwrap();
        let plain = read(table("acme", &hash, &[]));
        let known = format!("sha256:{}", hash.to_hex());
        let key = |table: &toml::Table| table.get("tenants").unwrap()[0]["keys"][0].clone();
        assert_eq!(key(&plain).as_str(), Some(known.as_str()));
        let scoped = key(&read(table("acme", &hash, &[Scope::Read, Scope::Stop])));
        assert_eq!(scoped["hash"].as_str(), Some(known.as_str()));
        assert_eq!(scoped["scopes"].to_string(), "[\"read\", \"stop\"]");
        let operator = read(operator_table("ada", &hash));
        assert_eq!(operator["operators"][0]["may"].to_string(), "[\"look\"]");
    }

    #[test]
    fn a_name_fits_into_a_header_and_a_file() {
        assert!(check("acme-2.eu_1").is_ok());
        for wrong in ["", "a b", "a\"b", "ä", "a\n"] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}
