//! Every disk operation fails once, or for a while. Nothing acknowledged is lost, and the store
//! recovers.

use capstan_journal::{ErrorKind, Health, JournalError, Quota, Transition};

use super::super::writer::Command;
use super::recorder::{Fault, Recorder};
use super::*;

/// Executes runs until one succeeds. Everything acknowledged meanwhile must be stored.
async fn persist(store: &DiskStore, all: &mut All) {
    let mut health = store.health();
    for _ in 0..50 {
        let outcome = run_once(store, 25, |id, known| {
            all.insert(id, known);
        })
        .await;
        let Err(error) = outcome else { return };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // The health may be outdated, so wait for its state.
        drop(health.wait_for(|health| *health == Health::Well).await.unwrap());
    }
    panic!("it never went through");
}

/// The writes that must be there. After a failure an end may be stored or not.
async fn owed(store: &DiskStore, all: &All) -> All {
    let mut owed = all.clone();
    for (id, known) in &mut owed {
        let run = store.run(*id).await.unwrap();
        known.is_closed |= run.is_some_and(|run| run.state == RunState::Closed);
    }
    owed
}

/// Segment files that the store does not know, and that nothing would remove.
fn strays(store: &DiskStore) -> Vec<String> {
    let mut names = SystemFiles.list(&store.shared.folder.join("log")).unwrap();
    let index = store.shared.index();
    let known =
        |name: &String| index.segments.values().any(|held| held.segment.path.ends_with(name));
    // The file of the next segment is created in advance. An unused name costs nothing.
    let spare = store.shared.spare_path();
    let is_empty = |path: &Path| std::fs::metadata(path).is_ok_and(|data| data.len() == 0);
    let is_spare = |name: &String| {
        let path = store.shared.folder.join("log").join(name);
        spare.as_ref() == Some(&path) || is_empty(&path)
    };
    names.retain(|name| !known(name) && !is_spare(name));
    names
}

/// Runs a workload in which `count` operations fail from the `at`th on. True if one was left to
/// fail.
async fn fail(durability: Durability, at: usize, count: usize) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::default();
    let mut all = All::new();
    {
        let store = open_on(folder.path(), durability, Arc::new(recorder.clone()));
        persist(&store, &mut all).await;
        recorder.fail(Some(Fault { at, count }));
        for _ in 0..3 {
            persist(&store, &mut all).await;
        }
        let purged = all.iter().find(|(_, known)| known.is_closed).map(|(id, _)| *id).unwrap();
        while let Err(error) = store.purge(purged, Timestamp::now()).await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            drop(store.health().wait_for(|health| *health == Health::Well).await.unwrap());
        }
        let known = Acknowledged { is_purged: true, is_closed: true, last: 0 };
        all.insert(purged, known);
        store.maintain().await;
        recorder.fail(None);
        persist(&store, &mut all).await;
        store.maintain().await;
        assert_kept(&store, &owed(&store, &all).await).await;
        assert!(!holds(folder.path(), &word(purged)), "{at}: purged words");
        assert_eq!(strays(&store), Vec::<String>::new(), "{at}: files that belong to nothing");
    }
    let store = open(folder.path(), durability);
    assert_kept(&store, &owed(&store, &all).await).await;
    recorder.failed() > 0
}

#[tokio::test]
async fn failed_writes_and_syncs_lose_nothing_acknowledged() {
    for durability in [Durability::Process, Durability::Power] {
        let step = if seeds() > 50 { 1 } else { 15 };
        for at in (0..150).step_by(step) {
            if !fail(durability, at, 1).await {
                break;
            }
            if at % 4 == 0 {
                fail(durability, at, 9).await;
            }
        }
    }
}

#[tokio::test]
async fn full_disk_serves_reads_and_refuses_new_runs() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::default();
    let store = open_on(folder.path(), Durability::Process, Arc::new(recorder.clone()));
    let mut all = All::new();
    let id = run_once(&store, 30, |id, known| {
        all.insert(id, known);
    })
    .await
    .unwrap();
    recorder.fail(Some(Fault { at: 0, count: usize::MAX }));
    let refused = Uuid::now_v7();
    let error: JournalError = store.claim(claim(refused), &Quota::UNLIMITED).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let mut health = store.health();
    drop(
        health
            .wait_for(|health| matches!(health, Health::Unavailable(why) if !why.is_empty()))
            .await
            .unwrap(),
    );
    assert_eq!(store.read(id, 0, 99, 1 << 20).await.unwrap(), frames(id, 1, 30));
    assert_eq!(store.run(id).await.unwrap().unwrap().state, RunState::Closed);
    recorder.fail(None);
    drop(health.wait_for(|health| *health == Health::Well).await.unwrap());
    // The caller of a failed claim may try again, and its claim is the first.
    assert!(store.claim(claim(refused), &Quota::UNLIMITED).await.unwrap().is_new);
    run_once(&store, 30, |id, known| {
        all.insert(id, known);
    })
    .await
    .unwrap();
    assert_kept(&store, &all).await;
}

#[tokio::test]
async fn unsynced_claim_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::default();
    let store = open_on(folder.path(), Durability::Process, Arc::new(recorder.clone()));
    run_once(&store, 3, |_, _| ()).await.unwrap();
    store.maintain().await;
    let id = Uuid::now_v7();
    // The claim is written, and every later operation fails.
    recorder.fail(Some(Fault { at: 1, count: usize::MAX }));
    assert_eq!(
        store.claim(claim(id), &Quota::UNLIMITED).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    recorder.fail(None);
    drop(store.health().wait_for(|health| *health == Health::Well).await.unwrap());
    // Writes only succeed after the claim was withdrawn.
    run_once(&store, 3, |_, _| ()).await.unwrap();
    assert_eq!(store.run(id).await.unwrap(), None);
    assert_eq!(store.orphans(9).await.unwrap(), []);
    assert!(store.claim(claim(id), &Quota::UNLIMITED).await.unwrap().is_new);
}

#[tokio::test]
async fn low_disk_space_refuses_only_new_runs() {
    let folder = tempfile::tempdir().unwrap();
    let id = Uuid::now_v7();
    let run = open(folder.path(), Durability::Process)
        .claim(claim(id), &Quota::UNLIMITED)
        .await
        .unwrap()
        .run;
    let settings = Settings { min_free_bytes: u64::MAX, ..settings(Durability::Process) };
    let store = DiskStore::open_with(folder.path(), settings, Arc::new(SystemFiles)).unwrap();
    store.maintain().await;
    assert!(store.stats().is_low_on_space);
    assert_eq!(
        store.claim(claim(Uuid::now_v7()), &Quota::UNLIMITED).await.unwrap_err().kind(),
        ErrorKind::Full
    );
    assert!(!store.claim(claim(id), &Quota::UNLIMITED).await.unwrap().is_new);
    store.append(id, 1, frames(id, 1, 5)).await.unwrap();
    assert!(
        store
            .transition(Transition::new((RunState::Running, 1), closed(&run), vec![], None))
            .await
            .unwrap()
    );
}

/// Compacts a mostly dead journal while all operations fail from the `at`th on. Then the disk works
/// again.
async fn compact_with_failures(at: usize) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::default();
    let store = open_on(folder.path(), Durability::Process, Arc::new(recorder.clone()));
    let mut streams = Vec::new();
    for _ in 0..24 {
        streams.push(run_once(&store, 30, |_, _| ()).await.unwrap());
    }
    let (kept, retired): (Vec<_>, Vec<_>) =
        streams.into_iter().zip(0..).partition(|(_, n)| n % 4 == 0);
    let (now, streams) = (Timestamp::now(), retired.into_iter().map(|(id, _)| id).collect());
    store.ask(|reply| Command::Retire { streams, now, reply }).await.unwrap();
    recorder.fail(Some(Fault { at, count: usize::MAX }));
    store.maintain().await;
    recorder.fail(None);
    store.maintain().await;
    drop(store.health().wait_for(|health| *health == Health::Well).await.unwrap());
    store.maintain().await;
    assert_eq!(strays(&store), Vec::<String>::new(), "the {at}th and all after it fail");
    for (stream, _) in kept {
        assert_eq!(store.read(stream, 0, 99, 1 << 20).await.unwrap(), frames(stream, 1, 30));
    }
    recorder.failed()
}

#[tokio::test]
async fn compaction_on_a_full_disk_leaves_no_files() {
    let mut failed = 0;
    for at in 0..40 {
        failed += usize::from(compact_with_failures(at).await > 0);
    }
    assert!(failed > 20, "{failed}");
}
