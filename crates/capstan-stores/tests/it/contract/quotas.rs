//! Quotas hold for concurrent claims, and a refusal leaves nothing behind.

use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;
use capstan_journal::{
    Claim, Claimed, ErrorKind, Frame, JournalError, Over, Quota, Refused, Run, RunState,
    StoredTurn, Transition,
};
use capstan_protocol::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::{Backend, claim, frames, moved};

const RUSH: usize = 60;

/// A transition of a running run to waiting, with a quota.
fn to_wait(to: Run, frames: Vec<Frame>, quota: Quota) -> Transition {
    Transition { quota, ..Transition::new((RunState::Running, 1), to, frames, None) }
}

fn new_claim(tenant: &str, session: &str) -> Claim {
    Claim { session: session.into(), ..claim(tenant, &Uuid::new_v4().to_string()) }
}

fn over(error: &JournalError) -> Refused {
    let ErrorKind::Refused(refused) = error.kind() else { panic!("not refused, but {error:?}") };
    refused
}

/// Concurrent claims. Returns the runs, and the refusals.
async fn rush(
    backend: &Backend,
    quota: Quota,
    claim: impl Fn(usize) -> Claim,
) -> (Vec<Run>, Vec<Refused>) {
    let race = |n| {
        let (store, claim) = (backend.store.clone(), claim(n));
        tokio::spawn(async move { store.claim(claim, &quota).await })
    };
    let (mut won, mut lost) = (Vec::new(), Vec::new());
    for task in (0..RUSH).map(race).collect::<Vec<_>>() {
        match task.await.unwrap() {
            Ok(Claimed { run, is_new }) => {
                assert!(is_new);
                won.push(run);
            }
            Err(error) => lost.push(over(&error)),
        }
    }
    (won, lost)
}

async fn close(backend: &Backend, run: &Run, text: &str) {
    let turn = StoredTurn::new(run.stream_id, Timestamp::now(), 2, json!({ "text": text }));
    let from = (run.state, run.attempt);
    let to = moved(run, RunState::Closed, run.attempt);
    assert!(backend.step(from, to, frames(1, 1), Some(turn)).await.unwrap());
}

pub(crate) async fn running_quota_holds_for_concurrent_claims(backend: &Backend) {
    let quota = Quota { running: Some(7), ..Quota::UNLIMITED };
    let (won, lost) = rush(backend, quota, |n| new_claim("t", &n.to_string())).await;
    assert_eq!(won.len(), 7);
    assert!(lost.iter().all(|refused| *refused == Refused { over: Over::Running, wait: None }));
    let usage = backend.store.usage("t", "0").await.unwrap();
    assert_eq!(
        (usage.running, usage.waiting, usage.sessions),
        (7, 0, 7),
        "a refusal leaves no session"
    );
    assert!(
        backend.store.claim(new_claim("other", "s"), &quota).await.unwrap().is_new,
        "others have their own"
    );
    // A duplicate is never refused.
    let again = Claim { session: won[0].session.clone(), ..claim("t", &won[0].key) };
    assert!(!backend.store.claim(again, &quota).await.unwrap().is_new);
    // One run ends and one waits, so two more may start. Arming the waiting one needs no quota.
    close(backend, &won[0], "").await;
    let to = moved(&won[1], RunState::Waiting, 1);
    assert!(backend.step((RunState::Running, 1), to, vec![], None).await.unwrap());
    let (next, _) = rush(backend, quota, |n| new_claim("t", &n.to_string())).await;
    assert_eq!(next.len(), 2);
    let to = moved(&won[1], RunState::Running, 2);
    assert!(backend.step((RunState::Waiting, 1), to, vec![], None).await.unwrap());
    assert_eq!(backend.store.usage("t", "0").await.unwrap().running, 8);
}

pub(crate) async fn rate_quota_holds_for_concurrent_claims(backend: &Backend) {
    let quota = Quota { per_minute: NonZeroU32::new(4), ..Quota::UNLIMITED };
    let (won, lost) = rush(backend, quota, |_| new_claim("t", "s")).await;
    assert_eq!(won.len(), 4, "a minute's worth at once");
    for refused in lost {
        let wait = refused.wait.unwrap();
        assert!(
            refused.over == Over::Rate && !wait.is_zero() && wait <= Duration::from_secs(15),
            "{wait:?}"
        );
    }
    assert!(backend.store.claim(new_claim("other", "s"), &quota).await.is_ok());
    // A refusal for another reason does not count against the rate.
    let quota = Quota { running: Some(0), ..quota };
    let (_, lost) = rush(backend, quota, |_| new_claim("third", "s")).await;
    assert!(lost.iter().all(|refused| refused.over == Over::Running));
    let quota = Quota { running: None, ..quota };
    assert_eq!(rush(backend, quota, |_| new_claim("third", "s")).await.0.len(), 4);
}

pub(crate) async fn session_quota_holds_for_concurrent_claims(backend: &Backend) {
    let quota = Quota { sessions: Some(3), ..Quota::UNLIMITED };
    let (won, lost) = rush(backend, quota, |n| new_claim("t", &n.to_string())).await;
    assert_eq!((won.len(), backend.store.sessions("t").await.unwrap()), (3, 3));
    assert!(lost.iter().all(|refused| refused.over == Over::Sessions));
    let known = won[0].session.clone();
    assert_eq!(
        rush(backend, quota, |_| new_claim("t", &known)).await.0.len(),
        RUSH,
        "known ones go on"
    );
    assert!(backend.store.purge_session("t", &won[1].session).await.unwrap());
    assert_eq!(rush(backend, quota, |n| new_claim("t", &format!("new {n}"))).await.0.len(), 1);
}

pub(crate) async fn open_runs_count_as_messages_of_their_session(backend: &Backend) {
    let quota = Quota { messages_per_session: Some(5), ..Quota::UNLIMITED };
    close(backend, &backend.store.claim(new_claim("t", "s"), &quota).await.unwrap().run, "one")
        .await;
    let (won, lost) = rush(backend, quota, |_| new_claim("t", "s")).await;
    assert_eq!(won.len(), 4);
    assert!(lost.iter().all(|refused| refused.over == Over::Messages));
    for (run, state) in won.iter().zip([RunState::Waiting, RunState::Closed, RunState::Closed]) {
        match state {
            RunState::Closed => close(backend, run, "more").await,
            RunState::Running | RunState::Waiting => {
                let to = moved(run, state, 1);
                assert!(backend.step((RunState::Running, 1), to, vec![], None).await.unwrap());
            }
        }
        assert_eq!(backend.store.usage("t", "s").await.unwrap().messages, 5);
        let refused = backend.store.claim(new_claim("t", "s"), &quota).await.unwrap_err();
        assert_eq!(over(&refused).over, Over::Messages);
    }
    assert!(backend.store.claim(new_claim("t", "another"), &quota).await.unwrap().is_new);
    // A purged turn does not count.
    assert!(backend.store.purge(won[1].stream_id, Timestamp::now()).await.unwrap());
    assert_eq!(rush(backend, quota, |_| new_claim("t", "s")).await.0.len(), 1);
}

pub(crate) async fn byte_quotas_hold_for_concurrent_claims(backend: &Backend) {
    let body = Bytes::from(vec![b' '; 1000]);
    let with_body =
        |tenant: &str, session: &str| Claim { body: body.clone(), ..new_claim(tenant, session) };
    let quota = Quota { bytes_per_session: Some(10_500), ..Quota::UNLIMITED };
    let (won, lost) = rush(backend, quota, |_| with_body("t", "s")).await;
    assert_eq!(won.len(), 10);
    assert!(lost.iter().all(|refused| refused.over == Over::SessionBytes));
    // After its end the turn counts instead of the body.
    close(backend, &won[0], "").await;
    assert_eq!(rush(backend, quota, |_| with_body("t", "s")).await.0.len(), 1);
    close(backend, &won[1], &"x".repeat(9000)).await;
    assert_eq!(rush(backend, quota, |_| with_body("t", "s")).await.0.len(), 0);
    let used = backend.store.usage("t", "s").await.unwrap().session_bytes;
    assert!((18_000..19_000).contains(&used), "{used}");

    let quota = Quota { bytes: Some(5_500), ..Quota::UNLIMITED };
    let (won, lost) = rush(backend, quota, |n| with_body("u", &n.to_string())).await;
    assert_eq!(won.len(), 5);
    assert!(lost.iter().all(|refused| refused.over == Over::Bytes));
    // An ended stream and its turn count until they are deleted.
    close(backend, &won[0], &"x".repeat(2000)).await;
    let before = backend.store.usage("u", "0").await.unwrap().bytes;
    assert!((7_000..7_500).contains(&before), "{before}");
    assert!(backend.store.purge(won[0].stream_id, Timestamp::now()).await.unwrap());
    let after = backend.store.usage("u", "0").await.unwrap().bytes;
    assert!((4_000..4_200).contains(&after), "{after}");
    assert_eq!(rush(backend, quota, |n| with_body("u", &n.to_string())).await.0.len(), 1);
}

pub(crate) async fn waiting_quota_holds_for_concurrent_transitions(backend: &Backend) {
    let quota = Quota { waiting: Some(3), ..Quota::UNLIMITED };
    let (runs, _) = rush(backend, quota, |_| new_claim("t", "s")).await;
    let race = |run: &Run| {
        let (store, to) = (backend.store.clone(), moved(run, RunState::Waiting, 1));
        tokio::spawn(async move { store.transition(to_wait(to, frames(1, 1), quota)).await })
    };
    let (mut waits, mut refused) = (0, 0);
    for task in runs.iter().map(race).collect::<Vec<_>>() {
        match task.await.unwrap() {
            Ok(is_done) => waits += usize::from(is_done),
            Err(error) => {
                assert_eq!(over(&error), Refused { over: Over::Waiting, wait: None });
                refused += 1;
            }
        }
    }
    assert_eq!((waits, refused), (3, RUSH - 3));
    let waiting = backend.store.waiting(Timestamp::from_micros(i64::MAX), 99).await.unwrap();
    assert_eq!((waiting.len(), backend.store.usage("t", "s").await.unwrap().waiting), (3, 3));
    let refused =
        runs.iter().find(|run| waiting.iter().all(|w| w.stream_id != run.stream_id)).unwrap();
    let now = backend.store.run(refused.stream_id).await.unwrap().unwrap();
    assert_eq!((now.state, now.last_seq), (RunState::Running, 0), "it is as it was");
    // An armed run does not count as waiting. Waiting runs never refuse a new one.
    let to = moved(&waiting[0], RunState::Running, 2);
    assert!(backend.step((RunState::Waiting, 1), to, vec![], None).await.unwrap());
    let suspend = |run: &Run| {
        let to = moved(run, RunState::Waiting, 1);
        backend.store.transition(to_wait(to, vec![], quota))
    };
    assert!(suspend(refused).await.unwrap());
    assert!(!suspend(refused).await.unwrap(), "a lost race is reported before a used-up quota");
    assert!(backend.store.claim(new_claim("t", "s"), &quota).await.unwrap().is_new);
}
