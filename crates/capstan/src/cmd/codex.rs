//! `capstan codex`: starts Codex with a gateway as its model provider.

use std::io::{self, Write as _};
use std::process::ExitCode;

use toml::Value;

use super::Failure;
use super::launch::{Launch, Program};

const PROGRAM: Program = Program { name: "codex", install: "npm install -g @openai/codex" };

/// The name of the provider in Codex's configuration.
const PROVIDER: &str = "capstan";

/// How long Codex waits for a silent answer, in milliseconds. Its default of five minutes is too
/// short for a run that waits for its provider, because Codex ignores heartbeats.
const IDLE_TIMEOUT: i64 = 30 * 60 * 1000;

/// The environment variable that holds the key for Codex.
const KEY: &str = "CAPSTAN_KEY";

/// Start Codex with an agent of a server as its model
///
/// Arguments after `--` are Codex's own: `capstan codex -- exec 'What is a capstan?'`. `capstan
/// codex --print` prints the lines for ~/.codex/config.toml instead.
///
/// Exit codes: Codex's own once it has started; before that 1 refused; 2 wrong usage, or it is not
/// installed; 3 no connection; 4 the server does not speak the protocol.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    launch: Launch,
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
        self.launch.start(&PROGRAM, |command| {
            for (name, value) in self.settings(&agent) {
                command.arg("-c").arg(format!("{name}={value}"));
            }
            if let Some(key) = self.launch.key() {
                command.env(KEY, key);
            }
        })
    }

    /// Keys of Codex's configuration, the provider's keys last.
    fn settings(&self, agent: &str) -> Vec<(String, Value)> {
        let top = [("model", agent), ("model_provider", PROVIDER)];
        let top = top.map(|(name, value)| (name.to_owned(), value.into()));
        let of_provider = self.of_provider();
        let nested = of_provider
            .into_iter()
            .map(|(name, value)| (format!("model_providers.{PROVIDER}.{name}"), value));
        top.into_iter().chain(nested).collect()
    }

    /// The provider's keys. Without `env_key` Codex sends no key.
    fn of_provider(&self) -> Vec<(&'static str, Value)> {
        let mut settings = vec![
            ("name", "Capstan".into()),
            ("base_url", format!("{}/v1", self.launch.url()).into()),
            ("wire_api", "responses".into()),
            ("stream_idle_timeout_ms", IDLE_TIMEOUT.into()),
        ];
        if self.launch.key().is_some() {
            settings.push(("env_key", KEY.into()));
        }
        settings
    }

    fn print(&self, agent: &str) -> Result<ExitCode, Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "model = {}\nmodel_provider = \"{PROVIDER}\"", Value::from(agent))?;
        writeln!(out, "\n[model_providers.{PROVIDER}]")?;
        for (name, value) in self.of_provider() {
            writeln!(out, "{name} = {value}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
