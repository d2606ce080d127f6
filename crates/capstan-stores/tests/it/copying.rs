//! Copies of a journal: complete, in both directions, and repeated.

use std::sync::Arc;

use crate::postgres_server::Database;
use bytes::Bytes;
use capstan_journal::{
    Claim, Copied, ErrorKind, Found, Frame, NameKind, Named, Quota, Replica, Run, RunState, Store,
    StoredTurn, Transition, TurnRange, copy,
};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, open};
use serde_json::json;
use uuid::Uuid;

fn disk(folder: &tempfile::TempDir) -> Arc<dyn Store> {
    open(&format!("disk:{}", folder.path().join("journal").display()), Durability::Process).unwrap()
}

fn frames(first: u64, last: u64) -> Vec<Frame> {
    (first..=last)
        .map(|seq| Frame::new(seq, format!("id: {seq}\ndata: {}\n\n", "ä".repeat(seq as usize))))
        .collect()
}

async fn claimed(store: &dyn Store, tenant: &str, key: &str) -> Run {
    let mut claim = Claim::new(tenant, key, Uuid::now_v7(), Timestamp::now());
    claim.session = format!("session of {tenant}");
    claim.body = Bytes::from(format!("{{\"key\":\"{key}\"}}"));
    claim.request_id = Some(format!("request-{key}"));
    store.claim(claim, &Quota::UNLIMITED).await.unwrap().run
}

async fn ended(store: &dyn Store, run: &Run, state: RunState, said: bool) {
    let now = Timestamp::now();
    let closed_at = (state == RunState::Closed).then_some(now);
    let to =
        Run { state, updated_at: now, closed_at, reason: Some("completed".into()), ..run.clone() };
    let turn = said.then(|| StoredTurn::new(run.stream_id, now, 2, json!({"messages": [run.key]})));
    assert!(
        store
            .transition(Transition::new((RunState::Running, 1), to, frames(300, 301), turn))
            .await
            .unwrap()
    );
}

/// Creates closed, waiting and running runs of two tenants, with turns.
async fn fill(store: &dyn Store) -> Vec<Run> {
    let mut runs = Vec::new();
    for n in 0..12 {
        let run = claimed(store, ["a", "b"][n % 2], &format!("k{n}")).await;
        store.append(run.stream_id, 1, frames(1, 299)).await.unwrap();
        match n {
            10 => ended(store, &run, RunState::Waiting, false).await,
            11 => {}
            _ => ended(store, &run, RunState::Closed, n % 3 > 0).await,
        }
        runs.push(run);
    }
    runs
}

async fn quietly(
    from: &dyn Store,
    to: &dyn Store,
) -> Result<Copied, capstan_journal::JournalError> {
    copy(from, to, |_| {}).await
}

/// Checks that both stores answer all queries alike.
async fn assert_alike(a: &dyn Store, b: &dyn Store, runs: &[Run]) {
    for Run { tenant, key, stream_id, session, .. } in runs {
        let all = async |store: &dyn Store| {
            (
                store.run(*stream_id).await.unwrap().map(|run| Run { owner: None, ..run }),
                store.read(*stream_id, 0, 9999, usize::MAX).await.unwrap(),
                store.body(*stream_id).await.unwrap(),
                store.turns(TurnRange::all(tenant, session)).await.unwrap(),
                store.turn_count(tenant, session).await.unwrap(),
            )
        };
        assert_eq!(all(a).await, all(b).await);
        for store in [a, b] {
            assert!(matches!(store.find(tenant, key).await.unwrap(),
                Some(Found::Run(run)) if run.stream_id == *stream_id));
            let id = format!("request-{key}");
            let named = store.named(Named::all(tenant, NameKind::RequestId, &id)).await.unwrap();
            assert_eq!(named.iter().map(|run| run.stream_id).collect::<Vec<_>>(), [*stream_id]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn journal_copies_to_postgres_and_back() {
    let database = Database::create();
    let folder = tempfile::tempdir().unwrap();
    let source = disk(&folder);
    let runs = fill(&*source).await;
    // As after an interrupted copy: some runs exist already.
    let postgres = database.store(Durability::Process, Replica::default()).await;
    let copied = quietly(&*source, &*postgres).await.unwrap();
    assert_eq!(
        (copied.runs, copied.known, copied.sessions, copied.turns),
        (12, 0, 2, 6),
        "{copied}"
    );
    assert_eq!(copied.packets, 10 * 301 + 301 + 299);
    assert_alike(&*source, &*postgres, &runs).await;
    database.sql(
        "delete from capstan.blocks where stream in (select stream from capstan.runs \
     where key in ('k3', 'k4'))",
    );
    database.sql(
        "delete from capstan.claims where key in ('k3', 'k4'); delete from capstan.runs \
     where key in ('k3', 'k4')",
    );
    let again = quietly(&*source, &*postgres).await.unwrap();
    assert_eq!((again.runs, again.known, again.different.len()), (12, 10, 0), "{again}");
    assert_alike(&*source, &*postgres, &runs).await;

    // In the copy running runs are orphans. Waiting runs continue, and their turn is the session's
    // next one.
    let orphans = postgres.orphans(9).await.unwrap();
    assert_eq!(orphans.iter().map(|run| run.stream_id).collect::<Vec<_>>(), [runs[11].stream_id]);
    assert!(postgres.is_tail_certain(runs[11].stream_id).await.unwrap());
    ended(&*postgres, &orphans[0], RunState::Closed, true).await;
    let turns = postgres.turns(TurnRange::all("b", "session of b")).await.unwrap();
    let numbers: Vec<_> = turns.iter().map(|turn| turn.number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());

    // The source has changed, and nothing is overwritten.
    let third = quietly(&*source, &*postgres).await.unwrap();
    assert_eq!((third.runs, &third.different[..]), (11, &[runs[11].stream_id][..]));

    let other = tempfile::tempdir().unwrap();
    let back = disk(&other);
    assert_eq!(quietly(&*postgres, &*back).await.unwrap().runs, 12);
    assert_alike(&*postgres, &*back, &runs).await;
    back.close().await.unwrap();
    drop(back);
    let back = disk(&other);
    assert_alike(&*postgres, &*back, &runs).await;
    assert_eq!(quietly(&*postgres, &*back).await.unwrap().known, 12);
    let next = claimed(&*back, "b", "next").await;
    assert_eq!(next.turns_before, numbers.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn journal_in_use_is_not_copied() {
    let database = Database::create();
    let user = database.store(Durability::Process, Replica::default()).await;
    let from = database.store(Durability::Process, Replica::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let to = disk(&folder);
    assert_eq!(quietly(&*from, &*to).await.unwrap_err().kind(), ErrorKind::Unavailable);
    user.close().await.unwrap();
    assert_eq!(quietly(&*from, &*to).await.unwrap().runs, 0);
}
