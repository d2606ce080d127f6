//! `capstan streams`: lists the runs of a server, newest first.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use capstan_client::{StreamPage, StreamSummary};
use capstan_protocol::Timestamp;
use comfy_table::{ContentArrangement, Table, presets};

use super::Failure;
use super::connection::{Connection, block_on, failed};

/// List the runs of a server, newest first
///
/// Exit codes: 0 listed; 1 refused; 2 wrong usage; 3 no connection; 4 the server does not speak the
/// protocol.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server, in place of --url
    #[arg(value_name = "URL")]
    server: Option<String>,

    #[command(flatten)]
    connection: Connection,

    /// How many runs at most
    #[arg(long, default_value_t = 20, value_name = "NUMBER",
    value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let connection = self.connection.clone().or_at(self.server.clone());
        let screen = connection.screen();
        let client = connection.client(&screen)?;
        block_on(async {
            match client.streams(None, usize::from(self.limit)).await {
                Ok(page) => self.print(&page),
                Err(error) => failed(&screen, &error),
            }
        })
    }

    fn print(&self, page: &StreamPage) -> Result<ExitCode, Failure> {
        let mut out = io::stdout().lock();
        if self.json {
            for run in &page.streams {
                writeln!(out, "{}", serde_json::to_string(run).unwrap_or_default())?;
            }
        } else if !page.streams.is_empty() {
            writeln!(out, "{}", table(&page.streams))?;
        } else if out.is_terminal() {
            writeln!(out, "no streams yet; `capstan chat` starts one")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn table(runs: &[StreamSummary]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["stream", "state", "agent", "packets", "age", "result"]);
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    let now = Timestamp::now();
    for run in runs {
        let result = run.fault.as_ref().or(run.reason.as_ref()).cloned();
        table.add_row([
            run.stream_id.to_string(),
            run.state.clone(),
            run.agent.clone(),
            run.packets.to_string(),
            age(now.as_micros() - run.created_at.as_micros()),
            result.unwrap_or_default(),
        ]);
    }
    table
}

/// Formats an age in the largest unit that fits.
fn age(micros: i64) -> String {
    let seconds = (micros / 1_000_000).max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_told_in_the_largest_unit_that_fits() {
        let ages =
            [-5, 0, 59, 60, 3_599, 3_600, 86_399, 86_400, 900_000].map(|s| age(s * 1_000_000));
        assert_eq!(ages, ["0s", "0s", "59s", "1m", "59m", "1h", "23h", "1d", "10d"]);
    }
}
