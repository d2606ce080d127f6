//! The file system as the journal uses it. Tests replace it, to fail any write, lose what was not
//! synced, and simulate a power cut.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Operations on folders and file names.
pub(crate) trait Files: Send + Sync + 'static {
    /// Creates a new, empty, private file for reading and writing.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Data>>;
    /// Opens an existing file. Not in append mode, in which positioned writes would go to the end.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn Data>>;
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// The free bytes of the folder's file system.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;
}

/// An open file.
pub(crate) trait Data: Send + Sync {
    /// Fills the buffer, starting at an offset.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn set_len(&self, length: u64) -> io::Result<()>;
    fn sync(&self) -> io::Result<()>;
    fn length(&self) -> io::Result<u64>;
}

/// Reads a range of a file.
pub(crate) fn read_range(file: &dyn Data, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Creates a file in place of an existing one. Follows no link, which may lead to another user's
/// file.
pub(crate) fn create_own(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => private(OpenOptions::new().read(true).write(true).create_new(true)).open(path),
    }
}

#[cfg(unix)]
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

#[cfg(not(unix))]
pub(crate) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

/// The file system of the operating system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemFiles;

impl Files for SystemFiles {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn Data>> {
        Ok(Arc::new(SystemData(create_own(path)?)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn Data>> {
        Ok(Arc::new(SystemData(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.map(|entry| entry.file_name().into_string().ok())
        };
        fs::read_dir(folder)?.filter_map(|entry| name(entry).transpose()).collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
    }

    #[cfg(unix)]
    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let space = rustix::fs::statvfs(folder)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    #[cfg(not(unix))]
    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

struct SystemData(File);

impl Data for SystemData {
    #[cfg(unix)]
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, buffer, offset)
    }

    #[cfg(unix)]
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.0, bytes, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.0, buffer, offset)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => {
                    buffer = buffer.get_mut(count..).unwrap_or_default();
                    offset += count as u64;
                }
            }
        }
        Ok(())
    }

    #[cfg(windows)]
    fn write_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = std::os::windows::fs::FileExt::seek_write(&self.0, bytes, offset)?;
            bytes = bytes.get(count..).unwrap_or_default();
            offset += count as u64;
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.0.metadata().map(|data| data.len())
    }
}
