//! Readers and live tails.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::Bytes;
use capstan_journal::{ErrorKind, Frames, Journal, Quota, Reader, RunState, Step, TailLimits};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::gated::Gated;
use super::{Backend, claim, frame, frames, moved};

fn bytes(first: u64, last: u64) -> Frames {
    frames(first, last).into_iter().collect()
}

async fn read_to_end(mut reader: Reader) -> Frames {
    let mut all = Vec::new();
    loop {
        match reader.next().await.unwrap() {
            Step::Frames(some) => all.extend(some.iter().map(Bytes::copy_from_slice)),
            Step::State(RunState::Closed) => return all.into_iter().collect(),
            Step::State(_) => {}
        }
    }
}

/// Polls once and does not wait.
async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

async fn start(journal: &Journal) -> Uuid {
    let claimed = journal
        .claim(claim("local", &Uuid::new_v4().to_string()), &Quota::UNLIMITED)
        .await
        .unwrap();
    claimed.run.stream_id
}

async fn finish(journal: &Journal, stream: Uuid, last: u64) {
    let run = journal.store().run(stream).await.unwrap().unwrap();
    let to = moved(&run, RunState::Closed, run.attempt);
    assert!(
        journal.transition((run.state, run.attempt), to, frames(last, last), None).await.unwrap()
    );
}

pub(crate) async fn reader_sees_frames_only_after_commit(backend: &Backend) {
    let store = Gated::new(backend.store.clone(), 0);
    let journal = Journal::new(store.clone(), TailLimits::default());
    let id = start(&journal).await;
    let mut reader = journal.reader(id, 0);
    for seq in 1..=20 {
        let append = tokio::spawn({
            let journal = journal.clone();
            async move { journal.append(id, 1, frames(seq, seq)).await }
        });
        // The append waits for its permit, or soon will, so there is nothing to see.
        tokio::task::yield_now().await;
        assert_eq!(now(reader.next()).await.map(Result::unwrap), None);
        store.gate.add_permits(1);
        assert_eq!(reader.next().await.unwrap(), Step::Frames(bytes(seq, seq)));
        assert_eq!(backend.store.run(id).await.unwrap().unwrap().last_seq, seq);
        append.await.unwrap().unwrap();
    }
}

pub(crate) async fn reader_never_misses_a_wake_up(backend: &Backend) {
    // Every round has another interleaving of writer and readers on two threads. A lost wake-up
    // hangs.
    for round in 0..100_u64 {
        let journal = backend.journal();
        let id = start(&journal).await;
        let readers: Vec<_> =
            (0..4).map(|_| tokio::spawn(read_to_end(journal.reader(id, round % 3)))).collect();
        for seq in 1..=10 {
            journal.append(id, 1, frames(seq, seq)).await.unwrap();
            if (round + seq) % 4 == 0 {
                tokio::task::yield_now().await;
            }
        }
        finish(&journal, id, 11).await;
        for reader in readers {
            assert_eq!(reader.await.unwrap(), bytes(round % 3 + 1, 11));
        }
    }
}

pub(crate) async fn dropped_append_still_wakes_readers(backend: &Backend) {
    let store = Gated::new(backend.store.clone(), 0);
    let journal = Journal::new(store.clone(), TailLimits::default());
    let id = start(&journal).await;
    let reader = tokio::spawn({
        let mut reader = journal.reader(id, 0);
        async move { reader.next().await.unwrap() }
    });
    // The caller drops the append while it is on its way into the store.
    assert!(now(journal.append(id, 1, frames(1, 1))).await.is_none());
    store.gate.add_permits(1);
    assert_eq!(reader.await.unwrap(), Step::Frames(bytes(1, 1)));
}

pub(crate) async fn a_thousand_readers_get_all_frames_in_order(backend: &Backend) {
    let journal = backend.journal();
    let id = start(&journal).await;
    let readers: Vec<_> =
        (0..1000).map(|_| tokio::spawn(read_to_end(journal.reader(id, 0)))).collect();
    for seq in 1..=100 {
        journal.append(id, 1, frames(seq, seq)).await.unwrap();
    }
    finish(&journal, id, 101).await;
    let expected = bytes(1, 101);
    for reader in readers {
        assert_eq!(reader.await.unwrap(), expected);
    }
}

pub(crate) async fn every_cursor_resumes_exactly(backend: &Backend) {
    let journal = backend.journal();
    let id = start(&journal).await;
    journal.append(id, 1, frames(1, 30)).await.unwrap();
    let early: Vec<_> = (0..=30).map(|after| (after, journal.reader(id, after))).collect();
    finish(&journal, id, 31).await;
    let late: Vec<_> = (0..=31).map(|after| (after, backend.journal().reader(id, after))).collect();
    for (after, reader) in early.into_iter().chain(late) {
        assert_eq!(read_to_end(reader).await, bytes(after + 1, 31), "after {after}");
    }
}

pub(crate) async fn waiting_is_returned_once_and_closed_always(backend: &Backend) {
    let journal = backend.journal();
    let id = start(&journal).await;
    let run = journal.store().run(id).await.unwrap().unwrap();
    let (mut live, waiting) = (journal.reader(id, 0), moved(&run, RunState::Waiting, 1));
    assert!(journal.transition((RunState::Running, 1), waiting, frames(1, 1), None).await.unwrap());
    for reader in [&mut live, &mut backend.journal().reader(id, 0)] {
        assert_eq!(reader.next().await.unwrap(), Step::Frames(bytes(1, 1)));
        assert_eq!(reader.next().await.unwrap(), Step::State(RunState::Waiting));
        assert_eq!(reader.cursor(), 1);
    }
    assert_eq!(now(live.next()).await.map(Result::unwrap), None);
    assert!(
        journal
            .transition((RunState::Waiting, 1), moved(&run, RunState::Running, 2), vec![], None)
            .await
            .unwrap()
    );
    journal.append(id, 2, frames(2, 2)).await.unwrap();
    assert_eq!(live.next().await.unwrap(), Step::Frames(bytes(2, 2)));
    assert!(
        journal
            .transition((RunState::Running, 2), moved(&run, RunState::Waiting, 2), vec![], None)
            .await
            .unwrap()
    );
    assert_eq!(live.next().await.unwrap(), Step::State(RunState::Waiting));
    finish(&journal, id, 3).await;
    assert_eq!(live.next().await.unwrap(), Step::Frames(bytes(3, 3)));
    for _ in 0..3 {
        assert_eq!(live.next().await.unwrap(), Step::State(RunState::Closed));
    }
}

pub(crate) async fn reader_of_an_armed_run_skips_the_old_waiting(backend: &Backend) {
    let journal = backend.journal();
    let id = start(&journal).await;
    let run = journal.store().run(id).await.unwrap().unwrap();
    let waiting = moved(&run, RunState::Waiting, 1);
    assert!(journal.transition((RunState::Running, 1), waiting, frames(1, 1), None).await.unwrap());
    // The next attempt is stored, and the wake-up has not arrived.
    let armed = moved(&run, RunState::Running, 2);
    assert!(backend.step((RunState::Waiting, 1), armed, Vec::new(), None).await.unwrap());
    let found = backend.store.run(id).await.unwrap().unwrap();
    let mut reader = journal.reader_of(&found, 1);
    let end = tokio::spawn(async move { reader.next().await.unwrap() });
    journal.append(id, 2, frames(2, 2)).await.unwrap();
    assert_eq!(end.await.unwrap(), Step::Frames(bytes(2, 2)));
    // The caller's record may be old too. Then the tail has the newer state.
    finish(&journal, id, 3).await;
    assert_eq!(read_to_end(journal.reader_of(&found, 1)).await, bytes(2, 3));
}

pub(crate) async fn waiting_of_an_earlier_attempt_is_not_returned(backend: &Backend) {
    let journal = backend.journal();
    let id = start(&journal).await;
    let run = backend.store.run(id).await.unwrap().unwrap();
    let waiting = moved(&run, RunState::Waiting, 1);
    assert!(journal.transition((RunState::Running, 1), waiting, frames(1, 1), None).await.unwrap());
    let mut viewer = journal.reader(id, 1);
    assert_eq!(viewer.next().await.unwrap(), Step::State(RunState::Waiting));
    // The next attempt is stored, and its writer has not woken the readers.
    let armed = moved(&run, RunState::Running, 2);
    assert!(backend.step((RunState::Waiting, 1), armed, vec![], None).await.unwrap());
    let run = backend.store.run(id).await.unwrap().unwrap();
    let mut reader = journal.reader_of(&run, 1);
    assert_eq!(now(reader.next()).await.map(Result::unwrap), None);
    journal.append(id, 2, frames(2, 2)).await.unwrap();
    assert_eq!(reader.next().await.unwrap(), Step::Frames(bytes(2, 2)));
}

pub(crate) async fn reader_with_a_stale_record_sees_the_end(backend: &Backend) {
    let journal = backend.journal();
    let id = start(&journal).await;
    let looked_up = backend.store.run(id).await.unwrap().unwrap();
    finish(&journal, id, 1).await;
    assert_eq!(read_to_end(journal.reader_of(&looked_up, 0)).await, bytes(1, 1));
}

pub(crate) async fn old_frames_are_read_from_the_store(backend: &Backend) {
    let store = Gated::new(backend.store.clone(), 1000);
    let journal =
        Journal::new(store.clone(), TailLimits { stream_bytes: 2000, total_bytes: 1 << 20 });
    let id = start(&journal).await;
    let mut reader = journal.reader(id, 0);
    for seq in 1..=50 {
        journal.append(id, 1, frames(seq, seq)).await.unwrap();
        assert_eq!(reader.next().await.unwrap(), Step::Frames(bytes(seq, seq)));
    }
    assert_eq!(store.reads.load(Ordering::SeqCst), 0);
    finish(&journal, id, 51).await;
    assert_eq!(read_to_end(journal.reader(id, 0)).await, bytes(1, 51));
    assert!(store.reads.load(Ordering::SeqCst) > 0);
}

pub(crate) async fn tails_have_a_total_memory_limit(backend: &Backend) {
    let store = Gated::new(backend.store.clone(), 1000);
    let journal =
        Journal::new(store.clone(), TailLimits { stream_bytes: 1 << 20, total_bytes: 3000 });
    let (old, young) = (start(&journal).await, start(&journal).await);
    let (mut of_old, mut of_young) = (journal.reader(old, 0), journal.reader(young, 0));
    journal.append(old, 1, frames(1, 20)).await.unwrap();
    journal.append(young, 1, frames(1, 20)).await.unwrap();
    // Both exceed the limit. The older stream's frames were dropped, and the younger one's are in
    // memory.
    assert_eq!(of_young.next().await.unwrap(), Step::Frames(bytes(1, 20)));
    assert_eq!(store.reads.load(Ordering::SeqCst), 0);
    assert_eq!(of_old.next().await.unwrap(), Step::Frames(bytes(1, 20)));
    assert_eq!(store.reads.load(Ordering::SeqCst), 1);
}

pub(crate) async fn reader_step_is_bounded(backend: &Backend) {
    let big = |seq| capstan_journal::Frame::new(seq, vec![b'x'; 10_000]);
    let journal = backend.journal();
    let id = start(&journal).await;
    journal.append(id, 1, vec![big(1), big(2), big(3)]).await.unwrap();
    journal
        .append(id, 1, vec![capstan_journal::Frame::new(4, vec![b'y'; 100_000]), frame(5)])
        .await
        .unwrap();
    for mut reader in [journal.reader(id, 0), backend.journal().reader(id, 0)] {
        for cursor in [1, 2, 3, 4, 5] {
            assert!(matches!(reader.next().await.unwrap(), Step::Frames(some) if some.len() == 1));
            assert_eq!(reader.cursor(), cursor);
        }
    }
}

pub(crate) async fn reader_of_an_unknown_stream_fails(backend: &Backend) {
    let error = backend.journal().reader(Uuid::now_v7(), 0).next().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

pub(crate) async fn late_reader_replays_a_closed_stream(backend: &Backend) {
    let run = backend.closed("local", 5000, Timestamp::now()).await;
    assert_eq!(read_to_end(backend.journal().reader(run.stream_id, 0)).await, bytes(1, 5000));
    let mut at_end = backend.journal().reader(run.stream_id, 5000);
    assert_eq!(at_end.next().await.unwrap(), Step::State(RunState::Closed));
}

/// While a step is sent, no task polls the reader. It fetches the next step all the same, unless it
/// has read everything.
pub(crate) async fn next_step_is_prefetched(backend: &Backend) {
    for (packets, visits) in [(5000, 2), (5, 1)] {
        let run = backend.closed("local", packets, Timestamp::now()).await;
        let store = Gated::new(backend.store.clone(), 0);
        let mut reader =
            Journal::new(store.clone(), TailLimits::default()).reader(run.stream_id, 0);
        assert!(matches!(reader.next().await.unwrap(), Step::Frames(_)));
        while store.reads.load(Ordering::SeqCst) < visits {
            tokio::task::yield_now().await;
        }
        let after = reader.cursor();
        let rest = read_to_end(reader).await;
        assert_eq!(rest, bytes(after + 1, packets));
    }
}

/// A viewer with a stuck connection is not polled. However many there are, another viewer gets its
/// answer.
pub(crate) async fn unpolled_readers_do_not_block_others(backend: &Backend) {
    let run = backend.closed("local", 50, Timestamp::now()).await;
    let journal = backend.journal();
    let mut stuck: Vec<_> = (0..40).map(|_| journal.reader(run.stream_id, 0)).collect();
    let mut asked: Vec<_> = stuck.iter_mut().map(|reader| Box::pin(reader.next())).collect();
    for reader in &mut asked {
        now(reader.as_mut()).await;
    }
    assert_eq!(read_to_end(journal.reader(run.stream_id, 0)).await, bytes(1, 50));
}

/// Polls a future between reads of the store. After 20 of them it counts as waiting.
async fn soon<T>(
    mut future: std::pin::Pin<&mut impl Future<Output = T>>,
    journal: &Journal,
    stream: Uuid,
) -> Option<T> {
    for _ in 0..20 {
        if let Some(value) = now(future.as_mut()).await {
            return Some(value);
        }
        journal.store().run(stream).await.unwrap();
    }
    None
}

/// Two journals with one store act like two processes without notifications.
pub(crate) async fn state_learned_by_one_reader_wakes_others(backend: &Backend) {
    let [here, there] =
        [(); 2].map(|()| Journal::new(backend.store.clone(), TailLimits::default()));
    let id = start(&here).await;
    here.append(id, 1, frames(1, 3)).await.unwrap();
    let mut asleep = there.reader(id, 0);
    assert_eq!(asleep.next().await.unwrap(), Step::Frames(bytes(1, 3)));
    let mut next = pin!(asleep.next());
    assert!(soon(next.as_mut(), &there, id).await.is_none(), "there is no more");
    finish(&here, id, 4).await;
    let run = there.store().run(id).await.unwrap().unwrap();
    assert_eq!(there.reader_of(&run, 4).next().await.unwrap(), Step::State(RunState::Closed));
    let woken =
        tokio::time::timeout(std::time::Duration::from_secs(30), next).await.expect("it is woken");
    assert_eq!(woken.unwrap(), Step::Frames(bytes(4, 4)));
}
