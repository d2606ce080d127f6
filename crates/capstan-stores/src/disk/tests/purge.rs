//! Purges during a compaction, which may have copied the purged data.

use capstan_journal::{Quota, Transition};

use super::super::writer::Command;
use super::recorder::{Op, Pause, Recorder};
use super::*;

fn is_install(op: &Op) -> bool {
    matches!(op, Op::Rename(_, to) if to.extension().is_some_and(|name| name == "seg"))
}

fn is_write(op: &Op) -> bool {
    matches!(op, Op::Write(..))
}

fn is_unlink(op: &Op) -> bool {
    matches!(op, Op::Remove(path) if path.extension().is_some_and(|name| name == "seg"))
}

/// A run in mostly dead segments. Compaction has copied it, and waits before the new segment
/// counts.
async fn copied(recorder: &Recorder, store: &DiskStore) -> (Uuid, Pause) {
    let id = run_once(store, 3, |_, _| ()).await.unwrap();
    let mut streams = Vec::new();
    for _ in 0..6 {
        let stream = Uuid::now_v7();
        let body = Bytes::from(vec![b'x'; 10_000]);
        let claim = Claim { body, ..claim(stream) };
        let run = store.claim(claim, &Quota::UNLIMITED).await.unwrap().run;
        assert!(
            store
                .transition(Transition::new((RunState::Running, 1), closed(&run), vec![], None))
                .await
                .unwrap()
        );
        streams.push(stream);
    }
    store.maintain().await;
    let install = recorder.pause(is_install);
    let now = Timestamp::now();
    store.ask(|reply| Command::Retire { streams, now, reply }).await.unwrap();
    store.wake_compactor();
    install.reached();
    (id, install)
}

async fn assert_gone(folder: &Path, store: DiskStore, id: Uuid) {
    for word in [word(id), format!("body of {id}"), format!("answer of {id}")] {
        assert!(!holds(folder, &word), "{word}");
    }
    assert_kept(&store, &All::new()).await;
    drop(store);
    let store = open(folder, Durability::Process);
    assert_kept(&store, &All::new()).await;
    assert_eq!(store.turn_count("t", "session").await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_purged_before_its_copy_is_erased() {
    let (folder, recorder) = (tempfile::tempdir().unwrap(), Recorder::default());
    let store = Arc::new(open_on(folder.path(), Durability::Process, Arc::new(recorder.clone())));
    let (id, install) = copied(&recorder, &store).await;
    let written = recorder.pause(is_write);
    let purging = store.clone();
    let purging = tokio::spawn(async move { purging.purge(id, Timestamp::now()).await });
    written.reached();
    drop(written);
    while store.run(id).await.unwrap().is_some() {}
    drop(install);
    assert!(purging.await.unwrap().unwrap());
    assert_gone(folder.path(), Arc::into_inner(store).unwrap(), id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_copied_during_its_purge_is_erased() {
    let (folder, recorder) = (tempfile::tempdir().unwrap(), Recorder::default());
    let store = Arc::new(open_on(folder.path(), Durability::Process, Arc::new(recorder.clone())));
    let (id, install) = copied(&recorder, &store).await;
    let written = recorder.pause(is_write);
    let purging = store.clone();
    let purging = tokio::spawn(async move { purging.purge(id, Timestamp::now()).await });
    written.reached();
    // The new segment counts, and the old one is removed.
    let unlink = recorder.pause(is_unlink);
    drop(install);
    unlink.reached();
    drop(written);
    drop(unlink);
    assert!(purging.await.unwrap().unwrap());
    assert_gone(folder.path(), Arc::into_inner(store).unwrap(), id).await;
}
