//! Erasure on request. What remains keeps a request from running twice.

use capstan_journal::{ErrorKind, Found, Journal, Quota, Reader, RunState, Step, TurnRange};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::{Backend, claim, frames, moved};

pub(crate) async fn purge_deletes_a_stream_and_keeps_its_claim(backend: &Backend) {
    let store = &backend.store;
    let (gone, other) = (
        backend.said("t", "s", "a", Timestamp::now()).await,
        backend.said("t", "s", "b", Timestamp::now()).await,
    );
    let (gone, kept) = (
        store.run(gone.stream_id).await.unwrap().unwrap(),
        store.run(other.stream_id).await.unwrap().unwrap(),
    );
    assert!(store.purge(gone.stream_id, Timestamp::now()).await.unwrap());
    assert_eq!(store.run(gone.stream_id).await.unwrap(), None);
    assert_eq!(store.body(gone.stream_id).await.unwrap(), None);
    assert_eq!(store.read(gone.stream_id, 0, 1000, 1 << 20).await.unwrap(), vec![]);
    assert_eq!(store.list("t", None, 10).await.unwrap(), std::slice::from_ref(&kept));
    assert_eq!(store.turns(TurnRange::all("t", "s")).await.unwrap(), [other]);

    assert_eq!(store.find("t", &gone.key).await.unwrap(), Some(Found::Expired));
    assert!(store.is_expired("t", gone.stream_id).await.unwrap());
    assert_eq!(
        store.claim(claim("t", &gone.key), &Quota::UNLIMITED).await.unwrap_err().kind(),
        ErrorKind::Expired
    );
    assert!(
        !store.purge(gone.stream_id, Timestamp::now()).await.unwrap(),
        "there is nothing left to purge"
    );
    assert_eq!(store.read(kept.stream_id, 0, 2, 1000).await.unwrap(), frames(1, 2));
}

pub(crate) async fn open_runs_are_not_purged(backend: &Backend) {
    let (running, waiting) = (backend.start("t").await, backend.start("t").await);
    let to = moved(&waiting, RunState::Waiting, 1);
    assert!(backend.step((RunState::Running, 1), to, frames(1, 3), None).await.unwrap());
    for run in [running, waiting] {
        assert!(!backend.store.purge(run.stream_id, Timestamp::now()).await.unwrap());
        assert!(backend.store.run(run.stream_id).await.unwrap().is_some());
    }
    assert!(!backend.store.purge(Uuid::now_v7(), Timestamp::now()).await.unwrap());
}

pub(crate) async fn purge_deletes_a_session_and_its_turns(backend: &Backend) {
    let store = &backend.store;
    for (tenant, session) in [("t", "s"), ("t", "s2"), ("other", "s")] {
        backend.said(tenant, session, "", Timestamp::now()).await;
    }
    assert!(store.purge_session("t", "s").await.unwrap());
    assert!(!store.purge_session("t", "s").await.unwrap());
    assert_eq!(store.turns(TurnRange::all("t", "s")).await.unwrap(), []);
    assert!(!store.has_session("t", "s").await.unwrap());
    assert_eq!(store.turns(TurnRange::all("t", "s2")).await.unwrap().len(), 1);
    assert_eq!(store.turns(TurnRange::all("other", "s")).await.unwrap().len(), 1);
}

async fn rest(mut reader: Reader) -> Result<usize, ErrorKind> {
    let mut count = 0;
    loop {
        match reader.next().await.map_err(|error| error.kind())? {
            Step::Frames(some) => count += some.len(),
            Step::State(_) => return Ok(count),
        }
    }
}

pub(crate) async fn purge_clears_the_memory_of_readers(backend: &Backend) {
    let journal: Journal = backend.journal();
    let run = journal.claim(claim("t", "k"), &Quota::UNLIMITED).await.unwrap().run;
    let reader = journal.reader(run.stream_id, 0);
    journal.append(run.stream_id, 1, frames(1, 5)).await.unwrap();
    let to = moved(&run, RunState::Closed, 1);
    assert!(journal.transition((RunState::Running, 1), to, frames(6, 6), None).await.unwrap());
    assert_eq!(rest(journal.reader(run.stream_id, 0)).await, Ok(6));
    assert!(journal.purge(run.stream_id, Timestamp::now()).await.unwrap());
    assert_eq!(rest(reader).await, Err(ErrorKind::NotFound), "recent frames are forgotten, too");
}
