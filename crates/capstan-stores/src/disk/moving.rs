//! Moving a folder of format 2 to this one, in a build that has the engine of that format.

#[cfg(feature = "format-2")]
mod carry;
#[cfg(feature = "format-2")]
mod old;

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use capstan_journal::{ErrorKind, JournalError};

use super::files::Files;
use super::folder::Folder;
use super::shared::{Settings, io_failure};

/// Carries over what is in the store of the older format.
pub(super) type Carry = fn(&Folder, &Path, &Arc<dyn Files>, Settings) -> Result<(), JournalError>;

/// It comes with the feature `format-2` alone: few have such a folder, and the engine that wrote it
/// is large.
#[cfg(feature = "format-2")]
pub(crate) const CARRY: Option<Carry> = Some(carry::carry);
#[cfg(not(feature = "format-2"))]
pub(crate) const CARRY: Option<Carry> = None;

/// Moves the folder if it is of the older format.
pub(super) fn move_old(
    folder: &Folder,
    path: &Path,
    files: &Arc<dyn Files>,
    settings: Settings,
    carry: Option<Carry>,
) -> Result<(), JournalError> {
    let store = path.join("store");
    if !folder.is_old()? {
        // The move was over, and the old store was not yet gone.
        return remove(&store);
    }
    if !store.exists() {
        let message = format!(
            "the journal is damaged: {} is missing, though {} says that it is there; nothing was \
             changed",
            store.display(),
            path.join("format").display()
        );
        return Err(JournalError::new(ErrorKind::Corrupt, message));
    }
    let carry = carry.ok_or_else(|| unknown(path))?;
    carry(folder, path, files, settings)?;
    remove(&store)?;
    tracing::info!("the journal was moved");
    Ok(())
}

fn unknown(path: &Path) -> JournalError {
    let message = format!(
        "the journal {} has format 2, which this build cannot read; nothing was changed. A \
         release can, and so can a \
         build with the feature: cargo run --package capstan --features format-2 -- serve \
         --journal disk:{}",
        path.display(),
        path.display()
    );
    JournalError::new(ErrorKind::Unsupported, message)
}

fn remove(path: &Path) -> Result<(), JournalError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_failure("remove", path, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Durability;
    use crate::disk::files::SystemFiles;

    fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let files = names.filter(|name| folder.join(name).is_file());
        files
            .map(|name| (name.to_string_lossy().into_owned(), fs::read(folder.join(name)).unwrap()))
            .collect()
    }

    #[test]
    fn a_build_without_the_older_engine_says_which_one_has_it_and_touches_nothing() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("format"), "capstan-journal 2\n").unwrap();
        fs::create_dir(temp.path().join("store")).unwrap();
        fs::write(temp.path().join("store/words"), "kept").unwrap();
        let files: Arc<dyn Files> = Arc::new(SystemFiles);
        let folder = Folder::open(temp.path(), &*files).unwrap();
        let before = contents(temp.path());
        let settings = Settings::new(Durability::Process);
        let error = move_old(&folder, temp.path(), &files, settings, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let path = temp.path().display();
        assert_eq!(
            error.to_string(),
            format!(
                "the journal {path} has format 2, which this build cannot read; nothing was \
                 changed. A release can, and so \
                 can a build with the feature: cargo run --package capstan --features format-2 -- \
                 serve --journal disk:{path}"
            )
        );
        assert_eq!(contents(temp.path()), before);
        assert_eq!(fs::read(temp.path().join("store/words")).unwrap(), b"kept");
        assert!(!temp.path().join("log").exists());
    }
}
