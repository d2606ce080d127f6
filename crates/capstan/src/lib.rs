//! The `capstan` command as a library: parses arguments and calls one module per subcommand.
//!
//! It is a library so that `make gen` can write docs/cli.md from the code.

mod cmd;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

/// The run contract for AI agents: start once, stream, fail with typed errors, resume anywhere,
/// stop on purpose.
#[derive(Parser)]
#[command(name = "capstan", version, long_version = version::long(), about, long_about = None,
propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

/// Runs the command line.
pub fn run() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// The definition of the command line.
pub fn command() -> clap::Command {
    Cli::command()
}
