//! The server that a command calls: the flags for its URL and key, and the report of failures.

use std::process::ExitCode;

use capstan_client::{CapClient, CapError, Options};
use uuid::Uuid;

use super::Failure;
use super::outcome::Outcome;
use super::screen::Screen;

/// The address at which `make run` listens.
pub(crate) const DEFAULT_URL: &str = "http://localhost:8787";

/// URL and key, the same flags in every command.
#[derive(Clone, clap::Args)]
pub(crate) struct Connection {
    /// The server
    #[arg(long, env = "CAPSTAN_URL", default_value = DEFAULT_URL)]
    url: String,

    /// The key of your tenant
    #[arg(long, env = "CAPSTAN_KEY", hide_env_values = true)]
    key: Option<String>,
}

impl Connection {
    /// A URL as an argument of its own wins over the flag and the environment.
    pub(crate) fn or_at(self, url: Option<String>) -> Self {
        Self { url: url.unwrap_or(self.url), ..self }
    }

    /// The URL; an empty variable counts as none.
    pub(crate) fn url(&self) -> &str {
        if self.url.is_empty() { DEFAULT_URL } else { &self.url }
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref().filter(|key| !key.is_empty())
    }

    /// The screen for failures and waits.
    pub(crate) fn screen(&self) -> Screen {
        Screen::new(self.url())
    }

    pub(crate) fn client(&self, screen: &Screen) -> Result<CapClient, Failure> {
        self.client_with(Options::new(), screen)
    }

    pub(crate) fn client_with(
        &self,
        options: Options,
        screen: &Screen,
    ) -> Result<CapClient, Failure> {
        let notices = screen.clone();
        let options = options.on_notice(move |notice| notices.notice(notice));
        let key = self.key().unwrap_or_default();
        CapClient::with_options(self.url(), key, options)
            .map_err(|error| Failure::usage(error.to_string()))
    }
}

/// A stream as the user names it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Which {
    Stream(Uuid),
    Latest,
}

impl std::str::FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latest" => Ok(Self::Latest),
            _ => text
                .parse()
                .map(Self::Stream)
                .map_err(|_| "expected a stream's UUID, or `latest`".into()),
        }
    }
}

impl Which {
    /// Finds the stream; `None` if the server has none yet.
    pub(crate) async fn find(self, client: &CapClient) -> Result<Option<Uuid>, CapError> {
        match self {
            Self::Stream(stream) => Ok(Some(stream)),
            Self::Latest => {
                Ok(client.streams(None, 1).await?.streams.first().map(|run| run.stream_id))
            }
        }
    }
}

/// Runs a future on a runtime of its own.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Prints the failure, and returns the exit code of its kind.
pub(crate) fn failed(screen: &Screen, error: &CapError) -> Result<ExitCode, Failure> {
    screen.failure(error)?;
    Ok(Outcome::of(error).code())
}

/// The failure of `latest` if there is no stream.
pub(crate) fn nothing_there() -> Failure {
    Failure::usage("there are no streams yet")
}
