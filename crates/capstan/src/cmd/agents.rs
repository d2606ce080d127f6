//! `capstan agents`: lists the agents of a server.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use capstan_client::AgentSummary;
use comfy_table::{ContentArrangement, Table, presets};

use super::Failure;
use super::connection::{Connection, block_on, failed};

/// List the agents of a server, the default one first
///
/// `capstan chat --agent NAME` talks to one; its path is `/v1/agents/NAME/assist`.
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

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let connection = self.connection.or_at(self.server);
        let screen = connection.screen();
        let client = connection.client(&screen)?;
        block_on(async {
            match client.agents().await {
                Ok(agents) => print(&agents, self.json),
                Err(error) => failed(&screen, &error),
            }
        })
    }
}

fn print(agents: &[AgentSummary], is_json: bool) -> Result<ExitCode, Failure> {
    let mut out = io::stdout().lock();
    if is_json {
        for agent in agents {
            writeln!(out, "{}", serde_json::to_string(agent).unwrap_or_default())?;
        }
    } else if !agents.is_empty() {
        writeln!(out, "{}", table(agents))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(agents: &[AgentSummary]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["agent", "id", ""]);
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    for (place, agent) in agents.iter().enumerate() {
        let also = (!agent.aliases.is_empty()).then(|| format!("or {}", agent.aliases.join(", ")));
        let note = (place == 0).then(|| "default".to_owned()).into_iter().chain(also);
        let note = note.collect::<Vec<_>>().join("; ");
        table.add_row([agent.name.as_str(), &agent.id.to_string(), &note]);
    }
    table
}
