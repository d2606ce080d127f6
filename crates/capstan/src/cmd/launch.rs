//! Starts a program with a gateway as its model provider.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use super::Failure;
use super::connection::{Connection, block_on, failed};

/// The flags of every such program.
#[derive(clap::Args)]
pub(super) struct Launch {
    #[command(flatten)]
    connection: Connection,

    /// The agent that answers, if not the default one; `capstan agents` lists them
    #[arg(long)]
    agent: Option<String>,

    /// The program, if it is not on the PATH under its own name
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,

    /// Print the settings and start nothing
    #[arg(long)]
    pub(super) print: bool,

    /// Arguments for the program
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// A program, and how users install it.
pub(super) struct Program {
    pub(super) name: &'static str,
    /// The command that installs it.
    pub(super) install: &'static str,
}

impl Launch {
    /// Returns the agent's name after a check with the gateway. The inner error is the exit code of
    /// a reported failure.
    pub(super) fn agent(&self) -> Result<Result<String, ExitCode>, Failure> {
        let screen = self.connection.screen();
        let client = self.connection.client(&screen)?;
        let agents = match block_on(async { Ok(client.agents().await) })? {
            Ok(agents) => agents,
            Err(error) => return failed(&screen, &error).map(Err),
        };
        let mut names = agents.into_iter().map(|agent| agent.name);
        let found = match &self.agent {
            None => names.next(),
            Some(asked) => names.find(|name| name == asked),
        };
        found.map(Ok).ok_or_else(|| self.unknown())
    }

    fn unknown(&self) -> Failure {
        let message = match &self.agent {
            None => "the server has no agents".to_owned(),
            Some(name) => format!("the server has no agent {name:?}"),
        };
        Failure::usage(message).with_help("`capstan agents` lists those that there are")
    }

    /// Whether the user named an agent.
    pub(super) fn has_agent(&self) -> bool {
        self.agent.is_some()
    }

    /// The gateway's address, without a slash at its end.
    /// The gateway's address. A user may have copied it with the path of OpenAI's clients.
    pub(super) fn url(&self) -> &str {
        self.connection.url().trim_end_matches('/').trim_end_matches("/v1")
    }

    pub(super) fn key(&self) -> Option<&str> {
        self.connection.key()
    }

    /// The key, quoted for a shell. It is not shown if the shell has it in a variable already.
    pub(super) fn shown_key(&self) -> Option<String> {
        let key = self.key()?;
        let is_held = std::env::var("CAPSTAN_KEY").is_ok_and(|held| held == key);
        Some(if is_held { "\"$CAPSTAN_KEY\"".to_owned() } else { quoted(key) })
    }

    /// Replaces this process by the program, so that signals and the terminal belong to it.
    pub(super) fn start(
        &self,
        program: &Program,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<ExitCode, Failure> {
        let file = self.program.clone().unwrap_or_else(|| program.name.into());
        let mut command = Command::new(&file);
        prepare(&mut command);
        let error = command.args(&self.arguments).exec();
        let failure = Failure::usage(format!("{} does not start: {error}", file.display()));
        Err(failure.with_help(format!("`{}` installs it", program.install)))
    }
}

/// Quotes text as one word of a shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_quote_stays_within_its_word() {
        assert_eq!(super::quoted("it's $HOME"), r"'it'\''s $HOME'");
    }
}
