//! Statistics, one file per hour beside the segments. They are not part of the journal's promises.
//! Each file is replaced completely, and a damaged one is ignored.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use capstan_journal::backend::{Hours, KEPT_HOURS};
use capstan_journal::{JournalError, Rollup};

use super::files::create_own;
use super::shared::io_failure;

/// The statistics of one folder.
pub(crate) struct Rollups {
    folder: PathBuf,
    /// Only one thread writes at a time.
    writing: Mutex<()>,
}

impl Rollups {
    pub(crate) fn new(journal: &Path) -> Self {
        Self { folder: journal.join("rollups"), writing: Mutex::new(()) }
    }

    fn path(&self, hour: i64) -> PathBuf {
        self.folder.join(format!("{hour}.json"))
    }

    fn read(&self, hour: i64) -> Vec<Rollup> {
        let bytes = fs::read(self.path(hour)).unwrap_or_default();
        let rows: Vec<Rollup> = serde_json::from_slice(&bytes).unwrap_or_default();
        rows.into_iter().filter(|row| row.hour == hour).collect()
    }

    /// The stored hours, in order.
    fn hours(&self) -> Vec<i64> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok);
        let hour =
            |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".json")?.parse().ok();
        let mut hours: Vec<i64> = entries.filter_map(hour).collect();
        hours.sort_unstable();
        hours
    }

    /// Adds to the stored statistics.
    pub(crate) fn add(&self, rollups: Vec<Rollup>) -> Result<(), JournalError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hours: Vec<i64> = rollups.iter().map(|row| row.hour).collect();
        hours.sort_unstable();
        hours.dedup();
        let mut all = Hours::default();
        hours.iter().for_each(|hour| all.add(self.read(*hour)));
        all.add(rollups);
        let fail = |error| io_failure("write", &self.folder, error);
        fs::create_dir_all(&self.folder).map_err(fail)?;
        for hour in &hours {
            self.write(*hour, &all.take(*hour)).map_err(fail)?;
        }
        if let Some(newest) = hours.last() {
            let is_old = |hour: &&i64| **hour <= newest - KEPT_HOURS;
            self.hours()
                .iter()
                .filter(is_old)
                .for_each(|hour| drop(fs::remove_file(self.path(*hour))));
        }
        Ok(())
    }

    fn write(&self, hour: i64, rows: &[Rollup]) -> io::Result<()> {
        let new = self.folder.join(format!("{hour}.new"));
        create_own(&new)?.write_all(&serde_json::to_vec(rows)?)?;
        fs::rename(new, self.path(hour))
    }

    pub(crate) fn between(&self, from: i64, to: i64) -> Vec<Rollup> {
        let wanted = self.hours().into_iter().filter(|hour| (from..=to).contains(hour));
        wanted.flat_map(|hour| self.read(hour)).collect()
    }
}
