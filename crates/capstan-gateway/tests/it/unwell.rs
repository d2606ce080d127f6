//! A journal that cannot write for a while, one that never will again, and one that is damaged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::odd_store::OddStore;
use crate::common::{
    all, ask, client, close_reason, demo, errors, problem, serve_gateway, start_on, stream_of, text,
};
use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, Settings, serve};
use capstan_journal::{Claim, Health, Quota, RunState};
use capstan_protocol::{ErrorSeverity, Timestamp};
use tokio::net::TcpListener;
use tokio::sync::{Barrier, Notify};
use uuid::Uuid;

/// Says one word, and the other when it is told to.
struct TwoWords(Arc<Notify>);

#[async_trait]
impl Agent for TwoWords {
    async fn run(&self, _turn: Turn, out: &mut Writer) -> Outcome {
        out.delta("one ").await?;
        self.0.notified().await;
        Ok(out.delta("two").await?)
    }
}

#[tokio::test]
async fn a_journal_that_cannot_write_for_a_while_refuses_new_runs_and_loses_none() {
    let (store, go_on) = (OddStore::new().shared(), Arc::new(Notify::new()));
    let gateway = Gateway::new(store.journal()).agent("words", TwoWords(Arc::clone(&go_on)));
    let server = serve_gateway(gateway.agent("demo", demo())).await;
    go_on.notify_one();
    let first = server.post(&ask("first")).await;
    let finished = stream_of(&first);
    assert_eq!(text(&all(first).await), "one two");

    let running = server.post(&ask("second")).await;
    store.health.send_replace(Health::Unavailable("no space".into()));
    go_on.notify_one();
    let refused = server.post(&ask("third")).await;
    assert!(refused.headers().contains_key("retry-after"));
    let refused = problem(refused).await;
    assert_eq!((refused.status, refused.code.as_str()), (503, "journal_unavailable"));
    assert_eq!(server.get("/readyz").await.status(), 503);
    assert_eq!(server.get("/livez").await.status(), 200, "it can mend itself");
    let again = all(server.get(&format!("/v1/streams/{finished}")).await).await;
    assert_eq!(
        (text(&again).as_str(), close_reason(&again).as_deref()),
        ("one two", Some("completed"))
    );

    store.health.send_replace(Health::Well);
    let packets = all(running).await;
    assert_eq!(
        (text(&packets).as_str(), close_reason(&packets).as_deref()),
        ("one two", Some("completed"))
    );
    assert!(errors(&packets).is_empty());
    assert_eq!(server.get("/readyz").await.status(), 200);
    go_on.notify_one();
    assert_eq!(text(&all(server.post(&ask("fourth")).await).await), "one two");
    server.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_journal_that_takes_no_writes() {
    let (store, go_on) = (OddStore::new().shared(), Arc::new(Notify::new()));
    let gateway =
        Gateway::new(store.journal()).agent("words", TwoWords(go_on)).agent("demo", demo());
    let server = serve_gateway(gateway).await;
    let running = stream_of(&server.post(&ask("x")).await);
    let waiting = ask("/fault timeout --retry-after 60");
    let waiting = client().post(format!("{}/v1/agents/demo/assist", server.url)).json(&waiting);
    let waiting = waiting.send().await.unwrap();
    let waits = stream_of(&waiting);
    all(waiting).await;
    store.health.send_replace(Health::Unavailable("no space".into()));
    for stream in [&running, &waits] {
        let refused = server.delete(&format!("/v1/streams/{stream}")).await;
        assert!(refused.headers().contains_key("retry-after"));
        assert_eq!(problem(refused).await.code, "journal_unavailable");
    }
    store.health.send_replace(Health::Well);
    // It was begun, so it is done; asking again tells.
    for stream in [&running, &waits] {
        let stopped = server.delete(&format!("/v1/streams/{stream}")).await;
        assert_eq!(stopped.status(), 200);
        let packets = all(server.get(&format!("/v1/streams/{stream}")).await).await;
        assert_eq!(close_reason(&packets).as_deref(), Some("cancelled"));
    }
    server.stop().await;
}

#[tokio::test]
async fn requests_are_refused_if_recovery_fails() {
    let fails_after = Arc::new(Notify::new());
    let store =
        OddStore { fails_after: Some(Arc::clone(&fails_after)), ..OddStore::new() }.shared();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/assist", listener.local_addr().unwrap());
    let gateway = Gateway::new(store.journal()).agent("demo", demo());
    let served = tokio::spawn(serve(gateway, vec![listener], std::future::pending()));
    let asked = tokio::spawn(client().post(url).json(&ask("x")).send());
    // Recovery looks at the store's health, and so does the request that waits for it.
    while store.scans.load(Ordering::Relaxed) == 0 || store.health.receiver_count() < 2 {
        tokio::task::yield_now().await;
    }
    fails_after.notify_one();
    let refused = asked.await.unwrap().unwrap();
    assert!(refused.headers().contains_key("retry-after"));
    assert_eq!(problem(refused).await.code, "service_unavailable");
    assert!(served.await.unwrap().is_err());
}

#[tokio::test]
async fn runs_are_recovered_many_at_once() {
    let together = 64;
    let store =
        OddStore { together: Some(Arc::new(Barrier::new(together))), ..OddStore::new() }.shared();
    for n in 0..2 * together {
        let claim = Claim::new("local", n.to_string(), Uuid::now_v7(), Timestamp::now());
        store
            .store
            .claim(Claim { session: n.to_string(), ..claim }, &Quota::UNLIMITED)
            .await
            .unwrap();
    }
    // One after the other they would wait for ever: that is what groups, and few syncs, are made
    // of.
    let server = start_on(store.journal(), Settings::default()).await;
    while server.get("/readyz").await.status() != 200 {}
    assert!(store.store.open_runs().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_server_whose_journal_takes_no_writes_can_be_stopped() {
    let (store, go_on) = (OddStore::new().shared(), Arc::new(Notify::new()));
    let gateway = Gateway::new(store.journal()).agent("words", TwoWords(Arc::clone(&go_on)));
    let timeouts =
        capstan_gateway::Timeouts { drain: std::time::Duration::ZERO, ..Default::default() };
    let server =
        serve_gateway(gateway.settings(Settings { timeouts, ..Settings::default() })).await;
    let running = server.post(&ask("x")).await;
    store.health.send_replace(Health::Unavailable("no space".into()));
    go_on.notify_one();
    server.stop().await;
    drop(running);
}

#[tokio::test]
async fn a_journal_that_cannot_recover_ends_the_server_with_a_message() {
    let store = OddStore::new().shared();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let gateway = Gateway::new(store.journal()).agent("demo", demo());
    let served = tokio::spawn(serve(gateway, vec![listener], std::future::pending()));
    let http = client();
    assert_eq!(http.get(format!("{url}/livez")).send().await.unwrap().status(), 200);
    store.health.send_replace(Health::Broken("its writer is gone".into()));
    while http.get(format!("{url}/livez")).send().await.unwrap().status() == 200 {}
    assert_eq!(http.get(format!("{url}/readyz")).send().await.unwrap().status(), 503);
    let error = served.await.unwrap().unwrap_err().to_string();
    assert!(
        error.contains("the journal is broken") && error.contains("its writer is gone"),
        "{error}"
    );
}

#[tokio::test]
async fn a_damaged_place_ends_its_readers_in_stream_lost() {
    let store = OddStore::new().shared();
    let server = start_on(store.journal(), Settings::default()).await;
    let response = server.post(&ask("/tokens 5")).await;
    let stream = stream_of(&response);
    let whole = all(response).await;
    // Another life, so that nothing is left in memory.
    store.damaged_from.store(3, Ordering::Relaxed);
    let server = start_on(store.journal(), Settings::default()).await;
    let packets = all(server.get(&format!("/v1/streams/{stream}")).await).await;
    assert_eq!(packets[..2], whole[..2]);
    let error = errors(&packets).pop().unwrap().clone();
    assert_eq!((error.code.as_str(), error.severity), ("stream_lost", ErrorSeverity::Fatal));
    assert_eq!(close_reason(&packets).as_deref(), Some("error"));
    assert!(
        packets[2].seq > whole.last().unwrap().seq,
        "no packet stands under a seq that was seen"
    );
    let metrics = server.get("/metrics").await.text().await.unwrap();
    assert!(metrics.contains("capstan_damaged_reads_total 1\n"), "{metrics}");
    // Whoever comes back after that is told the same.
    let cursor = format!("{stream}:{}", packets.last().unwrap().seq);
    let resumed =
        client().get(format!("{}/v1/streams/{stream}", server.url)).header("last-event-id", cursor);
    assert_eq!(problem(resumed.send().await.unwrap()).await.code, "stream_lost");
}

#[tokio::test]
async fn during_recovery_streams_and_health_are_served() {
    let store = OddStore::new().shared();
    let server = start_on(store.journal(), Settings::default()).await;
    let first = server.post(&ask("/tokens 2")).await;
    let finished = stream_of(&first);
    all(first).await;
    let claim = Claim {
        session: "s".into(),
        ..Claim::new("local", "orphan", Uuid::now_v7(), Timestamp::now())
    };
    store.store.claim(claim.clone(), &Quota::UNLIMITED).await.unwrap();
    // Another life finds a run that nobody is at work on, and cannot write yet.
    store.health.send_replace(Health::Unavailable("no space".into()));
    let server = start_on(store.journal(), Settings::default()).await;
    assert_eq!(
        close_reason(&all(server.get(&format!("/v1/streams/{finished}")).await).await).as_deref(),
        Some("completed")
    );
    let unready = problem(server.get("/readyz").await).await;
    let detail = unready.detail.unwrap();
    assert!(detail.contains("recovering runs") && detail.contains("1 to go"), "{detail}");
    store.health.send_replace(Health::Well);
    assert_eq!(server.post(&ask("/tokens 2")).await.status(), 200, "it has waited for recovery");
    assert_eq!(server.get("/readyz").await.status(), 200);
    assert_eq!(store.store.run(claim.stream_id).await.unwrap().unwrap().state, RunState::Closed);
}
