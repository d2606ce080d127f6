//! The subcommands, a file or folder each, and the type of their failures.

mod agents;
mod chaos;
mod chat;
mod check;
mod claude;
mod codex;
mod completions;
mod config;
mod connection;
mod errors;
mod fake_provider;
mod input;
mod journal;
mod key;
mod launch;
mod logs;
mod outcome;
mod replay;
mod request;
mod screen;
mod serve;
mod stop;
mod streams;
mod tail;
mod traces;
mod validate;

use std::fmt;
use std::io;
use std::process::ExitCode;

use owo_colors::OwoColorize as _;

pub(crate) use serve::has_page;

/// The exit code for a wrong command line; clap uses the same.
const USAGE: u8 = 2;

/// The subcommands of `capstan`.
#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Serve(serve::Args),
    Chat(chat::Args),
    Claude(claude::Args),
    Codex(codex::Args),
    Agents(agents::Args),
    Streams(streams::Args),
    Tail(tail::Args),
    Stop(stop::Args),
    Check(Box<check::Args>),
    Validate(validate::Args),
    Errors(errors::Args),
    Request(request::Args),
    Journal(journal::Args),
    Key(key::Args),
    Config(config::Args),
    Chaos(Box<chaos::Args>),
    Replay(replay::Args),
    FakeProvider(fake_provider::Args),
    Completions(completions::Args),
}

impl Command {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Serve(args) => args.run(),
            Self::Chat(args) => args.run(),
            Self::Claude(args) => args.run(),
            Self::Codex(args) => args.run(),
            Self::Agents(args) => args.run(),
            Self::Streams(args) => args.run(),
            Self::Tail(args) => args.run(),
            Self::Stop(args) => args.run(),
            Self::Check(args) => args.run(),
            Self::Request(args) => args.run(),
            Self::Journal(args) => args.run(),
            Self::Key(args) => args.run(),
            Self::Config(args) => args.run(),
            Self::Chaos(args) => args.run(),
            Self::Replay(args) => args.run(),
            Self::FakeProvider(args) => args.run(),
            Self::Completions(args) => args.run(),
            Self::Validate(args) => args.run(),
            Self::Errors(args) => args.run(),
        }
    }
}

/// Why a command failed, and what the user can do.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
    help: Option<String>,
}

impl Failure {
    /// A mistake in the command line.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { code: USAGE, message: message.to_string(), help: None }
    }

    pub(crate) fn with_help(mut self, help: impl fmt::Display) -> Self {
        self.help = Some(help.to_string());
        self
    }

    /// The error message.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Prints the failure on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        // The reader closed the pipe: it needs no message.
        if self.message.is_empty() {
            return ExitCode::SUCCESS;
        }
        anstream::eprintln!("{} {}", "error:".red().bold(), self.message);
        if let Some(help) = &self.help {
            anstream::eprintln!("{} {help}", "help:".cyan());
        }
        ExitCode::from(self.code)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let is_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self {
            code: 1,
            message: if is_pipe { String::new() } else { error.to_string() },
            help: None,
        }
    }
}
