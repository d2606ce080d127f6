//! The `capstan` command as a library: parses arguments and hands over to one file per subcommand.
//!
//! It is a library only so that the reference of the command line can be written from the code.

mod cmd;
mod version;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

/// The run contract for AI agents: start once, stream, fail in types, resume anywhere, stop on
/// purpose.
#[derive(Parser)]
#[command(name = "capstan", version, long_version = version::long(), about, long_about = None,
propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

/// Does what the command line asks.
pub fn run() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// The command line, described.
pub fn command() -> clap::Command {
    Cli::command()
}
