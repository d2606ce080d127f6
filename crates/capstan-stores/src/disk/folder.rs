//! The folder of a disk journal: private, held by one process, of a format that this build knows.
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

/// The version of everything in the folder: raised when an older build could misread what this one
/// writes. A change that keeps reading folders of the version before handles that version in
/// `format`.
const VERSION: u32 = 1;
/// What the format file says before the version.
const FORMAT_NAME: &str = "capstan-journal";

/// A folder that this process holds until it is dropped.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    // The lock goes with the file handle, also when the process is killed.
    _lock: File,
}

impl Folder {
    /// Makes the folder if there is none, locks it, checks its format.
    pub(crate) fn open(path: &Path, files: &dyn Files) -> Result<Self, JournalError> {
        let fail = |error| failure(path, "open", error);
        create_private(path).map_err(fail)?;
        // Before anything is written: somebody else's folder stays as it is.
        if let Format::None = format(path)? {
            refuse_foreign(path)?;
        }
        // Whatever made it, and whoever opened it since.
        restrict(path).map_err(fail)?;
        let folder = Self { path: path.to_owned(), _lock: lock(path)? };
        match format(path)? {
            Format::Known => {}
            Format::Damaged(damage) => return Err(damaged(path, &[damage])),
            // The format comes last: with it the folder is a journal.
            Format::None => {
                folder.begin_files(files).and_then(|()| folder.write_format()).map_err(fail)?
            }
        }
        Ok(folder)
    }

    /// Locks a journal that is there.
    pub(crate) fn hold(path: &Path) -> Result<Self, JournalError> {
        if let Format::None = format(path)? {
            let message = format!("{} is no journal folder", path.display());
            return Err(JournalError::new(ErrorKind::Unsupported, message));
        }
        Ok(Self { path: path.to_owned(), _lock: lock(path)? })
    }

    /// What is wrong with the file that says which format it is.
    pub(crate) fn damage(&self) -> Result<Option<Damage>, JournalError> {
        Ok(match format(&self.path)? {
            Format::Damaged(damage) => Some(damage),
            Format::Known | Format::None => None,
        })
    }

    /// Segments and their record: none.
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
    /// The folder's secret, made if there is none yet. One that is damaged is replaced: what it had
    /// signed is void.
    pub(crate) fn secret(&self) -> Result<Secret, JournalError> {
        let path = self.path.join("secret");
        let fail = |error| failure(&path, "read", error);
        match fs::read(&path) {
            Ok(bytes) => {
                if let Some(secret) = Secret::read(&bytes) {
                    return Ok(secret);
                }
                tracing::warn!(file = %path.display(),
                "the secret is damaged and made anew: tickets that it signed are void");
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
    // Best effort: the holder may be about to write it.
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
    /// There is a journal, and the file is not what was written.
    Damaged(Damage),
}

/// The folder's format, if it is one that we know.
fn format(folder: &Path) -> Result<Format, JournalError> {
    let path = folder.join("format");
    let damaged =
        |what: &str| Format::Damaged(Damage { file: path.clone(), offset: 0, what: what.into() });
    match fs::read(&path) {
        Ok(bytes) => match version(&bytes) {
            Some(VERSION) => Ok(Format::Known),
            Some(other) => Err(unknown(folder, &path, &format!("is of version {other}"))),
            None if has_segments(folder) => {
                Ok(damaged("the file that tells the format is not what was written"))
            }
            None => Err(unknown(folder, &path, "is not a journal's format file")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound && has_segments(folder) => {
            Ok(damaged("the file that tells the format is missing"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Format::None),
        Err(error) => Err(failure(&path, "read", error)),
    }
}

/// The version that a format file names, if it is one that any build would write.
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

/// Whether streams lie here: then it is no folder to begin a journal in.
fn has_segments(folder: &Path) -> bool {
    let is_segment =
        |entry: fs::DirEntry| entry.path().extension().is_some_and(|extension| extension == "seg");
    fs::read_dir(folder.join("log"))
        .is_ok_and(|mut entries| entries.any(|entry| entry.is_ok_and(is_segment)))
}

/// A folder that holds other things is not taken over: somebody mistyped a path.
fn refuse_foreign(folder: &Path) -> Result<(), JournalError> {
    let entries = fs::read_dir(folder).map_err(|error| failure(folder, "read", error))?;
    // What a process leaves that is killed while it makes one.
    let begun = ["lock", "log", "files", "files.new", "format.new"];
    let is_ours = |name: &std::ffi::OsStr| begun.iter().any(|begun| name == *begun);
    if entries.flatten().all(|entry| is_ours(&entry.file_name())) {
        return Ok(());
    }
    let message = format!("the folder {} holds other things than a journal", folder.display());
    Err(JournalError::new(ErrorKind::Unsupported, message))
}

/// Under another name first, so that the file is whole or not there. Private by itself, too:
/// folders get copied.
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

/// Nothing is followed here either; a file of the name is used as it is, a link is refused.
fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    private(options.read(true).write(true).truncate(false));
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let is_file =
        |path: &Path| Ok::<_, io::Error>(fs::symlink_metadata(path)?.file_type().is_file());
    let refused = || io::Error::new(io::ErrorKind::InvalidInput, "it is not a file of its own");
    if !is_file(path)? {
        return Err(refused());
    }
    let file = options.open(path)?;
    // Once more: it may have been put there in between. Nothing was written yet.
    if is_file(path)? && is_same(&file, path)? { Ok(file) } else { Err(refused()) }
}

#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (open, named) = (file.metadata()?, fs::symlink_metadata(path)?);
    // A second name of the file is somebody else's as well.
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

/// Why a journal is not opened, and left as it is.
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
