//! `capstan config`: prints an example, or the effective configuration with its sources.

mod origin;

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;

use comfy_table::{ContentArrangement, Table, presets};
use owo_colors::OwoColorize as _;

use super::connection::block_on;
use super::{Failure, serve};
use origin::Origins;

/// Print an example configuration, or check the effective one
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print a commented example configuration
    Example,

    /// Check the configuration and print the source of each value
    ///
    /// Takes the flags of `capstan serve`, and starts nothing. Exit code 2 if `capstan serve` would
    /// refuse to start.
    Check(Box<serve::Args>),
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Example => write!(io::stdout(), "{}", serve::EXAMPLE)?,
            Command::Check(args) => check(*args)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn check(args: serve::Args) -> Result<(), Failure> {
    let config = args.settle()?;
    let origins = Origins::of(config.source());
    let plan = block_on(serve::Plan::of(&config))?;
    let settings = &plan.settings;
    let mut out = anstream::AutoStream::auto(io::stdout().lock());
    let rows: Vec<_> = config
        .effective(settings)
        .into_iter()
        .map(|(key, value)| {
            let origin = origins.of_key(&key, &value);
            [key, value, origin]
        })
        .collect();
    writeln!(out, "{}", table(rows))?;
    let whose = match settings.tenants.current().len() {
        0 if settings.jwt.is_some() => "Every request needs a token.",
        0 if config.open => {
            "No tenants, and open: everybody who can reach the address may use the agents."
        }
        0 => "No tenants: everything belongs to the tenant `local`, and only this machine may ask.",
        _ if settings.jwt.is_some() => "Every request needs a token, or the key of a tenant.",
        _ => "Every request needs the key of a tenant.",
    };
    writeln!(out, "\n{}", whose.dimmed())?;
    for (agent, message) in plan.warnings() {
        anstream::eprintln!("{} {agent}: {message}", "warning:".yellow().bold());
    }
    Ok(())
}

fn table(rows: Vec<[String; 3]>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["key", "value", "from"]);
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.add_rows(rows);
    table
}
