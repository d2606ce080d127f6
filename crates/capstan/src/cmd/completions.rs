//! `capstan completions`: prints the completion script of a shell.

use std::io;
use std::process::ExitCode;

use clap_complete::{Shell, generate};

use super::Failure;

/// Print completions for a shell
///
/// For bash: capstan completions bash > ~/.local/share/bash-completion/completions/capstan
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        // In memory first, because the generator panics at a closed pipe.
        let mut script = Vec::new();
        generate(self.shell, &mut crate::command(), "capstan", &mut script);
        io::Write::write_all(&mut io::stdout(), &script)?;
        Ok(ExitCode::SUCCESS)
    }
}
