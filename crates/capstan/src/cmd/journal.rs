//! `capstan journal`: looking after the folder of a disk journal while nobody serves from it, a
//! database's tables, and the way from one to the other.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_journal::{Copied, JournalError, Replica, Store};
use capstan_stores::{Options, Report, connect};

use super::Failure;

/// Check a journal's folder, repair one that is damaged, prepare a database, or copy one journal
/// into another
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Read a journal and report what is in it and what is damaged; nothing is changed
    ///
    /// Exits with 1 if anything is damaged.
    Check {
        /// The folder, as in `disk:<folder>`
        folder: PathBuf,
        /// Read every packet, too
        #[arg(long)]
        deep: bool,
    },
    /// Keep what is whole of a damaged journal, and mark what is not
    ///
    /// Runs of which something is missing end in `stream_lost` for whoever reads them. Damaged
    /// files are put into the folder `damaged` beside the others; the next purge removes them,
    /// since nobody can tell whose words they hold.
    Repair {
        /// The folder, as in `disk:<folder>`
        folder: PathBuf,
    },
    /// Bring a PostgreSQL database to the tables that this version needs
    ///
    /// A gateway does so itself when it starts, if it may. Earlier versions can go on beside it.
    Migrate {
        /// The database, as in `postgres://…`
        #[arg(env = "CAPSTAN_JOURNAL", hide_env_values = true)]
        url: String,
    },
    /// Copy a journal into another: from a folder into a database, or back
    ///
    /// All runs with their packets, requests, names and the turns of their sessions; each is read
    /// back and compared. No gateway may use the journal that is read. What was copied before is
    /// left as it is, so a copy that was broken off is gone on with by the same command. Keys of
    /// runs that retention has deleted are not copied from a folder, which keeps only a hash of
    /// them.
    ///
    /// Exits with 1 if the other journal has any of the runs otherwise.
    Copy {
        /// The journal that is read: `disk:<folder>` or `postgres://…`
        from: String,
        /// The journal that is written to
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
    // A folder that a gateway uses is locked by it.
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
