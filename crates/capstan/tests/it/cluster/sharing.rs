//! What gateways share beside runs: breakers, the list of replicas, the schema version. They share
//! no clock.

use capstan_protocol::{AgentRequest, ServiceRequest, SessionContext, UserContext};
use serde_json::Value;

use crate::cluster::postgres_server::Database;
use crate::cluster::{CONFIG, Cluster, replicas};
use crate::serve::client::{
    ask, assert_whole, packets, read_until, stream_of, tokens, whole_frames,
};
use crate::serve::clocks::faketime;
use crate::serve::process::{Server, refused};

/// A route over an upstream that is not there, and one that is.
const ROUTE: &str = "[[agents]]\nname = \"route\"\nkind = \"route\"\nuse = [\"away\", \"well\"]\n\
    breaker = { failures = 2, seconds = 60 }\n\
    [[agents]]\nname = \"away\"\nkind = \"openai\"\nmodel = \"m\"\nurl \
    = \"http://127.0.0.1:9/v1\"\n\
    [[agents]]\nname = \"well\"\nkind = \"demo\"\n";

async fn metric(server: &Server, line: &str) -> Option<f64> {
    let metrics = server.get("/metrics").await.text().await.unwrap();
    metrics.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_breaker_that_opens_at_one_gateway_is_open_at_the_others() {
    let database = Database::create();
    let mut cluster = Cluster::empty(database.url.clone(), &format!("{CONFIG}{ROUTE}"));
    (0..2).for_each(|_| cluster.add());
    let open = "capstan_route_breaker{route=\"route\",member=\"away\"}";
    let changes = "select count(*) from capstan.breakers";
    assert_eq!(database.sql(changes), "0");
    for _ in 0..4 {
        let whole = cluster.post(0, &ask("/tokens 3")).await.bytes().await.unwrap();
        assert_whole(&packets(&whole), &tokens(3));
    }
    while metric(&cluster.servers[1], open).await != metric(&cluster.servers[0], open).await
        || database.sql(changes) != "1"
    {}
    assert_eq!(metric(&cluster.servers[1], open).await, Some(2.0), "it never called it");
    let change = database.sql("select change from capstan.breakers");
    for server in [0, 1, 0, 1] {
        let whole = cluster.post(server, &ask("/tokens 3")).await.bytes().await.unwrap();
        assert_whole(&packets(&whole), &tokens(3));
    }
    assert_eq!(
        database.sql("select change from capstan.breakers"),
        change,
        "a call writes nothing"
    );
    // The gateway that finds the upstream healthy notifies the others.
    database.sql("update capstan.breakers set opened = 0, change = gen_random_uuid()");
    while metric(&cluster.servers[0], open).await != Some(0.0)
        || metric(&cluster.servers[1], open).await != Some(0.0)
    {}
}

/// The open responses of each gateway, and whether it has appended lately.
async fn loads(server: &Server) -> Vec<Option<(u64, bool)>> {
    let mut listed = replicas(server).await;
    listed.sort_by_key(|one| one["name"].to_string());
    let load = |one: &Value| {
        one["responses"].as_u64().map(|open| (open, one["append_p95_ms"].is_number()))
    };
    listed.iter().map(load).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn metrics_and_answers_show_the_cluster() {
    let database = Database::create();
    let mut cluster = Cluster::over(database.url.clone(), CONFIG, None);
    let mut response = cluster.post(0, &ask("/tokens 100000 --delay 20ms")).await;
    let stream = stream_of(&response);
    assert_eq!(response.headers()["x-served-by"], "gateway-1");
    drop(read_until(&mut response, |seen| !seen.is_empty()).await);
    let mut watching = cluster.watch(1, &stream).await;
    assert_eq!(watching.headers()["x-served-by"], "gateway-2");
    drop(read_until(&mut watching, |seen| !seen.is_empty()).await);
    assert_eq!(cluster.servers[2].get("/health").await.headers()["x-served-by"], "gateway-3");
    while metric(&cluster.servers[0], "capstan_cluster_peers").await != Some(2.0) {}
    assert_eq!(metric(&cluster.servers[0], "capstan_cluster_runs").await, Some(1.0));
    assert_eq!(metric(&cluster.servers[1], "capstan_cluster_runs").await, Some(0.0));
    assert_eq!(metric(&cluster.servers[1], "capstan_cluster_followed").await, Some(1.0));
    assert_eq!(metric(&cluster.servers[2], "capstan_cluster_followed").await, Some(0.0));
    // Each gateway sees the load of the others.
    while loads(&cluster.servers[2]).await != [(1, true), (1, false), (0, false)].map(Some) {}
    let silent = metric(&cluster.servers[0], "capstan_cluster_silent_seconds").await.unwrap();
    assert!((0.0..1.0).contains(&silent), "{silent}");
    // A gateway that is gone is missing, and its run counts at its new owner.
    cluster.servers.remove(0).kill();
    while metric(&cluster.servers[0], "capstan_cluster_peers").await != Some(1.0) {}
    assert_eq!(metric(&cluster.servers[1], "capstan_journal_well").await, Some(1.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_gateway_that_knows_too_little_lets_its_runs_end_and_leaves() {
    let database = Database::create();
    let config = CONFIG.replace("drain = 0.05", "drain = 30");
    let mut cluster = Cluster::empty(database.url.clone(), &config);
    cluster.add();
    let response = cluster.post(0, &ask("/tokens 100 --delay 5ms")).await;
    database.sql("update capstan.meta set min_writer = 99");
    let leaving = cluster.servers.remove(0);
    // Open runs end normally, and no new run begins.
    assert_whole(&packets(&response.bytes().await.unwrap()), &tokens(100));
    let (status, log) = leaving.wait();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("needs a newer build"), "{log}");
    assert_eq!(
        database.sql("select count(*) from capstan.replicas where state < 3"),
        "0",
        "its lease is given up"
    );
    let later =
        refused(cluster.folder.path(), &["--listen", "127.0.0.1:0", "--journal", &database.url]);
    let said = String::from_utf8_lossy(&later.stderr).into_owned();
    assert!(
        !later.status.success()
            && said.contains("only builds that know schema 99 or later may use"),
        "{said}"
    );
}

/// Gateways whose clocks differ by five seconds from each other, with leases of one second.
pub(crate) fn skewed(database: &Database, config: &str) -> Cluster {
    let mut cluster = Cluster::empty(database.url.clone(), config);
    ["-5s", "+0s", "+5s"].into_iter().for_each(|offset| add_skewed(&mut cluster, offset));
    cluster
}

/// Adds a gateway whose clock has this offset.
pub(crate) fn add_skewed(cluster: &mut Cluster, offset: &str) {
    let library = faketime();
    cluster.add_with(&[
        ("LD_PRELOAD", library.to_str().unwrap()),
        ("FAKETIME", offset),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL and libfaketime"]
async fn clocks_that_differ_by_seconds_take_nobodys_runs_and_no_turn_of_a_session() {
    let database = Database::create();
    let mut cluster = skewed(&database, &CONFIG.replace("lease = 1", "lease = 2"));
    let date = async |server: usize| {
        cluster.servers[server].get("/health").await.headers()["date"].to_str().unwrap().to_owned()
    };
    assert_ne!(date(0).await, date(2).await, "their clocks differ");
    // Longer than a lease: no gateway is declared dead.
    let request = ask("/tokens 400 --delay 5ms");
    let mut response = cluster.post(2, &request).await;
    let mut watching = cluster.watch(0, &stream_of(&response)).await;
    let seen = read_until(&mut response, |_| false).await;
    assert_whole(&packets(&seen), &tokens(400));
    assert!(read_until(&mut watching, |_| false).await == seen);
    // A conversation that goes from a clock that is ahead to one that is behind loses none of its
    // turns.
    let session = uuid::Uuid::now_v7();
    let context = SessionContext::new(session, UserContext::new("u"));
    for (server, turns) in [(2, 0), (0, 1), (1, 2), (0, 3)] {
        let asked = ServiceRequest::new(context.clone(), AgentRequest::query(session, "/echo one"));
        drop(cluster.post(server, &asked).await.bytes().await.unwrap());
        let kept: Value = cluster.servers[server]
            .get(&format!("/v1/sessions/{session}"))
            .await
            .json()
            .await
            .unwrap();
        assert_eq!(kept["turns"].as_array().unwrap().len(), turns + 1, "{kept}");
        let before = database.sql(&format!(
            "select max(turns_before) from capstan.runs where session = '{session}'"
        ));
        assert_eq!(before, turns.to_string());
    }
    // The lease shows that a gateway is dead, whatever its clock says.
    let request = ask("/tokens 60 --delay 5ms");
    let mut response = cluster.post(2, &request).await;
    let seen = read_until(&mut response, |seen| seen.contains(":10\n")).await;
    cluster.servers.remove(2).kill();
    let mut watching = cluster.watch(0, &stream_of(&response)).await;
    let watched = read_until(&mut watching, |seen| seen.contains("run_interrupted")).await;
    assert!(watched.starts_with(whole_frames(&seen)));
    assert_whole(&packets(&cluster.post(1, &request).await.bytes().await.unwrap()), &tokens(60));
}
