//! `capstan journal`: looking after the folder of a disk journal while nobody serves from it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use capstan_journal::Report;

use super::Failure;

/// Check a journal's folder, or repair one that is damaged
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
    /// Runs of which something is missing end in `stream_lost` for whoever reads them. Damaged files are put into the
    /// folder `damaged` beside the others; the next purge removes them, since nobody can tell whose words they hold.
    Repair {
        /// The folder, as in `disk:<folder>`
        folder: PathBuf,
    },
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (report, is_repaired) = match self.command {
            Command::Check { folder, deep } => (capstan_journal::check(&folder, deep), false),
            Command::Repair { folder } => (capstan_journal::repair(&folder), true),
        };
        let report = report.map_err(|error| Failure::from(io::Error::other(error)))?;
        show(&report);
        Ok(ExitCode::from(u8::from(!report.damage.is_empty() && !is_repaired)))
    }
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
        anstream::println!("{} bytes that a crash left half written; opening drops them", report.torn_bytes);
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
