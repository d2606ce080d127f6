//! Frames and states of runs.

use capstan_journal::{
    Attempt, Claim, ErrorKind, NameKind, Named, Quota, Run, RunState, Transition,
};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::{Backend, claim, frame, frames, moved};

pub(crate) async fn out_of_order_frames_are_refused(backend: &Backend) {
    let id = backend.start("local").await.stream_id;
    let store = &backend.store;
    store.append(id, 1, frames(1, 3)).await.unwrap();
    for wrong in [
        frames(3, 4),
        frames(5, 6),
        vec![frame(4), frame(6)],
        vec![frame(4), frame(4)],
        vec![frame(0)],
    ] {
        assert_eq!(store.append(id, 1, wrong).await.unwrap_err().kind(), ErrorKind::OutOfOrder);
    }
    store.append(id, 1, vec![]).await.unwrap();
    store.append(id, 1, frames(4, 5)).await.unwrap();
    assert_eq!(store.read(id, 0, 100, 1 << 20).await.unwrap(), frames(1, 5));
    let run = store.run(id).await.unwrap().unwrap();
    let bytes: usize = frames(1, 5).iter().map(|frame| frame.bytes.len()).sum();
    assert_eq!((run.last_seq, run.bytes), (5, bytes as u64));
}

pub(crate) async fn append_of_another_attempt_is_fenced(backend: &Backend) {
    let run = backend.start("local").await;
    let (id, store) = (run.stream_id, &backend.store);
    assert_eq!(store.append(id, 2, frames(1, 1)).await.unwrap_err().kind(), ErrorKind::Fenced);
    store.append(id, 1, frames(1, 1)).await.unwrap();
    for (from, to) in [
        ((RunState::Running, 1), (RunState::Waiting, 1)),
        ((RunState::Waiting, 1), (RunState::Running, 2)),
    ] {
        assert!(
            store
                .transition(Transition::new(from, moved(&run, to.0, to.1), vec![], None))
                .await
                .unwrap()
        );
        assert_eq!(store.append(id, 1, frames(2, 2)).await.unwrap_err().kind(), ErrorKind::Fenced);
    }
    store.append(id, 2, frames(2, 2)).await.unwrap();
    assert!(
        store
            .transition(Transition::new(
                (RunState::Running, 2),
                moved(&run, RunState::Closed, 2),
                frames(3, 3),
                None
            ))
            .await
            .unwrap()
    );
    assert_eq!(store.append(id, 2, frames(4, 4)).await.unwrap_err().kind(), ErrorKind::Fenced);
    assert_eq!(store.read(id, 0, 100, 1 << 20).await.unwrap(), frames(1, 3));
}

pub(crate) async fn transition_is_compare_and_set(backend: &Backend) {
    let run = backend.start("local").await;
    let (id, store) = (run.stream_id, &backend.store);
    let closed = moved(&run, RunState::Closed, 1);
    for stale in [(RunState::Waiting, 1), (RunState::Running, 2), (RunState::Closed, 1)] {
        assert!(
            !store
                .transition(Transition::new(stale, closed.clone(), frames(1, 1), None))
                .await
                .unwrap()
        );
    }
    let wrong = store
        .transition(Transition::new((RunState::Running, 1), closed.clone(), frames(2, 2), None))
        .await
        .unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::OutOfOrder);
    assert_eq!(store.run(id).await.unwrap(), Some(run));

    let to = Run { reason: Some("completed".into()), ..closed.clone() };
    assert!(
        store
            .transition(Transition::new((RunState::Running, 1), to, frames(1, 2), None))
            .await
            .unwrap()
    );
    let after = store.run(id).await.unwrap().unwrap();
    assert_eq!(
        (after.state, after.last_seq, after.reason.as_deref()),
        (RunState::Closed, 2, Some("completed"))
    );
    assert_eq!(after.closed_at, Some(closed.updated_at));
    // A closed run never changes.
    assert!(
        !store
            .transition(Transition::new(
                (RunState::Closed, 1),
                moved(&after, RunState::Running, 2),
                vec![],
                None
            ))
            .await
            .unwrap()
    );
}

pub(crate) async fn concurrent_transitions_have_one_winner(backend: &Backend) {
    let run = backend.start("local").await;
    let waiting = moved(&run, RunState::Waiting, 1);
    assert!(backend.step((RunState::Running, 1), waiting, vec![], None).await.unwrap());
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let (store, to) = (backend.store.clone(), moved(&run, RunState::Running, 2));
            tokio::spawn(async move {
                store
                    .transition(Transition::new((RunState::Waiting, 1), to, vec![], None))
                    .await
                    .unwrap()
            })
        })
        .collect();
    let mut winners = 0;
    for task in tasks {
        winners += usize::from(task.await.unwrap());
    }
    assert_eq!(winners, 1);
}

pub(crate) async fn transition_keeps_fields_of_the_claim(backend: &Backend) {
    let run = backend.start("local").await;
    let mut to = moved(&run, RunState::Waiting, 1);
    to.tenant = "other".into();
    to.key = "other".into();
    to.body_hash = [9; 32];
    to.last_seq = 99;
    to.not_before = Some(Timestamp::now());
    to.fault = Some("upstream_error".into());
    assert!(backend.step((RunState::Running, 1), to.clone(), vec![], None).await.unwrap());
    let expected = Run {
        state: RunState::Waiting,
        not_before: to.not_before,
        updated_at: to.updated_at,
        fault: to.fault,
        ..run.clone()
    };
    assert_eq!(backend.store.run(run.stream_id).await.unwrap(), Some(expected));
}

pub(crate) async fn lost_tail_is_marked_by_a_gap(backend: &Backend) {
    let run = backend.start("local").await;
    let (id, store, gap) = (run.stream_id, &backend.store, 1 << 20);
    store.append(id, 1, frames(1, 2)).await.unwrap();
    assert_eq!(
        store.append(id, 1, frames(2 + gap, 2 + gap)).await.unwrap_err().kind(),
        ErrorKind::OutOfOrder
    );
    let end = frames(2 + gap, 3 + gap);
    assert!(
        store
            .transition(Transition::new(
                (RunState::Running, 1),
                moved(&run, RunState::Closed, 1),
                end.clone(),
                None
            ))
            .await
            .unwrap()
    );
    assert_eq!(store.read(id, 2, 10, 1 << 20).await.unwrap(), end);
    assert_eq!(store.run(id).await.unwrap().unwrap().last_seq, 3 + gap);
}

pub(crate) async fn read_honours_cursor_and_limits(backend: &Backend) {
    let (id, other) =
        (backend.start("local").await.stream_id, backend.start("local").await.stream_id);
    let store = &backend.store;
    store.append(id, 1, frames(1, 1000)).await.unwrap();
    store.append(other, 1, frames(1, 3)).await.unwrap();
    assert_eq!(store.read(id, 0, 7, usize::MAX).await.unwrap(), frames(1, 7));
    assert_eq!(store.read(id, 993, 100, usize::MAX).await.unwrap(), frames(994, 1000));
    assert_eq!(store.read(id, 500, 0, 0).await.unwrap(), frames(501, 501));
    for nothing in [1000, 1001, u64::MAX] {
        assert_eq!(store.read(id, nothing, 10, 10).await.unwrap(), vec![]);
    }
    let some = store.read(id, 0, usize::MAX, 1000).await.unwrap();
    let size: usize = some.iter().map(|frame| frame.bytes.len()).sum();
    assert!(size <= 1000 && size + frame(some.len() as u64 + 1).bytes.len() > 1000);
    let mut all = Vec::new();
    loop {
        let cursor = all.len() as u64;
        let page = store.read(id, cursor, 64, 4096).await.unwrap();
        if page.is_empty() {
            break;
        }
        all.extend(page);
    }
    assert_eq!(all, frames(1, 1000));
}

pub(crate) async fn list_is_newest_first_and_by_tenant(backend: &Backend) {
    let mut own = Vec::new();
    for _ in 0..25 {
        own.push(backend.start("a").await.stream_id);
        backend.start("b").await;
    }
    own.sort();
    own.reverse();
    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let page = backend.store.list("a", before, 10).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(last.stream_id);
        pages.push(page.len());
        assert!(page.iter().all(|run| run.tenant == "a"));
        assert_eq!(page[0].stream_id, own[pages[..pages.len() - 1].iter().sum::<usize>()]);
    }
    assert_eq!(pages, [10, 10, 5]);
    assert_eq!(backend.store.list("c", None, 10).await.unwrap(), vec![]);
}

pub(crate) async fn open_runs_are_running_or_waiting(backend: &Backend) {
    let (running, waiting) = (backend.start("a").await, backend.start("b").await);
    backend.closed("a", 2, Timestamp::now()).await;
    backend.store.append(running.stream_id, 1, frames(1, 9)).await.unwrap();
    let to = moved(&waiting, RunState::Waiting, 1);
    assert!(backend.step((RunState::Running, 1), to, frames(1, 1), None).await.unwrap());
    let mut open = backend.store.open_runs().await.unwrap();
    open.sort_by_key(|run| run.stream_id);
    let found: Vec<_> = open.iter().map(|run| (run.stream_id, run.state, run.last_seq)).collect();
    assert_eq!(
        found,
        [(running.stream_id, RunState::Running, 9), (waiting.stream_id, RunState::Waiting, 1)]
    );
}

pub(crate) async fn orphans_are_running_and_waiting_runs_are_old(backend: &Backend) {
    let (running, waiting) = (backend.start("a").await, backend.start("b").await);
    backend.closed("a", 2, Timestamp::now()).await;
    let at = |seconds: i64| Timestamp::from_micros(1_800_000_000_000_000 + seconds * 1_000_000);
    let to = Run { updated_at: at(0), ..moved(&waiting, RunState::Waiting, 1) };
    assert!(backend.step((RunState::Running, 1), to, frames(1, 1), None).await.unwrap());
    let ids = |runs: Vec<Run>| runs.into_iter().map(|run| run.stream_id).collect::<Vec<_>>();
    let store = backend.successor().await;
    assert_eq!(ids(store.orphans(0).await.unwrap()), Vec::<Uuid>::new());
    assert_eq!(ids(store.orphans(9).await.unwrap()), [running.stream_id]);
    assert_eq!(ids(store.waiting(at(1), 9).await.unwrap()), [waiting.stream_id]);
    assert_eq!(ids(store.waiting(at(0), 9).await.unwrap()), Vec::<Uuid>::new());
}

pub(crate) async fn runs_are_found_by_every_name(backend: &Backend) {
    let store = &backend.store;
    let mut first = claim("t", "k");
    (first.session, first.chat, first.request_id) =
        ("s".into(), Some("c".into()), Some("r".into()));
    first.body_hash = [7; 32];
    let run = store.claim(first, &Quota::UNLIMITED).await.unwrap().run;
    let second = Claim { session: "s".into(), ..claim("t", "k2") };
    let second = store.claim(second, &Quota::UNLIMITED).await.unwrap().run;
    let mut armed = moved(&run, RunState::Waiting, 1);
    armed
        .attempts
        .push(Attempt { request_id: Some("r2".into()), ..Attempt::new(1, run.created_at) });
    assert!(
        store
            .transition(Transition::new((RunState::Running, 1), armed, vec![], None))
            .await
            .unwrap()
    );
    let hash = run.body_hash_text();
    for (kind, name, found) in [
        (NameKind::Key, "k", vec![run.stream_id]),
        (NameKind::Session, "s", vec![second.stream_id, run.stream_id]),
        (NameKind::RequestId, "r", vec![run.stream_id]),
        (NameKind::RequestId, "r2", vec![run.stream_id]),
        (NameKind::Chat, "c", vec![run.stream_id]),
        (NameKind::BodyHash, &hash, vec![run.stream_id]),
        (NameKind::Chat, "s", vec![]),
    ] {
        let named = store.named(Named::all("t", kind, name)).await.unwrap();
        assert_eq!(
            named.iter().map(|run| run.stream_id).collect::<Vec<_>>(),
            found,
            "{kind:?} {name}"
        );
        assert_eq!(store.named(Named::all("other", kind, name)).await.unwrap(), []);
    }
    let older = store
        .named(Named { before: Some(second.stream_id), ..Named::all("t", NameKind::Session, "s") })
        .await
        .unwrap();
    assert_eq!(older.len(), 1);
    let to = moved(&second, RunState::Closed, 1);
    assert!(
        store.transition(Transition::new((RunState::Running, 1), to, vec![], None)).await.unwrap()
    );
    assert!(store.purge(second.stream_id, Timestamp::now()).await.unwrap());
    assert_eq!(store.named(Named::all("t", NameKind::Session, "s")).await.unwrap().len(), 1);
}

pub(crate) async fn unknown_record_fields_survive(backend: &Backend) {
    let run = backend.start("t").await;
    let mut to = moved(&run, RunState::Waiting, 1);
    to.more.insert("mood".into(), "good".into());
    to.attempts = (1..=40).map(|n| Attempt::new(n, run.created_at)).collect();
    assert!(backend.step((RunState::Running, 1), to, vec![], None).await.unwrap());
    let to = moved(&run, RunState::Running, 2);
    assert!(to.more.is_empty());
    assert!(backend.step((RunState::Waiting, 1), to, vec![], None).await.unwrap());
    let found = backend.store.run(run.stream_id).await.unwrap().unwrap();
    assert_eq!(found.more.get("mood"), Some(&"good".into()));
    let to = Run { attempts: (1..=40).map(|n| Attempt::new(n, run.created_at)).collect(), ..found };
    let to = moved(&to, RunState::Waiting, 2);
    assert!(backend.step((RunState::Running, 2), to, vec![], None).await.unwrap());
    let kept = backend.store.run(run.stream_id).await.unwrap().unwrap().attempts;
    let numbers: Vec<_> = kept.iter().map(|attempt| attempt.n).collect();
    assert_eq!((numbers.len(), numbers[0], numbers[1], numbers[31]), (Attempt::KEPT, 1, 10, 40));
}

pub(crate) async fn unknown_streams_are_not_found(backend: &Backend) {
    let (store, id) = (&backend.store, Uuid::now_v7());
    assert_eq!(store.run(id).await.unwrap(), None);
    assert_eq!(store.body(id).await.unwrap(), None);
    assert_eq!(store.find("local", "k").await.unwrap(), None);
    assert_eq!(store.read(id, 0, 10, 10).await.unwrap(), vec![]);
    assert_eq!(store.append(id, 1, frames(1, 1)).await.unwrap_err().kind(), ErrorKind::NotFound);
    let to = claim("local", "k").to_run();
    let error = store
        .transition(Transition::new((RunState::Running, 1), to, vec![], None))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

pub(crate) async fn closed_store_refuses_writes(backend: &Backend) {
    let id = backend.start("local").await.stream_id;
    backend.store.append(id, 1, frames(1, 2)).await.unwrap();
    backend.store.close().await.unwrap();
    assert_eq!(
        backend.store.append(id, 1, frames(3, 3)).await.unwrap_err().kind(),
        ErrorKind::Unavailable
    );
    let error = backend.store.claim(claim("local", "k"), &Quota::UNLIMITED).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(backend.store.read(id, 0, 10, 1000).await.unwrap(), frames(1, 2));
}

pub(crate) async fn sent_answer_is_recorded_once_its_run_has_ended(backend: &Backend) {
    let run = backend.start("local").await;
    let (id, store) = (run.stream_id, &backend.store);
    let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
    assert!(!store.mark_sent(Uuid::now_v7(), at(1)).await.unwrap(), "no such run");
    assert!(!store.mark_sent(id, at(1)).await.unwrap(), "it has not ended");
    let end = moved(&run, RunState::Closed, 1);
    let step = Transition::new((RunState::Running, 1), end, frames(1, 2), None);
    assert!(store.transition(step).await.unwrap());
    let closed = store.run(id).await.unwrap().unwrap();
    assert_eq!(closed.sent_at, None);
    for seconds in [5, 9] {
        assert!(store.mark_sent(id, at(seconds)).await.unwrap());
        let marked = store.run(id).await.unwrap().unwrap();
        assert_eq!(marked, Run { sent_at: Some(at(seconds)), ..closed.clone() });
    }
    let listed = store.list("local", None, 10).await.unwrap();
    assert_eq!(listed[0].sent_at, Some(at(9)));
    assert_eq!(store.read(id, 0, 100, 1 << 20).await.unwrap(), frames(1, 2));
    assert!(store.purge(id, at(10)).await.unwrap());
    assert!(!store.mark_sent(id, at(11)).await.unwrap(), "it is erased");
    assert_eq!(store.run(id).await.unwrap(), None);
}
