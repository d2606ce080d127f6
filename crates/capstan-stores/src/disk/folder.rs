//! The folder of a disk journal. It is private, one process holds it, and its format is known.
//!
//! ```text
//! <folder>/lock     locked while a process holds the folder; its pid
//! <folder>/format   the version of everything beside it
//! <folder>/secret   what tickets are signed with
//! <folder>/files    which segments there are
//! <folder>/log      the segments
//! <folder>/damaged  what a repair dropped; the next purge removes it
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use capstan_journal::{ErrorKind, JournalError, Secret};

use super::files::{Files, create_own, private};
use super::manifest::Manifest;
use crate::Damage;

/// The version of the format. It increases when an older build could misread the folder. A build
/// that still reads the earlier version handles it in `format`.
const VERSION: u32 = 1;
/// The text before the version in the format file.
const FORMAT_NAME: &str = "capstan-journal";

/// A folder, locked by this process until it is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    // The lock ends with the file handle, also when the process is killed.
    _lock: File,
}

impl Folder {
    /// Creates the folder if necessary, locks it, and checks its format.
    pub(crate) fn open(path: &Path, files: &dyn Files) -> Result<Self, JournalError> {
        let fail = |error| failure(path, "open", error);
        create_private(path).map_err(fail)?;
        // Check this before writing anything, so that a foreign folder stays unchanged.
        if let Format::None = format(path)? {
            refuse_foreign(path)?;
        }
        // Restrict access, even if the folder existed before.
        restrict(path).map_err(fail)?;
        let folder = Self { path: path.to_owned(), _lock: lock(path)? };
        match format(path)? {
            Format::Known => {}
            Format::Damaged(damage) => return Err(damaged(path, &[damage])),
            // The format file comes last: it makes the folder a journal.
            Format::None => {
                folder.begin_files(files).and_then(|()| folder.write_format()).map_err(fail)?
            }
        }
        Ok(folder)
    }

    /// Locks an existing journal.
    pub(crate) fn hold(path: &Path) -> Result<Self, JournalError> {
        if let Format::None = format(path)? {
            let message = format!("{} is not a journal folder", path.display());
            return Err(JournalError::new(ErrorKind::Unsupported, message));
        }
        Ok(Self { path: path.to_owned(), _lock: lock(path)? })
    }

    /// The damage of the format file, if it is damaged.
    pub(crate) fn damage(&self) -> Result<Option<Damage>, JournalError> {
        Ok(match format(&self.path)? {
            Format::Damaged(damage) => Some(damage),
            Format::Known | Format::None => None,
        })
    }

    /// Creates an empty set of segments and its manifest.
    fn begin_files(&self, files: &dyn Files) -> io::Result<()> {
        create_private(&self.path.join("log"))?;
        let mut salt = [0; 16];
        getrandom::fill(&mut salt).map_err(|error| io::Error::other(error.to_string()))?;
        let manifest = Manifest { next: 1, salt, ..Manifest::default() };
        manifest.save(files, &self.path)
    }

    pub(crate) fn write_format(&self) -> io::Result<()> {
        write_whole(&self.path, "format", format!("{FORMAT_NAME} {VERSION}\n").as_bytes())
    }
}

impl Folder {
    /// The folder's secret, created if necessary. A damaged one is replaced, which invalidates
    /// everything that it has signed.
    pub(crate) fn secret(&self) -> Result<Secret, JournalError> {
        let path = self.path.join("secret");
        let fail = |error| failure(&path, "read", error);
        match fs::read(&path) {
            Ok(bytes) => {
                if let Some(secret) = Secret::read(&bytes) {
                    return Ok(secret);
                }
                tracing::warn!(file = %path.display(),
                "the secret was damaged and is replaced; tickets that it has signed are invalid");
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
        }
        let secret = Secret::random().map_err(fail)?;
        write_whole(&self.path, "secret", secret.as_bytes()).map_err(fail)?;
        Ok(secret)
    }
}

fn lock(folder: &Path) -> Result<File, JournalError> {
    let path = folder.join("lock");
    let fail = |error| failure(&path, "lock", error);
    let mut file = open_lock(&path).map_err(fail)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(locked(folder, &mut file)),
        Err(TryLockError::Error(error)) => return Err(fail(error)),
    }
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{}", std::process::id())
    };
    write(&mut file).map_err(fail)?;
    Ok(file)
}

fn locked(folder: &Path, file: &mut File) -> JournalError {
    let mut pid = String::new();
    // The other process may not have written its pid yet.
    let _ = file.read_to_string(&mut pid);
    let holder = match pid.trim() {
        "" => "another process".to_owned(),
        pid => format!("process {pid}"),
    };
    let message = format!("the journal folder {} is in use by {holder}", folder.display());
    JournalError::new(ErrorKind::Locked, message)
}

enum Format {
    Known,
    None,
    /// There is a journal, and its format file is damaged.
    Damaged(Damage),
}

/// The folder's format, if this build knows it.
fn format(folder: &Path) -> Result<Format, JournalError> {
    let path = folder.join("format");
    let damaged =
        |what: &str| Format::Damaged(Damage { file: path.clone(), offset: 0, what: what.into() });
    match fs::read(&path) {
        Ok(bytes) => match version(&bytes) {
            Some(VERSION) => Ok(Format::Known),
            Some(other) => Err(unknown(folder, &path, &format!("is of version {other}"))),
            None if has_segments(folder) => Ok(damaged("the format file is damaged")),
            None => Err(unknown(folder, &path, "is not a journal's format file")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound && has_segments(folder) => {
            Ok(damaged("the format file is missing"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Format::None),
        Err(error) => Err(failure(&path, "read", error)),
    }
}

/// The version in a format file, if the file is valid.
fn version(bytes: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(bytes).ok()?;
    let version = text.strip_prefix(FORMAT_NAME)?.strip_prefix(' ')?.strip_suffix('\n')?;
    version.parse().ok()
}

fn unknown(folder: &Path, path: &Path, what: &str) -> JournalError {
    let folder = folder.display();
    let message = format!(
        "the journal folder {folder} cannot be opened: {} {what}, and this build reads version \
         {VERSION}; nothing was changed. Open it with the release that wrote it, which can also \
         copy it into PostgreSQL for this one (`capstan journal copy disk:{folder} \
         postgres://…`), or begin a new journal in an empty folder",
        path.display()
    );
    JournalError::new(ErrorKind::Unsupported, message)
}

/// Whether the folder has segments, so that no new journal may be created in it.
fn has_segments(folder: &Path) -> bool {
    let is_segment =
        |entry: fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "seg");
    fs::read_dir(folder.join("log"))
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_segment)))
}

/// Refuses a folder with other files: its path may be a typing error.
fn refuse_foreign(folder: &Path) -> Result<(), JournalError> {
    let entries = fs::read_dir(folder).map_err(|error| failure(folder, "read", error))?;
    // The files that remain if a process is killed while it creates a journal.
    let begun = ["lock", "log", "files", "files.new", "format.new"];
    let is_ours = |name: &std::ffi::OsStr| begun.iter().any(|begun| name == *begun);
    if entries.flatten().all(|entry| is_ours(&entry.file_name())) {
        return Ok(());
    }
    let message = format!("the folder {} has other files than a journal", folder.display());
    Err(JournalError::new(ErrorKind::Unsupported, message))
}

/// Writes a file under another name and renames it, so that it is complete or absent. The file
/// itself is private too, because folders get copied.
fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let unfinished = folder.join(format!("{name}.new"));
    let mut file = create_own(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, folder.join(name))?;
    sync_folder(folder)
}

#[cfg(unix)]
fn create_private(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Opens the lock file. An existing file is used, and a link is refused.
fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    private(options.read(true).write(true).truncate(false));
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let is_file =
        |path: &Path| Ok::<_, io::Error>(fs::symlink_metadata(path)?.file_type().is_file());
    let refused =
        || io::Error::new(io::ErrorKind::InvalidInput, "it is a link, or has a second hard link");
    if !is_file(path)? {
        return Err(refused());
    }
    let file = options.open(path)?;
    // Check once more, because it may have been replaced meanwhile. Nothing is written yet.
    if is_file(path)? && is_same(&file, path)? { Ok(file) } else { Err(refused()) }
}

#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (open, named) = (file.metadata()?, fs::symlink_metadata(path)?);
    // A file with a second hard link may belong to another user.
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()) && open.nlink() == 1)
}

#[cfg(not(unix))]
fn is_same(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

#[cfg(not(unix))]
fn create_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(folder)
}

#[cfg(unix)]
fn restrict(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn restrict(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// The error for a damaged journal, which is neither opened nor changed.
pub(crate) fn damaged(folder: &Path, all: &[Damage]) -> JournalError {
    let first = all.first().map(ToString::to_string).unwrap_or_default();
    let others = match all.len() {
        0 | 1 => String::new(),
        more => format!(" (and {} more)", more - 1),
    };
    let message = format!(
        "the journal is damaged: {first}{others}; nothing was changed. `capstan journal check {}` \
         tells all, \
         `capstan journal repair` keeps what is whole",
        folder.display()
    );
    JournalError::new(ErrorKind::Corrupt, message)
}

fn failure(path: &Path, what: &str, error: io::Error) -> JournalError {
    let message = format!("cannot {what} {}: {error}", path.display());
    JournalError::new(ErrorKind::Unavailable, message).caused_by(error)
}
