//! Turns of sessions.

use std::time::Duration;

use capstan_journal::{Retention, TenantRetention, Turn};
use capstan_protocol::Timestamp;
use serde_json::json;
use uuid::Uuid;

use super::{Backend, claim};

const HOUR: i64 = 3_600_000_000;

fn turn(stream_id: Uuid, text: &str, at: i64) -> Turn {
    Turn {
        stream_id,
        user: json!({"role": "user", "content": "?"}),
        assistant: text.into(),
        is_partial: false,
        closed_at: Timestamp::from_micros(at),
    }
}

pub(crate) async fn turns_are_ordered_and_replaced_by_stream(backend: &Backend) {
    let (store, [a, b]) = (&backend.store, [Uuid::now_v7(), Uuid::now_v7()]);
    store.push_turn("t", "s", turn(b, "second", 20)).await.unwrap();
    store.push_turn("t", "s", turn(a, "draft", 30)).await.unwrap();
    store.push_turn("t", "s", turn(a, "first", 10)).await.unwrap();
    let partial = Turn { is_partial: true, ..turn(Uuid::now_v7(), "other session", 1) };
    store.push_turn("t", "s2", partial.clone()).await.unwrap();
    assert_eq!(store.turns("t", "s").await.unwrap(), [turn(a, "first", 10), turn(b, "second", 20)]);
    assert_eq!(store.turns("t", "s2").await.unwrap(), [partial]);
    assert_eq!(store.turns("other", "s").await.unwrap(), []);
}

pub(crate) async fn sessions_are_counted_by_tenant(backend: &Backend) {
    let store = &backend.store;
    for (tenant, session) in [("a", "1"), ("a", "1"), ("a", "2"), ("b", "1")] {
        let mut claim = claim(tenant, &Uuid::new_v4().to_string());
        claim.session = session.into();
        store.claim(claim).await.unwrap();
    }
    store.push_turn("a", "3", turn(Uuid::now_v7(), "", 0)).await.unwrap();
    store.push_turn("a", "1", turn(Uuid::now_v7(), "", 0)).await.unwrap();
    assert_eq!(store.sessions("a").await.unwrap(), 3);
    assert_eq!(store.sessions("b").await.unwrap(), 1);
    assert!(store.has_session("a", "3").await.unwrap());
    assert!(!store.has_session("b", "3").await.unwrap());
    assert_eq!(store.sessions("c").await.unwrap(), 0);
}

pub(crate) async fn unused_sessions_expire(backend: &Backend) {
    let store = &backend.store;
    store.push_turn("t", "old", turn(Uuid::now_v7(), "old", 0)).await.unwrap();
    store.push_turn("t", "used", turn(Uuid::now_v7(), "old", 0)).await.unwrap();
    store.push_turn("t", "used", turn(Uuid::now_v7(), "new", 10 * HOUR)).await.unwrap();
    let retention = Retention { max_age: Duration::from_secs(3600), ..Retention::default() };
    let expired = store.expire(&retention, Timestamp::from_micros(10 * HOUR + 1)).await.unwrap();
    assert_eq!(expired.sessions, 1);
    assert_eq!(store.turns("t", "old").await.unwrap(), []);
    assert_eq!(store.turns("t", "used").await.unwrap().len(), 2);
    assert_eq!(store.sessions("t").await.unwrap(), 1);
}

pub(crate) async fn a_tenants_own_age_holds_for_its_sessions_alone(backend: &Backend) {
    let store = &backend.store;
    for tenant in ["brief", "long", "usual"] {
        store.push_turn(tenant, "s", turn(Uuid::now_v7(), "", 0)).await.unwrap();
    }
    let own = |hours: u64| TenantRetention { max_age: Duration::from_secs(hours * 3600), max_bytes: None };
    let tenants = [("brief".to_owned(), own(1)), ("long".to_owned(), own(100))].into();
    let retention = Retention { max_age: Duration::from_secs(36_000), tenants, ..Retention::default() };
    for (hour, left) in [(0, "brief long usual"), (1, "long usual"), (10, "long"), (100, "")] {
        store.expire(&retention, Timestamp::from_micros(hour * HOUR)).await.unwrap();
        for tenant in ["brief", "long", "usual"] {
            assert_eq!(
                store.has_session(tenant, "s").await.unwrap(),
                left.contains(tenant),
                "{tenant} {hour}"
            );
        }
    }
}
