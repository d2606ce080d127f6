//! A folder of format 2, written by the last build that wrote one, is carried over.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fs;
use std::path::{Path, PathBuf};

use capstan_journal::{Claim, ErrorKind, Found, NameKind, Quota, Retention, RunState};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, check, open};
use uuid::Uuid;

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

/// The fixture: runs `closed`, `waiting`, `running`, `purged`, `expired` and `second`, 150 or 151
/// packets each.
fn fixture() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-2"), temp.path());
    // Version control keeps no empty folders.
    for keyspace in fs::read_dir(temp.path().join("store/keyspaces")).unwrap().flatten() {
        fs::create_dir_all(keyspace.path().join("tables")).unwrap();
    }
    temp
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + number)
}

fn url(folder: &Path) -> String {
    format!("disk:{}", folder.display())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(path) = folders.pop() {
        match path.is_dir() {
            true => folders.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path())),
            false => found.push(path),
        }
    }
    found
}

fn holds(folder: &Path, word: &str) -> bool {
    files(folder)
        .iter()
        .any(|file| memchr::memmem::find(&fs::read(file).unwrap(), word.as_bytes()).is_some())
}

async fn assert_carried_over(folder: &Path) {
    let store = open(&url(folder), Durability::Process).unwrap();
    for (number, name, state, last) in [
        (0, "closed", RunState::Closed, 151),
        (1, "waiting", RunState::Waiting, 151),
        (2, "running", RunState::Running, 150),
        (5, "second", RunState::Closed, 151),
    ] {
        let run = store.run(id(number)).await.unwrap().unwrap();
        assert_eq!((run.state, run.last_seq, &*run.key), (state, last, &*format!("key-{name}")));
        assert_eq!((run.max_attempts, run.body_hash), (3, [number as u8 + 1; 32]));
        let frames = store.read(id(number), 0, usize::MAX, usize::MAX).await.unwrap();
        assert_eq!(frames.len() as u64, last);
        for (frame, seq) in frames.iter().zip(1..) {
            assert_eq!(frame.seq, seq);
            assert_eq!(frame.bytes, format!("id: {seq}\ndata: {name} says {seq}\n\n"));
        }
        let bytes: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
        assert_eq!(run.bytes, bytes as u64);
        assert_eq!(
            store.body(id(number)).await.unwrap().unwrap(),
            format!("{{\"query\":\"{name}\"}}")
        );
        let again = Claim::new("local", run.key, Uuid::now_v7(), Timestamp::now());
        assert!(!store.claim(again, &Quota::UNLIMITED).await.unwrap().is_new, "{name} runs once");
    }
    for gone in ["purged", "expired"] {
        let key = format!("key-{gone}");
        assert_eq!(store.find("local", &key).await.unwrap(), Some(Found::Expired));
        let again = Claim::new("local", key, Uuid::now_v7(), Timestamp::now());
        assert_eq!(
            store.claim(again, &Quota::UNLIMITED).await.unwrap_err().kind(),
            ErrorKind::Expired
        );
    }
    assert!(store.is_expired("local", id(3)).await.unwrap());
    let turns = store.turns("local", "session", 0, 99, usize::MAX).await.unwrap();
    let said: Vec<_> =
        turns.iter().map(|turn| (turn.number, turn.said["assistant"].clone())).collect();
    assert_eq!(said, [(1, "answer of closed".into()), (2, "answer of second".into())]);
    assert_eq!(
        (turns[0].said["is_partial"].clone(), turns[1].said["is_partial"].clone()),
        (false.into(), true.into())
    );
    assert_eq!(store.list("local", None, 99).await.unwrap().len(), 4);
    assert_eq!(
        store.named("local", NameKind::Session, "session", None, 99).await.unwrap().len(),
        4
    );
    assert_eq!(store.open_runs().await.unwrap().len(), 2);
    // The run was claimed before any turn was there.
    assert_eq!(store.run(id(1)).await.unwrap().unwrap().turns_before, 0);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_folder_of_format_2_is_carried_over_and_words_purged_there_are_gone() {
    let temp = fixture();
    assert!(holds(temp.path(), "purged says"), "the engine never forgot");
    assert_carried_over(temp.path()).await;
    assert!(!temp.path().join("store").exists());
    assert!(!holds(temp.path(), "purged says") && !holds(temp.path(), "answer of purged"));
    assert!(holds(temp.path(), "closed says 1\n"));
    let report = check(temp.path(), true).unwrap();
    assert_eq!((report.damage, report.streams), (vec![], 4));
    assert_carried_over(temp.path()).await;
    // Retention works on what was moved.
    let store = open(&url(temp.path()), Durability::Process).unwrap();
    let expired =
        store.expire(&Retention::default(), Timestamp::from_micros(i64::MAX / 2)).await.unwrap();
    assert_eq!((expired.streams, expired.claims), (2, 2));
    assert_eq!(expired.sessions, 0, "runs of it are open");
}

#[tokio::test]
async fn a_move_that_was_broken_off_starts_again() {
    let temp = fixture();
    fs::create_dir_all(temp.path().join("log")).unwrap();
    fs::write(temp.path().join("log/00000001.seg"), "half").unwrap();
    fs::write(temp.path().join("files"), "half").unwrap();
    assert_carried_over(temp.path()).await;
}

#[test]
fn a_folder_whose_store_is_missing_is_refused() {
    let temp = fixture();
    fs::remove_dir_all(temp.path().join("store")).unwrap();
    let error = open(&url(temp.path()), Durability::Process).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("store is missing"), "{error}");
}

/// Not a test of its own: what the killed process does.
#[test]
fn child() {
    let Ok(folder) = std::env::var("CAPSTAN_TEST_FOLDER") else { return };
    drop(open(&url(Path::new(&folder)), Durability::Process).unwrap());
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn a_move_that_dies_at_a_failpoint_is_finished_at_the_next_opening() {
    for failpoint in ["before_seal", "after_seal", "before_move", "after_move"] {
        let temp = fixture();
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env("CAPSTAN_TEST_FOLDER", temp.path())
            .env("CAPSTAN_FAILPOINT", failpoint)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
        assert!(!status.unwrap().success(), "{failpoint}");
        assert_carried_over(temp.path()).await;
        assert!(!temp.path().join("store").exists());
    }
}
