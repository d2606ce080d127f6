//! Token quotas per minute and per day. Tokens count when an attempt ends, and a refusal states the
//! wait.

use std::time::Duration;

use capstan_journal::{
    Claim, ErrorKind, JournalError, Over, Quota, Refused, Run, RunState, Transition,
};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::{Backend, claim, frames, moved};

const SECOND: i64 = 1_000_000;

/// A time in microseconds after midnight.
fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(20_700 * 86_400 * SECOND + micros)
}

fn refusal(error: &JournalError) -> (Over, Duration) {
    let ErrorKind::Refused(Refused { over, wait }) = error.kind() else {
        panic!("not refused, but {error:?}")
    };
    (over, wait.unwrap())
}

fn new_claim(tenant: &str, now: Timestamp) -> Claim {
    Claim { created_at: now, ..claim(tenant, &Uuid::new_v4().to_string()) }
}

/// Claims a run at a time, with a quota.
async fn start(
    backend: &Backend,
    tenant: &str,
    now: Timestamp,
    quota: Quota,
) -> Result<Run, JournalError> {
    Ok(backend.store.claim(new_claim(tenant, now), &quota).await?.run)
}

/// Changes a run's state. All of its attempts together have used this many tokens.
async fn moves(
    backend: &Backend,
    run: &Run,
    to: (RunState, u32),
    tokens: u64,
    now: Timestamp,
) -> Run {
    let from = (run.state, run.attempt);
    let to = Run { tokens, updated_at: now, ..moved(run, to.0, to.1) };
    assert!(backend.step(from, to, vec![], None).await.unwrap());
    backend.store.run(run.stream_id).await.unwrap().unwrap()
}

async fn spend(backend: &Backend, tenant: &str, tokens: u64, now: Timestamp) {
    let run = start(backend, tenant, now, Quota::UNLIMITED).await.unwrap();
    moves(backend, &run, (RunState::Closed, 1), tokens, now).await;
}

pub(crate) async fn tokens_are_counted_when_an_attempt_ends(backend: &Backend) {
    let now = at(10 * SECOND);
    let used =
        async |tenant| backend.store.usage(tenant, "session").await.unwrap().tokens.used(now);
    let run = start(backend, "t", now, Quota::UNLIMITED).await.unwrap();
    assert_eq!(used("t").await, (0, 0));
    let run = moves(backend, &run, (RunState::Running, 2), 30, now).await;
    assert_eq!((used("t").await, run.tokens), ((30, 30), 30));
    // Suspending counts the attempt's tokens, and arming counts none.
    let to = Run { tokens: 70, updated_at: now, ..moved(&run, RunState::Waiting, 2) };
    let quota = Quota { waiting: Some(1), ..Quota::UNLIMITED };
    assert!(
        backend
            .store
            .transition(Transition {
                quota,
                ..Transition::new((RunState::Running, 2), to.clone(), frames(1, 1), None)
            })
            .await
            .unwrap()
    );
    assert_eq!(used("t").await, (70, 70));
    // A transition that is too late counts nothing.
    assert!(!backend.step((RunState::Running, 2), to, vec![], None).await.unwrap());
    let run = backend.store.run(run.stream_id).await.unwrap().unwrap();
    let run = moves(backend, &run, (RunState::Running, 3), 70, now).await;
    assert_eq!(used("t").await, (70, 70));
    // Used tokens never decrease, even if the caller forgets them.
    let run = moves(backend, &run, (RunState::Closed, 3), 0, now).await;
    assert_eq!((used("t").await, run.tokens), ((70, 70), 70));
    assert_eq!(used("other").await, (0, 0));
    // A purge gives no tokens back.
    assert!(backend.store.purge(run.stream_id, now).await.unwrap());
    assert!(backend.store.purge_session("t", "session").await.unwrap());
    assert_eq!(used("t").await, (70, 70));
    spend(backend, "t", 5, at(61 * SECOND)).await;
    let used = backend.store.usage("t", "session").await.unwrap().tokens.used(at(61 * SECOND));
    assert_eq!(used, (5, 75));
}

pub(crate) async fn token_refusal_states_the_exact_wait(backend: &Backend) {
    let now = at(17 * SECOND + 250_001);
    for (tenant, over, length) in [
        ("by minute", Over::TokensPerMinute, 60 * SECOND),
        ("by day", Over::TokensPerDay, 86_400 * SECOND),
    ] {
        let most = |of: Over| (of == over).then_some(100);
        let quota = Quota {
            tokens_per_minute: most(Over::TokensPerMinute),
            tokens_per_day: most(Over::TokensPerDay),
            ..Quota::UNLIMITED
        };
        spend(backend, tenant, 99, now).await;
        let under_way = start(backend, tenant, now, quota).await.unwrap();
        spend(backend, tenant, 1, now).await;
        let (what, wait) = refusal(&start(backend, tenant, now, quota).await.unwrap_err());
        assert_eq!(
            (what, wait),
            (over, Duration::from_micros((length - 17_250_001).unsigned_abs()))
        );
        // Existing runs continue: a duplicate finds its run, and the next attempt is armed.
        let again = Claim { created_at: now, ..claim(tenant, &under_way.key) };
        assert!(!backend.store.claim(again, &quota).await.unwrap().is_new);
        let waits = moves(backend, &under_way, (RunState::Waiting, 1), 50, now).await;
        let goes_on = moves(backend, &waits, (RunState::Running, 2), 50, now).await;
        assert_eq!(goes_on.state, RunState::Running);
        // A microsecond before its end the refusal still holds, and then it does not.
        let over_at = now.as_micros() + i64::try_from(wait.as_micros()).unwrap();
        let before = Timestamp::from_micros(over_at - 1);
        let (_, rest) = refusal(&start(backend, tenant, before, quota).await.unwrap_err());
        assert_eq!(rest, Duration::from_micros(1));
        start(backend, tenant, Timestamp::from_micros(over_at), quota).await.unwrap();
        // Other tenants have their own quota.
        start(backend, "another", now, quota).await.unwrap();
    }
}

pub(crate) async fn longer_token_wait_is_reported(backend: &Backend) {
    let quota = Quota { tokens_per_minute: Some(10), tokens_per_day: Some(15), ..Quota::UNLIMITED };
    spend(backend, "t", 10, at(0)).await;
    let (over, wait) = refusal(&start(backend, "t", at(SECOND), quota).await.unwrap_err());
    assert_eq!((over, wait), (Over::TokensPerMinute, Duration::from_secs(59)));
    spend(backend, "t", 10, at(60 * SECOND)).await;
    let (over, wait) = refusal(&start(backend, "t", at(61 * SECOND), quota).await.unwrap_err());
    assert_eq!((over, wait), (Over::TokensPerDay, Duration::from_secs(86_400 - 61)));
    // A wrong clock locks no tenant out.
    spend(backend, "t", 99, at(400 * 86_400 * SECOND)).await;
    start(backend, "t", at(70 * SECOND), quota).await.unwrap();
    // A refusal for tokens does not count against the rate.
    let quota = Quota { per_minute: std::num::NonZeroU32::new(1), ..quota };
    spend(backend, "u", 99, at(0)).await;
    refusal(&start(backend, "u", at(0), quota).await.unwrap_err());
    start(backend, "u", at(86_400 * SECOND), quota).await.unwrap();
}

pub(crate) async fn concurrent_ends_are_all_counted(backend: &Backend) {
    let now = at(5 * SECOND);
    let mut tasks = Vec::new();
    for _ in 0..50 {
        let run = start(backend, "t", now, Quota::UNLIMITED).await.unwrap();
        let store = backend.store.clone();
        let to = Run { tokens: 3, updated_at: now, ..moved(&run, RunState::Closed, 1) };
        tasks.push(tokio::spawn(async move {
            store
                .transition(Transition::new((RunState::Running, 1), to, frames(1, 1), None))
                .await
                .unwrap()
        }));
    }
    for task in tasks {
        assert!(task.await.unwrap());
    }
    let used = backend.store.usage("t", "session").await.unwrap().tokens.used(now);
    assert_eq!(used, (150, 150));
    let next = backend.successor().await.usage("t", "session").await.unwrap().tokens.used(now);
    assert_eq!(next, (150, 150), "the next process knows");
}
