//! Turns of sessions.

use std::time::Duration;

use capstan_journal::{Claim, Quota, Retention, RunState, StoredTurn, TenantRetention, TurnRange};
use capstan_protocol::Timestamp;
use uuid::Uuid;

use super::{Backend, claim, moved};

const HOUR: i64 = 3_600_000_000;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

pub(crate) async fn ended_runs_leave_turns_in_order(backend: &Backend) {
    // Turns have the order in which runs ended, whatever the clocks say.
    let first = backend.said("t", "s", "first", at(20)).await;
    let second = backend.said("t", "s", "second", at(10)).await;
    let other = backend.said("t", "s2", "other session", at(1)).await;
    assert_eq!(backend.store.turns(TurnRange::all("t", "s")).await.unwrap(), [first, second]);
    assert_eq!(backend.store.turns(TurnRange::all("t", "s2")).await.unwrap(), [other]);
    assert_eq!(backend.store.turns(TurnRange::all("other", "s")).await.unwrap(), []);
}

pub(crate) async fn losing_transition_leaves_no_turn(backend: &Backend) {
    let said = backend.said("t", "s", "said", at(1)).await;
    let run = backend.store.run(said.stream_id).await.unwrap().unwrap();
    let late = StoredTurn { said: "too late".into(), ..said.clone() };
    let to = moved(&run, RunState::Closed, 1);
    assert!(!backend.step((RunState::Running, 1), to, vec![], Some(late)).await.unwrap());
    assert_eq!(backend.store.turns(TurnRange::all("t", "s")).await.unwrap(), [said]);
}

pub(crate) async fn turns_are_numbered_counted_and_paged(backend: &Backend) {
    let store = &backend.store;
    let mut said = Vec::new();
    for number in 1..=150 {
        let turn = backend.said("t", "s", &number.to_string(), at(-number)).await;
        assert_eq!(turn.number, number as u64);
        said.push(turn);
    }
    assert_eq!(store.turn_count("t", "s").await.unwrap(), 150);
    assert_eq!(
        store.turns(TurnRange { from: 1, limit: 10, ..TurnRange::all("t", "s") }).await.unwrap(),
        said[..10]
    );
    assert_eq!(
        store.turns(TurnRange { from: 141, ..TurnRange::all("t", "s") }).await.unwrap(),
        said[140..]
    );
    assert_eq!(store.turns(TurnRange::all("t", "s")).await.unwrap(), said);
    assert_eq!(store.turns(TurnRange { from: 151, ..TurnRange::all("t", "s") }).await.unwrap(), []);
    // A purged turn is gone, its number is not used again, and a claim records the session's last
    // number.
    assert!(store.purge(said[149].stream_id, Timestamp::now()).await.unwrap());
    assert!(store.purge(said[4].stream_id, Timestamp::now()).await.unwrap());
    assert_eq!(store.turn_count("t", "s").await.unwrap(), 148);
    assert_eq!(
        store.turns(TurnRange { from: 4, limit: 2, ..TurnRange::all("t", "s") }).await.unwrap(),
        [said[3].clone(), said[5].clone()]
    );
    let next = Claim { session: "s".into(), ..claim("t", "next") };
    assert_eq!(store.claim(next, &Quota::UNLIMITED).await.unwrap().run.turns_before, 150);
    assert_eq!(backend.said("t", "s", "", at(0)).await.number, 151);
    assert_eq!(store.turn_count("t", "none").await.unwrap(), 0);
}

pub(crate) async fn sessions_are_counted_by_tenant(backend: &Backend) {
    let store = &backend.store;
    for (tenant, session) in [("a", "1"), ("a", "1"), ("a", "2"), ("b", "1")] {
        let mut claim = claim(tenant, &Uuid::new_v4().to_string());
        claim.session = session.into();
        store.claim(claim, &Quota::UNLIMITED).await.unwrap();
    }
    backend.said("a", "3", "", at(0)).await;
    backend.said("a", "1", "", at(0)).await;
    assert_eq!(store.sessions("a").await.unwrap(), 3);
    assert_eq!(store.sessions("b").await.unwrap(), 1);
    assert!(store.has_session("a", "3").await.unwrap());
    assert!(!store.has_session("b", "3").await.unwrap());
    assert_eq!(store.sessions("c").await.unwrap(), 0);
}

pub(crate) async fn unused_sessions_expire(backend: &Backend) {
    let store = &backend.store;
    backend.said("t", "old", "old", at(0)).await;
    backend.said("t", "used", "old", at(0)).await;
    backend.said("t", "used", "new", at(10 * HOUR)).await;
    let retention = Retention { max_age: Duration::from_secs(3600), ..Retention::default() };
    let expired = store.expire(&retention, at(10 * HOUR + 1)).await.unwrap();
    assert_eq!(expired.sessions, 1);
    assert_eq!(store.turns(TurnRange::all("t", "old")).await.unwrap(), []);
    assert_eq!(store.turns(TurnRange::all("t", "used")).await.unwrap().len(), 2);
    assert_eq!(store.sessions("t").await.unwrap(), 1);
}

pub(crate) async fn tenant_age_limit_applies_to_its_sessions_only(backend: &Backend) {
    let store = &backend.store;
    for tenant in ["brief", "long", "usual"] {
        backend.said(tenant, "s", "", at(0)).await;
    }
    let own = |hours: u64| TenantRetention {
        max_age: Duration::from_secs(hours * 3600),
        max_bytes: None,
    };
    let tenants = [("brief".to_owned(), own(1)), ("long".to_owned(), own(100))].into();
    let retention =
        Retention { max_age: Duration::from_secs(36_000), tenants, ..Retention::default() };
    for (hour, left) in [(0, "brief long usual"), (1, "long usual"), (10, "long"), (100, "")] {
        store.expire(&retention, at(hour * HOUR)).await.unwrap();
        for tenant in ["brief", "long", "usual"] {
            assert_eq!(
                store.has_session(tenant, "s").await.unwrap(),
                left.contains(tenant),
                "{tenant} {hour}"
            );
        }
    }
}

pub(crate) async fn turn_page_is_bounded_by_bytes(backend: &Backend) {
    let store = &backend.store;
    let mut said = Vec::new();
    for number in 0..70 {
        said.push(
            backend
                .said("t", "s", &"x".repeat(if number == 3 { 9_000 } else { 900 }), at(number))
                .await,
        );
    }
    let (mut pages, mut found) = (Vec::new(), Vec::new());
    while found.len() < said.len() {
        let page = store
            .turns(TurnRange {
                from: found.len() as u64 + 1,
                max_bytes: 4_000,
                ..TurnRange::all("t", "s")
            })
            .await
            .unwrap();
        pages.push(page.len());
        found.extend(page);
    }
    assert_eq!(found, said);
    assert_eq!(pages[..3], [3, 1, 3], "at least one, and never more than there is room for");
    assert!(pages[2..].iter().all(|len| (1..=3).contains(len)), "{pages:?}");
    assert_eq!(
        store
            .turns(TurnRange { tenant: "t", session: "s", from: 1, limit: 2, max_bytes: 4_000 })
            .await
            .unwrap()
            .len(),
        2
    );
}
