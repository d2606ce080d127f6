//! `capstan chat`: talk to an agent from the terminal, healing included.

pub(super) mod screen;
pub(super) mod turn;

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use capstan_client::{CapClient, Options};
use capstan_protocol::UserContext;
use owo_colors::OwoColorize as _;
use uuid::Uuid;

use super::Failure;
use super::connection::DEFAULT_URL;
use screen::Screen;
use turn::{Outcome, Turn};

/// Talk to an agent: one message, or a conversation
///
/// Text goes to standard output, everything else to standard error; a pipe gets plain text only. Ctrl-C stops the run,
/// a second time leaves.
///
/// Exit codes: 0 the answer is complete; 1 the run failed or was refused; 2 wrong usage; 3 no connection; 4 the server
/// does not speak the protocol; 130 interrupted.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server [default: http://localhost:8787], or the message if it is no URL
    #[arg(value_name = "URL")]
    url: Option<String>,

    /// What to say; without it, an interactive conversation
    message: Option<String>,

    /// The key of your tenant
    #[arg(long, env = "CAPSTAN_KEY", hide_env_values = true)]
    key: Option<String>,

    /// The agent to talk to, if not the default one
    #[arg(long)]
    agent: Option<String>,

    /// The conversation to continue
    #[arg(long, value_name = "UUID")]
    conversation: Option<Uuid>,

    /// The longest wait that is slept through silently, in seconds
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    max_wait: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (url, message) = self.target();
        let screen = Screen::new();
        let client = self.client(&url, &screen)?;
        let conversation = self.conversation.unwrap_or_else(Uuid::now_v7);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let chat = Chat { client, screen, conversation };
        match message {
            Some(message) => Ok(runtime.block_on(chat.say(&message))?.code()),
            None => runtime.block_on(chat.converse(&url)),
        }
    }

    /// `capstan chat "Hello"` means the default server.
    fn target(&self) -> (String, Option<String>) {
        let is_url = |text: &str| text.starts_with("http://") || text.starts_with("https://");
        match (self.url.clone(), self.message.clone()) {
            (Some(message), None) if !is_url(&message) => (DEFAULT_URL.into(), Some(message)),
            (url, message) => (url.unwrap_or_else(|| DEFAULT_URL.into()), message),
        }
    }

    fn client(&self, url: &str, screen: &Screen) -> Result<CapClient, Failure> {
        let notices = screen.clone();
        let path = self.agent.as_ref().map_or("/assist".into(), |name| format!("/v1/agents/{name}/assist"));
        let options = Options::new()
            .path(path)
            .user(UserContext::new("cli"))
            .max_wait(Duration::from_secs(self.max_wait))
            .on_notice(move |notice| notices.notice(notice));
        let key = self.key.as_deref().unwrap_or_default();
        CapClient::with_options(url, key, options).map_err(|error| Failure::usage(error.to_string()))
    }
}

struct Chat {
    client: CapClient,
    screen: Screen,
    conversation: Uuid,
}

impl Chat {
    async fn say(&self, message: &str) -> io::Result<Outcome> {
        let request = self.client.question(self.conversation, message);
        Turn::new(&self.client, &self.screen, request).play().await
    }

    /// Until the end of the input, or Ctrl-C at the prompt.
    async fn converse(&self, url: &str) -> Result<ExitCode, Failure> {
        let is_person = io::stdin().is_terminal();
        if is_person {
            let hint = "Ctrl-C stops an answer, Ctrl-D leaves; the demo agent knows /help";
            anstream::eprintln!("{}", format!("{url}, conversation {}\n{hint}", self.conversation).dimmed());
        }
        let mut code = ExitCode::SUCCESS;
        while let Some(line) = self.prompt(is_person).await? {
            if line.trim().is_empty() {
                continue;
            }
            let outcome = self.say(line.trim()).await?;
            code = outcome.code();
            if outcome.is_leaving() {
                break;
            }
        }
        Ok(code)
    }

    async fn prompt(&self, is_person: bool) -> io::Result<Option<String>> {
        if is_person {
            anstream::eprint!("{} ", "you>".bold());
            io::stderr().flush()?;
        }
        let reading = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            let read = io::stdin().lock().read_line(&mut line)?;
            Ok((read > 0).then_some(line))
        });
        tokio::select! {
            line = reading => line.unwrap_or(Ok(None)),
            // The reading thread cannot be woken, so the process ends here.
            _ = tokio::signal::ctrl_c() => std::process::exit(i32::from(turn::INTERRUPTED)),
        }
    }
}
