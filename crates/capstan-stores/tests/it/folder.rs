//! The folder of a disk journal: private, versioned, and never another user's.

use std::fs;
use std::path::Path;

use capstan_journal::{Claim, ErrorKind, JournalError, Quota};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use uuid::Uuid;

fn try_open(folder: &Path) -> Result<(), JournalError> {
    open(&format!("disk:{}", folder.display()), Durability::Process).map(drop)
}

#[test]
fn an_unknown_url_names_the_known_ones() {
    for url in ["redis://localhost", "disk:", "memory:x", "", "journal"] {
        let error = open(url, Durability::Process).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.to_string().contains("memory:") && error.to_string().contains("disk:<folder>")
        );
    }
}

#[cfg(unix)]
#[test]
fn journal_folder_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("a/b/journal");
    try_open(&folder).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("secret"))), (0o700, 0o600));
}

#[cfg(unix)]
#[test]
fn permissions_are_restored_at_opening() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o755)).unwrap();
        try_open(temp.path()).unwrap();
        assert_eq!(fs::metadata(temp.path()).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[cfg(unix)]
#[test]
fn symbolic_links_are_not_followed() {
    let temp = tempfile::tempdir().unwrap();
    let theirs = temp.path().join("theirs");
    let folder = temp.path().join("journal");
    for name in ["lock", "format.new", "files.new"] {
        let _ = fs::remove_dir_all(&folder);
        fs::write(&theirs, "a thesis").unwrap();
        fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&theirs, folder.join(name)).unwrap();
        let opened = try_open(&folder);
        assert_eq!(opened.is_err(), name == "lock", "{name}: {opened:?}");
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "a thesis", "{name}");
    }
    // A second hard link is treated like a symbolic link.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    fs::hard_link(&theirs, folder.join("lock")).unwrap();
    assert!(try_open(&folder).is_err());
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "a thesis");
}

#[test]
fn foreign_folder_is_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("thesis.txt"), "…").unwrap();
    assert_eq!(try_open(temp.path()).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "not even a lock");
}

/// The next change of the format increases the version. A folder of another version is never
/// changed.
#[test]
fn folder_of_another_version_is_refused_with_advice() {
    let temp = tempfile::tempdir().unwrap();
    try_open(temp.path()).unwrap();
    let format = temp.path().join("format");
    assert_eq!(fs::read_to_string(&format).unwrap(), "capstan-journal 1\n");
    for (text, found) in [
        ("capstan-journal 0\n", "is of version 0"),
        ("capstan-journal 2\n", "is of version 2"),
        ("a recipe", "is not a journal's format file"),
    ] {
        fs::write(&format, text).unwrap();
        let error = try_open(temp.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let folder = temp.path().display();
        assert_eq!(
            error.to_string(),
            format!(
                "the journal folder {folder} cannot be opened: {folder}/format {found}, and this \
                 build reads version 1; nothing was changed. Open it with the release that wrote \
                 it, which can also copy it into PostgreSQL for this one (`capstan journal copy \
                 disk:{folder} postgres://…`), or begin a new journal in an empty folder"
            )
        );
        assert_eq!(fs::read_to_string(&format).unwrap(), text);
    }
}

#[test]
fn half_created_folder_is_created_again() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir_all(temp.path().join("log")).unwrap();
    fs::write(temp.path().join("files.new"), "half").unwrap();
    try_open(temp.path()).unwrap();
    try_open(temp.path()).unwrap();
}

#[tokio::test]
async fn data_survives_reopening() {
    let temp = tempfile::tempdir().unwrap();
    let url = format!("disk:{}", temp.path().display());
    let claim = Claim::new("local", "k", Uuid::now_v7(), Timestamp::now());
    let mut secrets = Vec::new();
    for is_new in [true, false, false] {
        let store = open(&url, Durability::Power).unwrap();
        assert_eq!(store.claim(claim.clone(), &Quota::UNLIMITED).await.unwrap().is_new, is_new);
        assert_eq!(store.body(claim.stream_id).await.unwrap(), Some(claim.body.clone()));
        secrets.push(store.secret().await.unwrap());
        store.close().await.unwrap();
    }
    assert!(secrets.iter().all(|secret| *secret == secrets[0]));
}
