//! What the threads of a disk store share.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use capstan_journal::backend::failpoint::{self, Point};
use capstan_journal::{ErrorKind, Health, JournalError};
use tokio::sync::watch;

use super::files::{Data, Files};
use super::folder::Folder;
use super::format::{CLEANED, HEADER, Header, Origin};
use super::index::{Held, Index};
use super::log::Log;
use super::manifest::Manifest;
use super::names::Names;
use super::segment::Segment;
use super::syncs::Syncs;
use crate::Durability;

/// How a disk store works. Tests make things small.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) durability: Durability,
    /// A segment is full when it is as long.
    pub(crate) segment_bytes: u64,
    /// So much more than 1.3 times what is live may lie on the disk before it is cleaned.
    pub(crate) slack_bytes: u64,
    /// New runs are refused when less than this is free.
    pub(crate) min_free_bytes: u64,
    /// During which uptime of the machine it runs; zeros if nobody can tell.
    pub(crate) boot: [u8; 16],
    /// The first wait before a journal that failed is tried again, in milliseconds; it doubles.
    pub(crate) retry_ms: u64,
}

pub(crate) const MB: u64 = 1024 * 1024;

impl Settings {
    pub(crate) fn new(durability: Durability) -> Self {
        // A process that dies on purpose has small segments, so that it soon comes to do everything
        // there is to do.
        let unit = if failpoint::is_chosen() { MB / 512 } else { MB };
        Self {
            durability,
            segment_bytes: 64 * unit,
            slack_bytes: 96 * unit,
            min_free_bytes: 0,
            boot: [0; 16],
            retry_ms: 100,
        }
    }
}

type Spare = Option<(u32, Arc<dyn Data>)>;

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) folder: PathBuf,
    pub(crate) names: Names,
    pub(crate) log: Log,
    pub(crate) syncs: Syncs,
    pub(crate) health: watch::Sender<Health>,
    /// The disk is nearly full.
    pub(crate) is_low: AtomicBool,
    /// The last group that was written.
    pub(crate) written: AtomicU64,
    /// How many frames were found damaged.
    pub(crate) damaged: AtomicU64,
    next_segment: AtomicU32,
    next_cleaned: AtomicU32,
    index: RwLock<Index>,
    /// The next segment's file, made ahead of time: making one takes a sync of the folder.
    spare: Mutex<Spare>,
    /// Files that nothing needs any more and that are still there.
    doomed: Mutex<Vec<PathBuf>>,
    // Last: the folder is given back when nobody writes to it any more.
    _held: Folder,
}

/// What was found in a folder.
pub(crate) struct Opened {
    pub(crate) index: Index,
    pub(crate) names: Names,
    pub(crate) next_segment: u32,
    pub(crate) next_cleaned: u32,
    pub(crate) last_group: u64,
}

impl Shared {
    pub(crate) fn new(
        files: Arc<dyn Files>,
        folder: &Path,
        held: Folder,
        settings: Settings,
        opened: Opened,
    ) -> Self {
        Self {
            settings,
            files,
            folder: folder.to_owned(),
            names: opened.names,
            log: Log::new(opened.last_group),
            syncs: Syncs::default(),
            health: watch::Sender::new(Health::Well),
            is_low: AtomicBool::new(false),
            written: AtomicU64::new(opened.last_group),
            damaged: AtomicU64::new(0),
            next_segment: AtomicU32::new(opened.next_segment),
            next_cleaned: AtomicU32::new(opened.next_cleaned),
            index: RwLock::new(opened.index),
            spare: Mutex::new(None),
            doomed: Mutex::default(),
            _held: held,
        }
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cleaner's segments have numbers of their own: see [`CLEANED`].
    pub(crate) fn next_cleaned_id(&self) -> u32 {
        self.next_cleaned.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes the file of the segment to come, unless it is there.
    pub(crate) fn make_spare(&self) -> io::Result<()> {
        self.with_spare(&mut self.lock_spare()).map(drop)
    }

    fn lock_spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that was made ahead of time.
    #[cfg(test)]
    pub(crate) fn spare_path(&self) -> Option<PathBuf> {
        self.lock_spare().as_ref().map(|(id, _)| segment_path(&self.folder, *id))
    }

    /// Made under the lock: segments are used in the order of their ids.
    fn with_spare(&self, spare: &mut Spare) -> io::Result<(u32, Arc<dyn Data>)> {
        if let Some(spare) = spare {
            return Ok(spare.clone());
        }
        let id = self.next_segment.fetch_add(1, Ordering::Relaxed);
        let file = self.files.create(&segment_path(&self.folder, id))?;
        self.files.sync_folder(&self.folder.join("log"))?;
        Ok(spare.insert((id, file)).clone())
    }

    /// A segment to write to, whose first group will be this one. It is in the index.
    pub(crate) fn begin_segment(&self, first_group: u64) -> io::Result<Arc<Segment>> {
        let mut spare = self.lock_spare();
        let (id, file) = self.with_spare(&mut spare)?;
        let (boot, salt) = (self.settings.boot, self.names.salt);
        let header = Header { id, origin: Origin::Written, first_group, boot, salt };
        file.write_at(&header.encode(), 0)?;
        *spare = None;
        drop(spare);
        let path = segment_path(&self.folder, id);
        let segment = Arc::new(Segment::open(id, path, self.files.clone(), file, HEADER as u64));
        self.index_mut().segments.insert(id, Held::new(segment.clone()));
        Ok(segment)
    }

    /// The spare that was not used.
    pub(crate) fn drop_spare(&self) {
        if let Some((id, file)) = self.lock_spare().take() {
            drop(file);
            let _ = self.files.remove(&segment_path(&self.folder, id));
        }
    }

    /// Removes files that the record of files never named; those that cannot be removed now are
    /// doomed.
    pub(crate) fn remove_unknown(&self, files: impl IntoIterator<Item = PathBuf>) {
        let is_left = |path: &PathBuf| {
            self.files.remove(path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        };
        self.doom(files.into_iter().filter(is_left));
    }

    /// These are part of the journal no longer.
    pub(crate) fn doom(&self, files: impl IntoIterator<Item = PathBuf>) {
        self.lock_doomed().extend(files);
    }

    fn lock_doomed(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.doomed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what is doomed. The record of files forgets it first: a file that it names must be
    /// there. What cannot be removed now is tried again.
    pub(crate) fn remove_doomed(&self) -> io::Result<()> {
        let mut doomed = self.lock_doomed();
        if doomed.is_empty() {
            return Ok(());
        }
        self.save_manifest()?;
        failpoint::hit(Point::BeforeUnlink);
        while let Some(path) = doomed.last() {
            match self.files.remove(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => drop(doomed.pop()),
            }
        }
        Ok(())
    }

    /// Writes down which files there are.
    pub(crate) fn save_manifest(&self) -> io::Result<()> {
        let written = self.written.load(Ordering::Relaxed);
        let synced = self.log.synced();
        let index = self.index();
        let length = |held: &Held| held.segment.is_sealed().then(|| held.segment.size());
        let segments = index.segments.iter().map(|(id, held)| (*id, length(held))).collect();
        let next = index.segments.range(..CLEANED).next_back().map_or(1, |(last, _)| last + 1);
        drop(index);
        let Settings { boot, .. } = self.settings;
        let manifest = Manifest { next, synced, written, boot, salt: self.names.salt, segments };
        manifest.save(&*self.files, &self.folder)
    }
}

pub(crate) fn segment_path(folder: &Path, id: u32) -> PathBuf {
    let name = match id.checked_sub(CLEANED) {
        None => format!("{id:08}.seg"),
        Some(number) => format!("c{number:07}.seg"),
    };
    folder.join("log").join(name)
}

/// The id in a file's name.
pub(crate) fn segment_id(name: &str) -> Option<u32> {
    let name = name.strip_suffix(".seg")?;
    match name.strip_prefix('c') {
        Some(number) => number.parse::<u32>().ok()?.checked_add(CLEANED),
        None => name.parse().ok().filter(|id| *id < CLEANED),
    }
}

/// An operation on a file failed.
pub(crate) fn io_failure(what: &str, path: &Path, error: io::Error) -> JournalError {
    let message = format!("cannot {what} {}: {error}", path.display());
    JournalError::new(ErrorKind::Unavailable, message).caused_by(error)
}

/// What was read is not what was written.
pub(crate) fn corrupt(path: &Path, offset: u64, what: &str) -> JournalError {
    let message = format!("the journal is damaged: {} at offset {offset}: {what}", path.display());
    JournalError::new(ErrorKind::Corrupt, message)
}
