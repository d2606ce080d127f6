//! The `capstan` command: parses arguments and hands over to one file per subcommand.

mod cmd;

use std::process::ExitCode;

use clap::Parser;

/// The run contract for AI agents: start once, stream, fail in types, resume anywhere, stop on purpose.
#[derive(Parser)]
#[command(version, about, long_about = None, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: cmd::Command,
}

fn main() -> ExitCode {
    match Cli::parse().command.run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
