//! The state that the threads of a disk store share.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use capstan_journal::backend::failpoint::{self, Point};
use capstan_journal::{ErrorKind, Health, JournalError};
use tokio::sync::watch;

use super::files::{Data, Files};
use super::folder::Folder;
use super::format::{COMPACTED, HEADER, Header, Origin};
use super::index::{Held, Index};
use super::log::Log;
use super::manifest::Manifest;
use super::names::Names;
use super::segment::Segment;
use super::syncs::Syncs;
use crate::Durability;

/// The settings of a disk store. Tests use small values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) durability: Durability,
    /// The length at which a segment is full.
    pub(crate) segment_bytes: u64,
    /// Compaction starts when the files exceed 1.3 times the live data by this much.
    pub(crate) slack_bytes: u64,
    /// New runs are refused while less disk space is free.
    pub(crate) min_free_bytes: u64,
    /// The id of this boot of the machine; zeros if it is unknown.
    pub(crate) boot: [u8; 16],
    /// The wait before the first retry after a failure, in milliseconds. It doubles.
    pub(crate) retry_ms: u64,
}

pub(crate) const MB: u64 = 1024 * 1024;

impl Settings {
    pub(crate) fn new(durability: Durability) -> Self {
        // With a failpoint, segments are small, so that the process soon does everything there is
        // to do.
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
    /// Whether the disk is nearly full.
    pub(crate) is_low: AtomicBool,
    /// The number of the last written group.
    pub(crate) written: AtomicU64,
    /// The number of damaged frames that reads have found.
    pub(crate) damaged: AtomicU64,
    next_segment: AtomicU32,
    next_compacted: AtomicU32,
    index: RwLock<Index>,
    /// The file of the next segment. It is created in advance, because that takes a sync of the
    /// folder.
    spare: Mutex<Spare>,
    /// Unneeded files that still exist.
    unneeded: Mutex<Vec<PathBuf>>,
    // The last member: the folder is released when nothing writes to it any more.
    _held: Folder,
}

/// The contents of a folder at its opening.
pub(crate) struct Opened {
    pub(crate) index: Index,
    pub(crate) names: Names,
    pub(crate) next_segment: u32,
    pub(crate) next_compacted: u32,
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
            next_compacted: AtomicU32::new(opened.next_compacted),
            index: RwLock::new(opened.index),
            spare: Mutex::new(None),
            unneeded: Mutex::default(),
            _held: held,
        }
    }

    pub(crate) fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the next compacted segment. These have their own range: see [`COMPACTED`].
    pub(crate) fn next_compacted_id(&self) -> u32 {
        self.next_compacted.fetch_add(1, Ordering::Relaxed)
    }

    /// Creates the file of the next segment, unless it exists.
    pub(crate) fn make_spare(&self) -> io::Result<()> {
        self.with_spare(&mut self.lock_spare()).map(drop)
    }

    fn lock_spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file that was created in advance.
    #[cfg(test)]
    pub(crate) fn spare_path(&self) -> Option<PathBuf> {
        self.lock_spare().as_ref().map(|(id, _)| segment_path(&self.folder, *id))
    }

    /// Created under the lock, so that segments are used in the order of their ids.
    fn with_spare(&self, spare: &mut Spare) -> io::Result<(u32, Arc<dyn Data>)> {
        if let Some(spare) = spare {
            return Ok(spare.clone());
        }
        let id = self.next_segment.fetch_add(1, Ordering::Relaxed);
        let file = self.files.create(&segment_path(&self.folder, id))?;
        self.files.sync_folder(&self.folder.join("log"))?;
        Ok(spare.insert((id, file)).clone())
    }

    /// Begins a segment, adds it to the index, and returns it. `first_group` is the number of its
    /// first group.
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

    /// Removes the file that was created in advance and not used.
    pub(crate) fn drop_spare(&self) {
        if let Some((id, file)) = self.lock_spare().take() {
            drop(file);
            let _ = self.files.remove(&segment_path(&self.folder, id));
        }
    }

    /// Removes files that were never in the manifest. Those that cannot be removed now are kept in
    /// the list of unneeded files.
    pub(crate) fn remove_unknown(&self, files: impl IntoIterator<Item = PathBuf>) {
        let is_left = |path: &PathBuf| {
            self.files.remove(path).is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
        };
        self.mark_unneeded(files.into_iter().filter(is_left));
    }

    /// Adds files to the list of unneeded files.
    pub(crate) fn mark_unneeded(&self, files: impl IntoIterator<Item = PathBuf>) {
        self.lock_unneeded().extend(files);
    }

    fn lock_unneeded(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.unneeded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes unneeded files. They leave the manifest first, because every file in the manifest
    /// must exist. Failed removals are retried.
    pub(crate) fn remove_unneeded(&self) -> io::Result<()> {
        let mut unneeded = self.lock_unneeded();
        if unneeded.is_empty() {
            return Ok(());
        }
        self.save_manifest()?;
        failpoint::hit(Point::BeforeUnlink);
        while let Some(path) = unneeded.last() {
            match self.files.remove(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => drop(unneeded.pop()),
            }
        }
        Ok(())
    }

    /// Saves the manifest: the list of files.
    pub(crate) fn save_manifest(&self) -> io::Result<()> {
        let written = self.written.load(Ordering::Relaxed);
        let synced = self.log.synced();
        let index = self.index();
        let length = |held: &Held| held.segment.is_sealed().then(|| held.segment.size());
        let segments = index.segments.iter().map(|(id, held)| (*id, length(held))).collect();
        let next = index.segments.range(..COMPACTED).next_back().map_or(1, |(last, _)| last + 1);
        drop(index);
        let Settings { boot, .. } = self.settings;
        let manifest = Manifest { next, synced, written, boot, salt: self.names.salt, segments };
        manifest.save(&*self.files, &self.folder)
    }
}

pub(crate) fn segment_path(folder: &Path, id: u32) -> PathBuf {
    let name = match id.checked_sub(COMPACTED) {
        None => format!("{id:08}.seg"),
        Some(number) => format!("c{number:07}.seg"),
    };
    folder.join("log").join(name)
}

/// The segment id in a file's name.
pub(crate) fn segment_id(name: &str) -> Option<u32> {
    let name = name.strip_suffix(".seg")?;
    match name.strip_prefix('c') {
        Some(number) => number.parse::<u32>().ok()?.checked_add(COMPACTED),
        None => name.parse().ok().filter(|id| *id < COMPACTED),
    }
}

/// The error for a failed operation on a file.
pub(crate) fn io_failure(what: &str, path: &Path, error: io::Error) -> JournalError {
    let message = format!("cannot {what} {}: {error}", path.display());
    JournalError::new(ErrorKind::Unavailable, message).caused_by(error)
}

/// The error for damaged data.
pub(crate) fn corrupt(path: &Path, offset: u64, what: &str) -> JournalError {
    let message = format!("the journal is damaged: {} at offset {offset}: {what}", path.display());
    JournalError::new(ErrorKind::Corrupt, message)
}
