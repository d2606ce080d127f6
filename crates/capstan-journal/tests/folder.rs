//! The folder of a disk journal: private, versioned, never somebody else's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::path::Path;

use capstan_journal::{Claim, Durability, ErrorKind, JournalError, Quota, open};
use capstan_protocol::Timestamp;
use uuid::Uuid;

fn try_open(folder: &Path) -> Result<(), JournalError> {
    open(&format!("disk:{}", folder.display()), Durability::Process).map(drop)
}

#[test]
fn an_unknown_url_names_the_known_ones() {
    for url in ["redis://localhost", "disk:", "memory:x", "", "journal"] {
        let error = open(url, Durability::Process).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("memory:") && error.to_string().contains("disk:<folder>"));
    }
}

#[cfg(unix)]
#[test]
fn the_folder_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("a/b/journal");
    try_open(&folder).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("secret"))), (0o700, 0o600));
}

#[test]
fn a_folder_of_other_things_is_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("thesis.txt"), "…").unwrap();
    assert_eq!(try_open(temp.path()).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn another_format_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    try_open(temp.path()).unwrap();
    fs::write(temp.path().join("format"), "capstan-journal 9\n").unwrap();
    let error = try_open(temp.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("capstan-journal 9"));
}

#[test]
fn a_folder_that_was_not_made_to_the_end_is_made_again() {
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir_all(temp.path().join("log")).unwrap();
    fs::write(temp.path().join("files.new"), "half").unwrap();
    try_open(temp.path()).unwrap();
    try_open(temp.path()).unwrap();
}

#[tokio::test]
async fn what_was_stored_is_there_after_reopening() {
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
