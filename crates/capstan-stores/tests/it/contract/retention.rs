//! Retention.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_journal::{
    Claim, ErrorKind, Found, Quota, Retention, RunState, TenantRetention, Transition,
};
use capstan_protocol::Timestamp;

use super::{Backend, claim, frames, moved};

const HOUR: Duration = Duration::from_secs(3600);

fn at(hours: i64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000 + hours * 3_600_000_000)
}

fn by_age() -> Retention {
    Retention { max_age: HOUR, ..Retention::default() }
}

fn by_size(max_bytes: u64) -> Retention {
    Retention { max_age: 1000 * HOUR, max_bytes: Some(max_bytes), ..Retention::default() }
}

pub(crate) async fn old_streams_expire_before_their_claims(backend: &Backend) {
    let store = &backend.store;
    let (old, young) = (backend.closed("t", 700, at(0)).await, backend.closed("t", 2, at(2)).await);
    assert_eq!(store.expire(&by_age(), at(0)).await.unwrap().streams, 0);

    let expired = store.expire(&by_age(), at(1)).await.unwrap();
    assert_eq!((expired.streams, expired.claims), (1, 0));
    assert!(expired.bytes > old.bytes);
    assert_eq!(store.run(old.stream_id).await.unwrap(), None);
    assert_eq!(store.body(old.stream_id).await.unwrap(), None);
    assert_eq!(store.read(old.stream_id, 0, 10, 1000).await.unwrap(), vec![]);
    assert_eq!(store.list("t", None, 10).await.unwrap(), std::slice::from_ref(&young));
    assert_eq!(store.read(young.stream_id, 0, 10, 1000).await.unwrap(), frames(1, 2));

    // The claim is held for a day. Then the key is free.
    assert_eq!(store.find("t", &old.key).await.unwrap(), Some(Found::Expired));
    assert!(store.is_expired("t", old.stream_id).await.unwrap());
    assert!(!store.is_expired("other", old.stream_id).await.unwrap());
    assert!(!store.is_expired("t", young.stream_id).await.unwrap());
    assert_eq!(
        store.claim(claim("t", &old.key), &Quota::UNLIMITED).await.unwrap_err().kind(),
        ErrorKind::Expired
    );
    assert_eq!(store.expire(&by_age(), at(2)).await.unwrap().streams, 0);
    let expired = store.expire(&by_age(), at(25)).await.unwrap();
    assert_eq!((expired.streams, expired.claims), (1, 1));
    assert_eq!(store.find("t", &old.key).await.unwrap(), None);
    assert!(!store.is_expired("t", old.stream_id).await.unwrap());
    assert_eq!(store.find("t", &young.key).await.unwrap(), Some(Found::Expired));
    assert!(store.claim(claim("t", &old.key), &Quota::UNLIMITED).await.unwrap().is_new);
}

pub(crate) async fn size_limit_deletes_the_oldest_closed_streams(backend: &Backend) {
    let mut runs = Vec::new();
    for hour in [3, 1, 2, 0] {
        runs.push((hour, backend.closed("t", 10, at(hour)).await));
    }
    let size = runs[0].1.bytes + 13;
    assert_eq!(backend.store.expire(&by_size(4 * size), at(3)).await.unwrap().streams, 0);
    let expired = backend.store.expire(&by_size(3 * size - 1), at(3)).await.unwrap();
    assert_eq!((expired.streams, expired.bytes), (2, 2 * size));
    for (hour, run) in runs {
        assert_eq!(backend.store.run(run.stream_id).await.unwrap().is_some(), hour >= 2);
    }
}

pub(crate) async fn open_runs_never_expire(backend: &Backend) {
    let store = &backend.store;
    let (running, waiting) = (backend.start("t").await, backend.start("t").await);
    store.append(running.stream_id, 1, frames(1, 100)).await.unwrap();
    let to = moved(&waiting, RunState::Waiting, 1);
    assert!(
        store
            .transition(Transition::new((RunState::Running, 1), to, frames(1, 100), None))
            .await
            .unwrap()
    );
    backend.closed("t", 1, at(0)).await;
    for retention in [by_size(0), by_age()] {
        store.expire(&retention, at(100_000)).await.unwrap();
    }
    let left = store.list("t", None, 10).await.unwrap();
    assert_eq!(left.len(), 2);
    assert!(left.iter().all(|run| run.is_open() && run.last_seq == 100));
    assert!(!store.claim(claim("t", &running.key), &Quota::UNLIMITED).await.unwrap().is_new);
    assert_eq!(store.read(running.stream_id, 0, 1000, 1 << 20).await.unwrap(), frames(1, 100));
}

pub(crate) async fn long_streams_are_never_half_deleted(backend: &Backend) {
    let id = backend.closed("t", 3000, at(0)).await.stream_id;
    let live = backend.start("t").await.stream_id;
    let (store, is_done) = (backend.store.clone(), Arc::new(AtomicBool::new(false)));
    let watcher = tokio::spawn({
        let is_done = is_done.clone();
        async move {
            let mut seq = 0;
            while !is_done.load(Ordering::SeqCst) {
                let found = store.read(id, 0, 5, 1 << 20).await.unwrap();
                assert!(found.is_empty() || found == frames(1, 5));
                // Appends continue meanwhile.
                seq += 1;
                store.append(live, 1, frames(seq, seq)).await.unwrap();
            }
        }
    });
    let expired = backend.store.expire(&by_age(), at(1)).await.unwrap();
    is_done.store(true, Ordering::SeqCst);
    watcher.await.unwrap();
    assert_eq!(expired.streams, 1);
}

pub(crate) async fn tenant_age_limit_applies_to_its_streams_only(backend: &Backend) {
    let store = &backend.store;
    let own = |hours| TenantRetention { max_age: hours * HOUR, max_bytes: None };
    let tenants = [("brief".to_owned(), own(1)), ("long".to_owned(), own(100))].into();
    let retention = Retention { max_age: 10 * HOUR, tenants, ..Retention::default() };
    let mut runs = Vec::new();
    for tenant in ["brief", "long", "usual"] {
        runs.push(backend.closed(tenant, 3, at(0)).await);
    }
    for (hour, left) in [(0, 3), (1, 2), (9, 2), (10, 1), (99, 1), (100, 0)] {
        store.expire(&retention, at(hour)).await.unwrap();
        let mut found = 0;
        for run in &runs {
            found += usize::from(store.run(run.stream_id).await.unwrap().is_some());
        }
        assert_eq!(found, left, "after {hour} hours");
    }
}

pub(crate) async fn tenant_size_limit_applies_to_its_streams_only(backend: &Backend) {
    let mut runs = Vec::new();
    for (tenant, hour) in [("small", 0), ("other", 1), ("small", 2), ("small", 3)] {
        runs.push(backend.closed(tenant, 10, at(hour)).await);
    }
    let size = runs[0].bytes + 13;
    let own = TenantRetention { max_age: 1000 * HOUR, max_bytes: Some(size) };
    let tenants = [("small".to_owned(), own)].into();
    let retention = Retention { max_age: 1000 * HOUR, tenants, ..Retention::default() };
    let expired = backend.store.expire(&retention, at(4)).await.unwrap();
    assert_eq!((expired.streams, expired.bytes), (2, 2 * size));
    for (run, is_left) in runs.iter().zip([false, true, false, true]) {
        assert_eq!(backend.store.run(run.stream_id).await.unwrap().is_some(), is_left);
    }
}

pub(crate) async fn size_limit_counts_turns_and_deletes_sessions(backend: &Backend) {
    let store = &backend.store;
    for (hour, session) in [(0, "old"), (1, "busy"), (2, "young")] {
        backend.said("t", session, &"x".repeat(100_000), at(hour)).await;
    }
    let bytes =
        |session: &'static str| async move { store.usage("t", session).await.unwrap().bytes };
    let before = bytes("old").await;
    assert!(before > 300_000, "{before}");
    // A session with an open run is in use, however old it is.
    let open = Claim { session: "busy".into(), created_at: at(1), ..claim("t", "open") };
    store.claim(open, &Quota::UNLIMITED).await.unwrap();
    let expired = store.expire(&by_size(before - 1_000), at(3)).await.unwrap();
    assert!(expired.streams <= 1 && expired.sessions <= 1 && expired.bytes > 0, "{expired:?}");
    store.expire(&by_size(110_000), at(3)).await.unwrap();
    let has = |session: &'static str| async move { store.has_session("t", session).await.unwrap() };
    assert_eq!((has("old").await, has("busy").await, has("young").await), (false, true, false));
    assert!((100_000..110_000).contains(&bytes("busy").await), "{}", bytes("busy").await);
    // A tenant's own size limit counts them as well.
    let tenants =
        [("u".to_owned(), TenantRetention { max_age: 1000 * HOUR, max_bytes: Some(1_000) })].into();
    backend.said("u", "s", &"x".repeat(10_000), at(2)).await;
    store
        .expire(&Retention { tenants, max_age: 1000 * HOUR, ..Retention::default() }, at(3))
        .await
        .unwrap();
    assert!(!store.has_session("u", "s").await.unwrap() && has("busy").await);
}
