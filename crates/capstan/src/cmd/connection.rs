//! The server that a command talks to: one way to say where it is and who asks, and how failures
//! are told.

use std::process::ExitCode;

use capstan_client::{CapClient, CapError, Options};
use uuid::Uuid;

use super::Failure;
use super::outcome::Outcome;
use super::screen::Screen;

/// Where `make run` listens.
pub(crate) const DEFAULT_URL: &str = "http://localhost:8787";

/// Where and who, the same in every command.
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
    /// A URL that stands alone, for short, goes before the flag's and the environment's.
    pub(crate) fn or_at(self, url: Option<String>) -> Self {
        Self { url: url.unwrap_or(self.url), ..self }
    }

    /// An empty variable is none.
    pub(crate) fn url(&self) -> &str {
        if self.url.is_empty() { DEFAULT_URL } else { &self.url }
    }

    pub(crate) fn key(&self) -> Option<&str> {
        self.key.as_deref().filter(|key| !key.is_empty())
    }

    /// Where failures and waits are told.
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

/// A stream as a person names it.
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
    /// The stream; `None` if there is none yet.
    pub(crate) async fn find(self, client: &CapClient) -> Result<Option<Uuid>, CapError> {
        match self {
            Self::Stream(stream) => Ok(Some(stream)),
            Self::Latest => {
                Ok(client.streams(None, 1).await?.streams.first().map(|run| run.stream_id))
            }
        }
    }
}

/// Work that needs a runtime for as long as it takes.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Tells what went wrong; the exit code says of which kind it is.
pub(crate) fn failed(screen: &Screen, error: &CapError) -> Result<ExitCode, Failure> {
    screen.failure(error)?;
    Ok(Outcome::of(error).code())
}

/// There is no stream that could be the latest one.
pub(crate) fn nothing_there() -> Failure {
    Failure::usage("there are no streams yet")
}
