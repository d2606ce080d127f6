//! `capstan chat`: talk to an agent from the terminal. The client reconnects and resumes.

mod editor;
mod turn;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use capstan_client::{CapClient, Options};
use capstan_protocol::UserContext;
use owo_colors::OwoColorize as _;
use uuid::Uuid;

use super::Failure;
use super::connection::{Connection, block_on};
use super::input;
use super::outcome::{INTERRUPTED, Outcome};
use super::screen::Screen;
use editor::{Editor, Entered};
use turn::ChatTurn;

/// Talk to an agent: one message, or a conversation
///
/// The message is an argument, or comes through a pipe. Without either there is a prompt, with the
/// usual keys and a history. Pasted text of several lines is one message. Answers go to standard
/// output, everything else to standard error; a pipe gets plain text only.
///
/// Ctrl-C stops the run or ends a wait, and the conversation continues. At the prompt, Ctrl-D
/// leaves, or Ctrl-C twice.
///
/// Exit codes: 0 the answer is complete; 1 the run failed, was refused, stopped by another client,
/// or cut at its length limit; 2 wrong usage; 3 no connection; 4 the server does not speak the
/// protocol; 130 interrupted.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server, in place of --url; or the message, if it is no URL
    #[arg(value_name = "URL")]
    first: Option<String>,

    /// The message; `-` reads it from standard input
    message: Option<String>,

    #[command(flatten)]
    connection: Connection,

    /// The agent, if not the default one; `capstan agents` lists them
    #[arg(long)]
    agent: Option<String>,

    /// The conversation to continue
    #[arg(long, value_name = "UUID")]
    conversation: Option<Uuid>,

    /// The longest wait in seconds that the client waits without asking
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    max_wait: u64,

    /// The file of the prompt's history; empty for none [default: ~/.local/state/capstan/history]
    #[arg(long, env = "CAPSTAN_HISTORY", value_name = "FILE")]
    history: Option<String>,
}

impl Args {
    pub(crate) fn run(mut self) -> Result<ExitCode, Failure> {
        let (url, message) = target(self.first.take(), self.message.take())?;
        self.connection = self.connection.clone().or_at(url);
        let screen = self.connection.screen();
        let client = self.connection.client_with(self.options(), &screen)?;
        let chat =
            Chat { client, screen, conversation: self.conversation.unwrap_or_else(Uuid::now_v7) };
        if message.is_none() && io::stdin().is_terminal() {
            return block_on(chat.converse(self.connection.url(), self.history));
        }
        let message = input::text(message)?;
        block_on(async { Ok(chat.say(&message).await?.code()) })
    }

    fn options(&self) -> Options {
        let path = self
            .agent
            .as_ref()
            .map_or("/assist".into(), |name| format!("/v1/agents/{}/assist", segment(name)));
        let max_wait = Duration::from_secs(self.max_wait);
        Options::new().path(path).user(UserContext::new("cli")).max_wait(max_wait)
    }
}

/// Encodes a name as one segment of a path, so that it cannot lead to another path.
fn segment(name: &str) -> String {
    // A name of dots leads upwards even if the dots are encoded. Encoded twice, they are a name
    // that no agent has.
    let dot = if name.bytes().all(|byte| byte == b'.') { "%252E" } else { "." };
    let encode = |byte: u8| match byte {
        b'.' => dot.to_owned(),
        b'-' | b'_' | b'~' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    name.bytes().map(encode).collect()
}

/// Splits the arguments: `capstan chat Hello` names no server, `capstan chat URL` has no message.
fn target(
    first: Option<String>,
    message: Option<String>,
) -> Result<(Option<String>, Option<String>), Failure> {
    let is_url = first
        .as_deref()
        .is_some_and(|text| text.contains("://") && !text.contains(char::is_whitespace));
    match (first, message) {
        (Some(url), message) if is_url => Ok((Some(url), message)),
        (first, None) => Ok((None, first)),
        (_, Some(_)) => Err(Failure::usage("there are two messages")
            .with_help("put a message of several words into quotes; a server begins with http://")),
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
        ChatTurn::new(&self.client, &self.screen, request).play().await
    }

    /// Talks until the user leaves.
    async fn converse(&self, url: &str, history: Option<String>) -> Result<ExitCode, Failure> {
        let hint = "Ctrl-C stops an answer, Ctrl-D leaves";
        anstream::eprintln!(
            "{}",
            format!("{url}, conversation {}\n{hint}", self.conversation).dimmed()
        );
        let mut editor = Editor::open(history)?;
        let (mut code, mut is_leaving) = (ExitCode::SUCCESS, false);
        loop {
            match editor.read().await? {
                Entered::Message(message) => code = self.say(&message).await?.code(),
                Entered::Nothing => {}
                Entered::Interrupt if is_leaving => return Ok(ExitCode::from(INTERRUPTED)),
                Entered::Interrupt => {
                    is_leaving = true;
                    self.screen.note("Ctrl-C again leaves");
                    continue;
                }
                Entered::End => return Ok(code),
            }
            is_leaving = false;
        }
    }
}
