//! Appends of a few packets in the caller's thread.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use capstan_journal::{ErrorKind, Health, Quota};

use super::super::writer::AT_ONCE_BYTES;
use super::*;

/// The result of a future that does not have to wait.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

async fn begun(store: &DiskStore) -> Uuid {
    let id = Uuid::now_v7();
    store.claim(claim(id), &Quota::UNLIMITED).await.unwrap();
    // The writer thread has answered, and may not be back at its queue.
    drop(store.shared_writer.lock().unwrap());
    id
}

#[tokio::test]
async fn small_appends_are_written_by_their_caller() {
    let folder = tempfile::tempdir().unwrap();
    let id = {
        let store = open(folder.path(), Durability::Process);
        let id = begun(&store).await;
        for seq in 1..=20 {
            at_once(store.append(id, 1, frames(id, seq, seq)))
                .expect("the writer is idle")
                .unwrap();
        }
        // An invalid append is refused as by the writer thread, and leaves nothing behind.
        assert!(
            at_once(store.append(id, 1, frames(id, 30, 30))).expect("the writer is idle").is_err()
        );
        assert!(
            at_once(store.append(id, 2, frames(id, 21, 21))).expect("the writer is idle").is_err()
        );
        store.append(id, 1, frames(id, 21, 24)).await.unwrap();
        id
    };
    let store = open(folder.path(), Durability::Process);
    assert_eq!(store.read(id, 0, usize::MAX, usize::MAX).await.unwrap(), frames(id, 1, 24));
}

#[tokio::test]
async fn slow_writes_are_left_to_the_writer_thread() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("process"), Durability::Process);
    let id = begun(&store).await;
    let long = Frame::new(1, vec![b'x'; AT_ONCE_BYTES + 1]);
    let fits = |frame: Frame| store.shared_writer.lock().unwrap().append_at_once(id, 1, &[frame]);
    assert!(fits(long).is_none(), "it is long");
    // A segment has 16 KiB here.
    let full = (1..1000).find(|seq| fits(Frame::new(*seq, vec![b'x'; 100])).is_none()).unwrap();
    assert!(full > 9, "{full}");
    store.append(id, 1, vec![Frame::new(full, vec![b'x'; 100])]).await.unwrap();

    let store = open(&folder.path().join("power"), Durability::Power);
    let id = begun(&store).await;
    assert!(
        store.shared_writer.lock().unwrap().append_at_once(id, 1, &frames(id, 1, 1)).is_none(),
        "it is synced"
    );
}

#[tokio::test]
async fn concurrent_writers_form_one_group() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Durability::Process);
    let id = begun(&store).await;
    let mut append = pin!(store.append(id, 1, frames(id, 1, 1)));
    {
        let _writing = store.shared_writer.lock().unwrap();
        assert!(at_once(append.as_mut()).is_none());
    }
    append.await.unwrap();
    assert_eq!(store.read(id, 0, 9, 9999).await.unwrap(), frames(id, 1, 1));
}

#[tokio::test]
async fn half_made_files_are_not_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path(), Durability::Process);
    let id = begun(&store).await;
    let shared_writer = store.shared_writer.clone();
    let failed = std::thread::spawn(move || {
        let _writing = shared_writer.lock().unwrap();
        panic!("a mistake, on purpose");
    });
    assert!(failed.join().is_err());
    let error = store.append(id, 1, frames(id, 1, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Broken, "{error}");
    assert!(matches!(&*store.health().borrow(), Health::Broken(_)));
}
