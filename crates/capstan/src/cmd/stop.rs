//! `capstan stop`: stops a run.

use std::process::ExitCode;

use capstan_client::CapClient;
use owo_colors::OwoColorize as _;

use super::Failure;
use super::connection::{Connection, Which, block_on, failed, nothing_there};
use super::screen::Screen;

/// Stop a run; a finished run stays unchanged
///
/// Returns when its end is in the journal. Viewers see CLOSE `cancelled`.
///
/// Exit codes: 0 it has ended; 1 refused; 2 wrong usage; 3 no connection; 4 the server does not
/// speak the protocol.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The stream's id, or `latest`
    stream: Which,

    #[command(flatten)]
    connection: Connection,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let screen = self.connection.screen();
        let client = self.connection.client(&screen)?;
        block_on(self.stop(&client, &screen))
    }

    async fn stop(&self, client: &CapClient, screen: &Screen) -> Result<ExitCode, Failure> {
        let stopped = async {
            let stream = self.stream.find(client).await?;
            if let Some(stream) = stream {
                client.stop(stream).await?;
            }
            Ok(stream)
        };
        match stopped.await {
            Ok(Some(stream)) => {
                anstream::eprintln!("{}", format!("{stream} has ended").dimmed());
                Ok(ExitCode::SUCCESS)
            }
            Ok(None) => Err(nothing_there()),
            Err(error) => failed(screen, &error),
        }
    }
}
