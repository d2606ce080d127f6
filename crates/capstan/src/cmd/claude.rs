//! `capstan claude`: starts Claude Code with a gateway as its model provider.

use std::io::{self, Write as _};
use std::process::{Command, ExitCode};

use super::Failure;
use super::launch::{Launch, Program, quoted};

const PROGRAM: Program =
    Program { name: "claude", install: "npm install -g @anthropic-ai/claude-code" };

/// Without a key or a token Claude Code demands a login.
const NO_KEY: &str = "none";

const TOKEN: &str = "ANTHROPIC_AUTH_TOKEN";

/// The variables for the names of models: the main one, and those of its helpers. Without them it
/// requests Anthropic's models by name, and the default agent answers.
const MODELS: [&str; 4] = [
    "ANTHROPIC_MODEL",
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
];

/// Variables that would lead it past the gateway.
const OTHER_WAYS: [&str; 4] = [
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
];

/// Start Claude Code with an agent of a server as its model
///
/// Arguments after `--` are Claude Code's own: `capstan claude -- -p 'What is a capstan?'`.
/// `eval "$(capstan claude --print)"` sets the variables in a shell instead.
///
/// Exit codes: Claude Code's own once it has started; before that 1 refused; 2 wrong usage, or it
/// is not installed; 3 no connection; 4 the server does not speak the protocol.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    launch: Launch,

    /// Claude Code contacts only the gateway: no telemetry, no updates
    #[arg(long)]
    private: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let agent = match self.launch.agent()? {
            Ok(agent) => agent,
            Err(code) => return Ok(code),
        };
        if self.launch.print {
            return self.print(&agent);
        }
        let key = self.launch.key().unwrap_or(NO_KEY).to_owned();
        self.launch.start(&PROGRAM, |command| {
            self.prepare(command, &agent);
            command.env(TOKEN, key);
        })
    }

    fn prepare(&self, command: &mut Command, agent: &str) {
        for (name, value) in self.variables(agent) {
            command.env(name, value);
        }
        for name in OTHER_WAYS {
            command.env_remove(name);
        }
    }

    /// The variables, without the key.
    fn variables<'a>(&'a self, agent: &'a str) -> impl Iterator<Item = (&'static str, &'a str)> {
        let url = [("ANTHROPIC_BASE_URL", self.launch.url())];
        let private = self.private.then_some(("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"));
        let models = MODELS.into_iter().filter(|_| self.launch.has_agent());
        url.into_iter().chain(models.map(move |name| (name, agent))).chain(private)
    }

    fn print(&self, agent: &str) -> Result<ExitCode, Failure> {
        let mut out = io::stdout().lock();
        for (name, value) in self.variables(agent) {
            writeln!(out, "export {name}={}", quoted(value))?;
        }
        let key = self.launch.shown_key().unwrap_or_else(|| quoted(NO_KEY));
        writeln!(out, "export {TOKEN}={key}")?;
        writeln!(out, "unset {}", OTHER_WAYS.join(" "))?;
        Ok(ExitCode::SUCCESS)
    }
}
