//! `capstan check`: tests a server against the promises of its protocols.

mod print;

use std::process::ExitCode;
use std::time::Duration;

use capstan_check::{CHECKS, Faces, Queries, Report, Target};
use url::Url;

use super::Failure;
use super::connection::{Connection, block_on};

/// Test any CAP or AG-UI server against the promises of the contract
///
/// Each check names the section of PROTOCOL.md, or the page, that makes the promise. For a broken
/// one it shows what was sent, what was expected and what came. It skips what the server does not
/// offer, with the reason.
///
/// The checks start runs, which may cost money: 3 of CAP and 1 of AG-UI, and up to 5 more with the
/// queries and keys given below. The first line says how many. A server that starts a request twice
/// starts more.
///
/// It recognises the gateway's demo agent, and uses its commands as queries.
///
/// Exit codes: 0 nothing is broken; 1 something is; 2 wrong usage, or no server to check.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The server, in place of --url
    #[arg(value_name = "URL")]
    server: Option<String>,

    #[command(flatten)]
    connection: Connection,

    /// The key of another tenant: checks that neither sees data of the other
    #[arg(long, env = "CAPSTAN_OTHER_KEY", hide_env_values = true, requires = "key")]
    other_key: Option<String>,

    /// The agent, if not the default one
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// The protocol to check
    #[arg(long, value_enum, default_value_t = Face::Auto)]
    face: Face,

    /// The query of most checks; a question with a short answer is best
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,

    /// A query with a long answer in many pieces: for disconnects and stops
    #[arg(long, value_name = "TEXT")]
    slow_query: Option<String>,

    /// A query that makes a run fail
    #[arg(long, value_name = "TEXT")]
    fault_query: Option<String>,

    /// A query that causes 20 s of silence: for heartbeats, with --slow
    #[arg(long, value_name = "TEXT")]
    quiet_query: Option<String>,

    /// The path for CAP requests [default: /v1/assist, else /assist]
    #[arg(long, value_name = "PATH")]
    assist_path: Option<String>,

    /// The path for AG-UI requests [default: /v1/ag-ui, with --face ag-ui else the URL itself]
    #[arg(long, value_name = "PATH")]
    agui_path: Option<String>,

    /// The origin of a page that may call the server
    #[arg(long, value_name = "ORIGIN", default_value = "http://localhost:3000")]
    origin: String,

    /// Only these checks, and those that they depend on
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,

    /// The longest time for one response, in seconds
    #[arg(long, default_value_t = 60, value_name = "SECONDS",
    value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    /// Also make the checks that take half a minute
    #[arg(long)]
    slow: bool,

    /// Count a skipped check as broken
    #[arg(long)]
    strict: bool,

    /// Print one JSON object: environment, summary and checks
    #[arg(long)]
    json: bool,

    /// List the checks, and check nothing
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Face {
    /// Every protocol that the server has.
    Auto,
    Cap,
    AgUi,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.list {
            print::list(CHECKS)?;
            return Ok(ExitCode::SUCCESS);
        }
        let (is_json, is_strict) = (self.json, self.strict);
        let target = self.target()?;
        let report = block_on(async {
            let watch = |progress: capstan_check::Progress<'_>| {
                if !is_json {
                    print::progress(&progress)
                }
            };
            capstan_check::run(target, watch).await.map_err(unreachable)
        })?;
        print::report(&report, is_json)?;
        Ok(verdict(&report, is_strict))
    }

    fn target(self) -> Result<Target, Failure> {
        let connection = self.connection.or_at(self.server);
        let wrong = |error| Failure::usage(format!("URL {:?}: {error}", connection.url()));
        let url = Url::parse(connection.url()).map_err(wrong)?;
        Ok(Target {
            key: connection.key().map(str::to_owned),
            other_key: self.other_key,
            agent: self.agent,
            faces: match self.face {
                Face::Auto => Faces::Auto,
                Face::Cap => Faces::Cap,
                Face::AgUi => Faces::Agui,
            },
            assist_path: self.assist_path,
            agui_path: self.agui_path,
            queries: Queries {
                plain: self.query,
                slow: self.slow_query,
                fault: self.fault_query,
                quiet: self.quiet_query,
            },
            origin: self.origin,
            timeout: Duration::from_secs(self.timeout),
            slow: self.slow,
            only: self.only,
            ..Target::new(url)
        })
    }
}

fn unreachable(error: capstan_check::Unreachable) -> Failure {
    let failure = Failure::usage(&error);
    match error.help {
        Some(help) => failure.with_help(help),
        None => failure,
    }
}

fn verdict(report: &Report, is_strict: bool) -> ExitCode {
    let is_fine = report.summary.broken == 0 && !(is_strict && report.summary.skipped > 0);
    ExitCode::from(u8::from(!is_fine))
}
