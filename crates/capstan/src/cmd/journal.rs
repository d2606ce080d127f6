//! `capstan journal`: checks and repairs the folder of a stopped gateway, prepares a database, and
//! copies one journal into another.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_journal::{Copied, JournalError, Replica, Store};
use capstan_stores::{Options, Report, connect};

use super::Failure;

/// Check or repair a journal's folder, prepare a database, or copy one journal into another
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Read a journal and report its content and its damage; it changes nothing
    ///
    /// Exits with 1 if anything is damaged.
    Check {
        /// The folder, as in `disk:<folder>`
        folder: PathBuf,
        /// Also read every packet
        #[arg(long)]
        deep: bool,
    },
    /// Keep the intact parts of a damaged journal, and mark the rest as lost
    ///
    /// Incomplete runs end in `stream_lost` for their readers. Damaged files move into the folder
    /// `damaged` beside the others. The next purge removes them, because nobody can tell whose
    /// content they hold.
    Repair {
        /// The folder, as in `disk:<folder>`
        folder: PathBuf,
    },
    /// Create the tables that this version needs in a PostgreSQL database
    ///
    /// A gateway does so itself when it starts, if its role may.
    Migrate {
        /// The database, as in `postgres://…`
        #[arg(env = "CAPSTAN_JOURNAL", hide_env_values = true)]
        url: String,
    },
    /// Copy a journal into another: from a folder into a database, or back
    ///
    /// It copies all runs with their packets, requests, names and the turns of their sessions,
    /// reads each back and compares it. No gateway may use the source. The command skips runs that
    /// are there already, so you can repeat it after an interruption. It does not copy keys of runs
    /// that retention has deleted: a folder has only their hashes.
    ///
    /// Exits with 1 if the target has a different version of a run.
    Copy {
        /// The source: `disk:<folder>` or `postgres://…`
        from: String,
        /// The target
        to: String,
    },
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (report, is_repaired) = match self.command {
            Command::Check { folder, deep } => (capstan_stores::check(&folder, deep), false),
            Command::Repair { folder } => (capstan_stores::repair(&folder), true),
            Command::Migrate { url } => return migrate(&url),
            Command::Copy { from, to } => return copy(&from, &to),
        };
        let report = report.map_err(|error| Failure::from(io::Error::other(error)))?;
        show(&report);
        Ok(ExitCode::from(u8::from(!report.damage.is_empty() && !is_repaired)))
    }
}

fn migrate(url: &str) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let schema = runtime.block_on(capstan_stores::migrate(url));
    let schema = schema.map_err(|error| Failure::from(io::Error::other(error)))?;
    anstream::println!(
        "schema {}, for builds that know {} or later",
        schema.version,
        schema.min_writer
    );
    Ok(ExitCode::SUCCESS)
}

fn copy(from: &str, to: &str) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let copied = runtime.block_on(copy_all(from, to));
    let copied = copied.map_err(|error| Failure::from(io::Error::other(error)))?;
    anstream::println!("{copied}; each was read back and compared");
    for stream in &copied.different {
        anstream::println!("not copied, since the other journal has it otherwise: run {stream}");
    }
    Ok(ExitCode::from(u8::from(!copied.different.is_empty())))
}

async fn copy_all(from: &str, to: &str) -> Result<Copied, JournalError> {
    let replica = || Replica { name: "capstan journal copy".into(), ..Replica::default() };
    // A gateway locks the folder that it uses.
    let source = connect(from, Options::default(), replica()).await?;
    let target = connect(to, Options::default(), replica()).await?;
    let copied = copy_each(&*source, &*target).await;
    let closed = target.close().await;
    source.close().await?;
    let copied = copied?;
    closed?;
    Ok(copied)
}

async fn copy_each(source: &dyn Store, target: &dyn Store) -> Result<Copied, JournalError> {
    capstan_journal::copy(source, target, |copied| anstream::eprintln!("{copied} …")).await
}

fn show(report: &Report) {
    anstream::println!(
        "{} runs, {} sessions, {} bytes in {} files",
        report.streams,
        report.sessions,
        report.bytes,
        report.segments
    );
    if report.torn_bytes > 0 {
        anstream::println!(
            "{} bytes that a crash left half written; opening drops them",
            report.torn_bytes
        );
    }
    for damage in &report.damage {
        anstream::println!("damaged: {damage}");
    }
    for stream in &report.lost_streams {
        anstream::println!("incomplete: run {stream}");
    }
    if let Some(aside) = &report.aside {
        anstream::println!("put aside: {}", aside.display());
    }
    if report.damage.is_empty() {
        anstream::println!("no damage");
    }
}
