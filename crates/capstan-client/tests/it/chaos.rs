//! The client behind a proxy that breaks everything: many seeds at brutal settings, and each kind
//! of fault alone.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::Server;
use capstan_chaos::{Chaos, Faults};
use capstan_client::protocol::{Payload, Transcript};
use capstan_client::{CapClient, Options, blocking};
use tokio::net::TcpListener;
use uuid::Uuid;

/// More than any single run needs; the point is what is lost, not how fast one gives up.
fn stubborn() -> Options {
    Options::new()
        .max_retries(1000)
        .backoff(Duration::from_millis(1), Duration::from_millis(20))
        .least_wait(Duration::from_millis(1))
        .max_wait(Duration::from_millis(20))
        .read_timeout(Duration::from_millis(100))
        .strict(true)
}

/// The harshest settings, many times as fast: what is lost does not depend on how long it takes.
fn brutal(budget: u64) -> Faults {
    let millis = |from, to| Duration::from_millis(from)..=Duration::from_millis(to);
    let mut faults = Faults { budget: Some(budget), ..Faults::brutal() };
    (faults.delay.time, faults.stall.time) = (millis(1, 10), millis(10, 150));
    faults.throttle.bytes_per_second *= 50;
    faults
}

/// A proxy before the server; its URL.
async fn broken(server: &Server, faults: Faults, seed: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstream: SocketAddr = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    let chaos = Chaos::new(upstream.into(), faults, seed);
    tokio::spawn(async move { chaos.serve(listener, std::future::pending::<()>()).await });
    url
}

/// Follows a run to its end: text, and every seq once and in order.
async fn follow(client: &CapClient, question: &str) -> String {
    let mut packets = client.assist(&client.question(Uuid::now_v7(), question));
    let (mut transcript, mut last) = (Transcript::default(), 0);
    while let Some(packet) = packets.next().await.unwrap() {
        assert_eq!(packet.seq, last + 1, "each packet once and in order");
        last = packet.seq;
        transcript.take(&packet);
        if matches!(packet.payload, Payload::Close(_)) {
            assert_eq!(transcript.close().unwrap().reason(), "completed");
        }
    }
    assert!(transcript.close().is_some(), "the end was seen");
    transcript.text().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_many_seeds_of_brutal_faults_nothing_is_lost_or_doubled() {
    let server = Server::start().await;
    let whole = follow(&CapClient::new(&server.url, "").unwrap(), "/tokens 60").await;
    let seeds: u64 = std::env::var("CAPSTAN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(16);
    let runs = (0..seeds).map(|seed| {
        let (server, whole) = (&server, &whole);
        async move {
            let url = broken(server, brutal(30), seed).await;
            let client = CapClient::with_options(&url, "", stubborn()).unwrap();
            assert_eq!(&follow(&client, "/tokens 60").await, whole, "seed {seed}");
        }
    });
    futures_util::future::join_all(runs).await;
}

#[test]
fn the_blocking_client_heals_as_well() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (server, url) = runtime.block_on(async {
        let server = Server::start().await;
        let url = broken(&server, brutal(20), 7).await;
        (server, url)
    });
    let text = |url: &str| -> String {
        let client = blocking::CapClient::with_options(url, "", stubborn()).unwrap();
        client.chat("/tokens 60").map(Result::unwrap).collect()
    };
    assert_eq!(text(&url), text(&server.url));
}
