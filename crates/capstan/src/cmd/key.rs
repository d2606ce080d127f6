//! `capstan key`: keys of tenants. A key is shown once; what is kept is its hash.

use std::io::{self, Write as _};
use std::process::ExitCode;

use capstan_gateway::KeyHash;

use super::Failure;

/// How keys begin, so that scanners find those that leak.
const PREFIX: &str = "sk_";

/// Make keys for tenants
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a random key: it is shown once, with the table for capstan.toml that holds its hash
    ///
    /// The key goes to standard output, the table to standard error. A tenant may have several keys.
    New {
        /// Whose key it is: letters, digits, `-`, `_` and `.`
        tenant: String,
    },
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Command::New { tenant } = self.command;
        check(&tenant)?;
        let key = random_key()?;
        writeln!(io::stdout(), "{key}")?;
        anstream::eprint!("{}", table(&tenant, &KeyHash::of(&key)));
        Ok(ExitCode::SUCCESS)
    }
}

/// A name travels in a header and stands in logs and files.
fn check(tenant: &str) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !tenant.is_empty() && tenant.chars().all(is_plain) {
        return Ok(());
    }
    Err(Failure::usage(format!("{tenant:?} cannot be a tenant's name"))
        .with_help("letters, digits, `-`, `_` and `.`"))
}

/// 32 bytes of the operating system's: nobody guesses them, so a plain hash of the key is enough.
fn random_key() -> Result<String, Failure> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().fold(PREFIX.to_owned(), |key, byte| format!("{key}{byte:02x}")))
}

/// Valid TOML, comments included.
fn table(tenant: &str, hash: &KeyHash) -> String {
    format!(
        "# The key above is shown this once. Its hash, for capstan.toml:\n[[tenants]]\nname = \"{tenant}\"\n\
         keys = [\"sha256:{}\"]\n# If the tenant is there already, add the hash to its keys. \
         A running server reads them at SIGHUP.\n",
        hash.to_hex()
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_and_differ() {
        let (one, other) = (random_key().unwrap(), random_key().unwrap());
        assert!(one.starts_with(PREFIX) && one.len() == PREFIX.len() + 64);
        assert_ne!(one, other);
    }

    #[test]
    fn a_name_fits_into_a_header_and_a_file() {
        assert!(check("acme-2.eu_1").is_ok());
        for wrong in ["", "a b", "a\"b", "ä", "a\n"] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}
