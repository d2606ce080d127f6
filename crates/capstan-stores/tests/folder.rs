//! The folder of a disk journal: private, versioned, never somebody else's.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use capstan_journal::{Claim, ErrorKind, Frame, JournalError, Quota, RunState, Store};
use capstan_protocol::{Payload, StreamPacket, Timestamp, sse};
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
fn the_folder_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("a/b/journal");
    try_open(&folder).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("secret"))), (0o700, 0o600));
}

#[cfg(unix)]
#[test]
fn a_folder_that_was_opened_to_others_is_closed_again() {
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
fn nothing_behind_a_link_is_written_to() {
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
    // A second name of the file is as good as a link.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    fs::hard_link(&theirs, folder.join("lock")).unwrap();
    assert!(try_open(&folder).is_err());
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "a thesis");
}

#[test]
fn a_folder_of_other_things_is_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("thesis.txt"), "…").unwrap();
    assert_eq!(try_open(temp.path()).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "not even a lock");
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

/// Runs as the last build of a format wrote them, and what their clients saw of each.
fn fixture(name: &str) -> (tempfile::TempDir, BTreeMap<Uuid, String>) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let temp = tempfile::tempdir().unwrap();
    fs::create_dir(temp.path().join("log")).unwrap();
    for file in ["format", "files", "secret", "log/00000001.seg"] {
        fs::copy(fixtures.join(name).join(file), temp.path().join(file)).unwrap();
    }
    let all = fs::read_to_string(fixtures.join(name).with_extension("sse")).unwrap();
    let responses = all
        .split("retry: 500\nid: ")
        .skip(1)
        .map(|response| response.split_once(":0\n\n").unwrap());
    (
        temp,
        responses.map(|(stream, packets)| (stream.parse().unwrap(), packets.to_owned())).collect(),
    )
}

async fn read(store: &dyn Store, stream: Uuid) -> String {
    let frames = store.read(stream, 0, usize::MAX, usize::MAX).await.unwrap();
    assert!(frames.iter().zip(1..).all(|(frame, seq)| frame.seq == seq));
    frames.iter().map(|frame| std::str::from_utf8(&frame.bytes).unwrap()).collect()
}

/// One packet more; of a new run, if the one that was there is over.
async fn go_on(store: &dyn Store, stream: Uuid) -> Uuid {
    let mut run = store.run(stream).await.unwrap().unwrap();
    if run.state != RunState::Running {
        let id = Uuid::now_v7();
        run = store
            .claim(Claim::new("local", id.to_string(), id, Timestamp::now()), &Quota::UNLIMITED)
            .await
            .unwrap()
            .run;
    }
    let (stream_id, seq, payload) =
        (run.stream_id, run.last_seq + 1, Payload::Delta("more".into()));
    let mut bytes = Vec::new();
    sse::encode_packet(&StreamPacket { stream_id, seq, t: Timestamp::now(), payload }, &mut bytes);
    store.append(stream_id, run.attempt, vec![Frame::new(seq, bytes)]).await.unwrap();
    stream_id
}

/// Format 3 knew no packed packets, format 4 no bare ones. Each fixture has a burst; the one of 4
/// also a run that was under way, token by token, when its process was killed.
#[tokio::test]
async fn folders_of_the_formats_before_are_read_and_go_on_and_older_builds_are_kept_from_them() {
    for (name, packets) in [("format-3", &[61][..]), ("format-4", &[61, 30])] {
        let (temp, mut known) = fixture(name);
        assert!(
            known
                .values()
                .map(|seen| seen.matches("event: stream.packet").count())
                .eq(packets.iter().copied())
        );
        for _ in 0..3 {
            let store =
                open(&format!("disk:{}", temp.path().display()), Durability::Process).unwrap();
            assert_eq!(
                fs::read_to_string(temp.path().join("format")).unwrap(),
                "capstan-journal 5\n"
            );
            for (stream, seen) in known.clone() {
                assert!(read(&*store, stream).await.starts_with(&seen), "{name}: {stream}");
                let longer = go_on(&*store, stream).await;
                known.insert(longer, read(&*store, longer).await);
            }
            store.close().await.unwrap();
        }
    }
}
