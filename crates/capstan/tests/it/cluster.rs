//! Three real gateways over one real PostgreSQL: clients start, watch, resume and stop runs at any
//! of them, while others crash.

mod balancer;
mod copying;
#[path = "../../../capstan-stores/tests/common/network.rs"]
mod network;
#[path = "../../../capstan-stores/tests/common/postgres.rs"]
mod postgres_server;
mod readers;
mod sharing;
mod short;
mod soak;
mod unstored;
mod webhooks;
mod wordy;

use std::collections::HashSet;

use crate::serve::client::{
    ask, assert_whole, errors, http, packets, read_until, stream_of, tokens, whole_frames,
};
use crate::serve::process::Server;
use capstan_protocol::ServiceRequest;
use network::{Network, Weather};
use postgres_server::{Database, Engine, Held};
use serde_json::Value;
use tempfile::TempDir;

/// Gateways that take over from each other within seconds.
const CONFIG: &str = "[cluster]\nlease = 1\n[timeouts]\nbackoff = 0.001\ndrain = 0.05\n";
/// A long lease, for tests in which the database is away.
const PATIENT: &str = "[cluster]\nlease = 120\n[timeouts]\nbackoff = 0.001\n";

struct Cluster {
    servers: Vec<Server>,
    url: String,
    folder: TempDir,
    // After the servers, which use it.
    _database: Option<Database>,
}

impl Cluster {
    fn start() -> Self {
        Self::with(CONFIG)
    }

    /// For tests in which no lease may end: on a busy machine a lease of one second may.
    fn patient() -> Self {
        Self::with(PATIENT)
    }

    fn with(config: &str) -> Self {
        let database = Database::create();
        let url = database.url.clone();
        Self::over(url, config, Some(database))
    }

    fn over(url: String, config: &str, database: Option<Database>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("capstan.toml"), config).unwrap();
        let mut cluster = Self { servers: Vec::new(), url, folder, _database: database };
        (0..3).for_each(|_| cluster.add());
        cluster
    }

    /// Without gateways yet.
    fn empty(url: String, config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("capstan.toml"), config).unwrap();
        Self { servers: Vec::new(), url, folder, _database: None }
    }

    fn add(&mut self) {
        self.add_with(&[]);
    }

    /// Adds a gateway with its own name and this environment.
    fn add_with(&mut self, env: &[(&str, &str)]) {
        let name = format!("gateway-{}", self.servers.len() + 1);
        let env = [&[("HOSTNAME", name.as_str())], env].concat();
        self.servers.push(Server::start_as(self.folder.path(), &["--journal", &self.url], &env));
    }

    async fn post(&self, server: usize, request: &ServiceRequest) -> reqwest::Response {
        self.servers[server].post(&http(), request).await
    }

    async fn watch(&self, server: usize, stream: &str) -> reqwest::Response {
        self.servers[server].get(&format!("/v1/streams/{stream}")).await
    }

    /// The complete stream, as another gateway replays it.
    async fn replay(&self, server: usize, stream: &str) -> Vec<u8> {
        self.watch(server, stream).await.bytes().await.unwrap().to_vec()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_run_is_watched_and_stopped_at_another_gateway() {
    let cluster = Cluster::start();
    let mut response = cluster.post(0, &ask("/tokens 100000 --delay 5ms")).await;
    let stream = stream_of(&response);
    let mut watching = cluster.watch(1, &stream).await;
    let mut seen = read_until(&mut watching, |seen| seen.contains(":20\n")).await;
    let stopped = http()
        .delete(format!("{}/v1/streams/{stream}", cluster.servers[2].url))
        .send()
        .await
        .unwrap();
    assert_eq!(stopped.json::<Value>().await.unwrap()["reason"], "cancelled");
    seen.extend(read_until(&mut watching, |_| false).await);
    let own = read_until(&mut response, |_| false).await;
    assert!(String::from_utf8_lossy(&own).contains("cancelled"));
    assert!(
        own == seen && own == cluster.replay(2, &stream).await,
        "the same bytes for every viewer"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn one_request_at_three_gateways_is_one_run() {
    let cluster = Cluster::patient();
    for _ in 0..10 {
        let request = ask("/tokens 3");
        let (a, b, c) = tokio::join!(
            cluster.post(0, &request),
            cluster.post(1, &request),
            cluster.post(2, &request)
        );
        let streams: HashSet<_> = [&a, &b, &c].map(stream_of).into();
        assert_eq!(streams.len(), 1);
        let bodies = [a.bytes().await.unwrap(), b.bytes().await.unwrap(), c.bytes().await.unwrap()];
        assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2], "{bodies:#?}");
        assert_whole(&packets(&bodies[0]), &tokens(3));
    }
    assert_eq!(cluster.servers[1].streams().await.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_killed_gateways_runs_go_on_at_another() {
    let mut cluster = Cluster::start();
    let request = ask("/tokens 60 --delay 5ms");
    let mut response = cluster.post(0, &request).await;
    let stream = stream_of(&response);
    let mut watching = cluster.watch(1, &stream).await;
    let mut seen = read_until(&mut response, |seen| seen.contains(":10\n")).await;
    cluster.servers.remove(0).kill();
    seen.extend(read_until(&mut response, |_| false).await);
    let seen = whole_frames(&seen);
    assert!(packets(seen).len() >= 10 && packets(seen).len() < 60, "it was killed in mid-run");
    let watched = read_until(&mut watching, |seen| seen.contains("run_interrupted")).await;
    assert!(watched.starts_with(seen), "nothing that was seen is lost");

    let whole = cluster.post(1, &request).await;
    assert_eq!(stream_of(&whole), stream);
    let whole = whole.bytes().await.unwrap();
    assert!(whole.starts_with(&watched));
    assert_whole(&packets(&whole), &tokens(60));
    let rest = read_until(&mut watching, |_| false).await;
    assert!(
        [watched, rest].concat() == whole,
        "a viewer at a third gateway stays and sees the same"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_gateway_that_was_frozen_writes_nothing_more_and_takes_part_again() {
    let cluster = Cluster::start();
    let request = ask("/tokens 400 --delay 5ms");
    let mut response = cluster.post(0, &request).await;
    let stream = stream_of(&response);
    let seen = read_until(&mut response, |seen| seen.contains(":10\n")).await;
    let mut watching = cluster.watch(1, &stream).await;
    cluster.servers[0].signal("STOP");
    let watched = read_until(&mut watching, |seen| seen.contains("run_interrupted")).await;
    assert!(watched.starts_with(whole_frames(&seen)));
    let whole = cluster.post(2, &request).await.bytes().await.unwrap();
    assert_whole(&packets(&whole), &tokens(400));

    cluster.servers[0].signal("CONT");
    while cluster.servers[0].get("/readyz").await.status() == 200
        && !replicas(&cluster.servers[0])
            .await
            .iter()
            .any(|one| one["is_self"] == true && one["runs"] == 0)
    {}
    // The database refused its further writes to the run.
    let own = [seen, read_until(&mut response, |_| false).await].concat();
    assert!(whole.starts_with(whole_frames(&own)), "its own viewer saw nothing that is not so");
    assert!(cluster.replay(0, &stream).await == whole && cluster.replay(1, &stream).await == whole);
    while cluster.servers[0].get("/readyz").await.status() != 200 {}
    let next = cluster.post(0, &ask("/tokens 5")).await.bytes().await.unwrap();
    assert_whole(&packets(&next), &tokens(5));
}

async fn replicas(server: &Server) -> Vec<Value> {
    let list: Value = server.get("/v1/replicas").await.json().await.unwrap();
    list["replicas"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_gateway_that_leaves_hands_its_runs_over() {
    let mut cluster = Cluster::start();
    let live: Vec<_> = replicas(&cluster.servers[0]).await;
    assert_eq!(live.iter().filter(|one| one["state"] == "live").count(), 3, "{live:?}");
    let request = ask("/tokens 60 --delay 5ms");
    let mut response = cluster.post(0, &request).await;
    let first = read_until(&mut response, |seen| seen.contains(":10\n")).await;
    cluster.servers[0].signal("TERM");
    let first = [first, read_until(&mut response, |_| false).await].concat();
    let told = packets(&first);
    if let Some(error) = errors(&told).pop() {
        assert_eq!(error.code, "run_interrupted");
    }
    let (status, log) = cluster.servers.remove(0).wait();
    assert_eq!(status.code(), Some(0), "{log}");
    let whole = cluster.post(0, &request).await.bytes().await.unwrap();
    assert!(whole.starts_with(&first));
    assert_whole(&packets(&whole), &tokens(60));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_database_that_crashes_and_comes_back_is_not_noticed() {
    let mut engine = Engine::start(&["wal_writer_delay=10s"]);
    let cluster = Cluster::over(engine.url(), PATIENT, None);
    let mut response = cluster.post(0, &ask("/tokens 200 --delay 5ms")).await;
    let stream = stream_of(&response);
    let mut watching = cluster.watch(1, &stream).await;
    let mut seen = read_until(&mut response, |seen| seen.contains(":20\n")).await;
    let mut watched = read_until(&mut watching, |seen| seen.contains(":20\n")).await;
    engine.end("QUIT");
    engine.start_again();
    seen.extend(read_until(&mut response, |_| false).await);
    watched.extend(read_until(&mut watching, |_| false).await);
    assert_whole(&packets(&seen), &tokens(200));
    assert!(seen == watched && seen == cluster.replay(2, &stream).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn without_the_database_the_console_reports_it_and_readers_wait() {
    let mut engine = Engine::start(&[]);
    let mut cluster = Cluster::empty(engine.url(), PATIENT);
    cluster.add();
    let mut response = cluster.post(0, &ask("/tokens 200 --delay 5ms")).await;
    let mut seen = read_until(&mut response, |seen| seen.contains(":20\n")).await;
    engine.end("QUIT");
    let (runs, health) = tokio::join!(
        cluster.servers[0].get("/v1/console/runs"),
        cluster.servers[0].get("/v1/console/health")
    );
    for answer in [runs, health] {
        let told: Value = answer.json().await.unwrap();
        let detail = told["detail"].as_str().unwrap_or_default();
        assert!(detail.starts_with("The journal's database does not answer."), "{told}");
    }
    engine.start_again();
    seen.extend(read_until(&mut response, |_| false).await);
    assert_whole(&packets(&seen), &tokens(200));
    assert_eq!(cluster.servers[0].get("/v1/console/runs").await.status(), 200);
}

/// Two gateways, the first with a network between it and its database.
async fn first_behind_a_network(database: &Database) -> (Cluster, Network) {
    let mut cluster = Cluster::empty(database.url.clone(), PATIENT);
    let (network, url) = Network::before(&database.url).await;
    let direct = std::mem::replace(&mut cluster.url, url);
    cluster.add();
    cluster.url = direct;
    cluster.add();
    (cluster, network)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn packets_whose_acknowledgement_is_lost_are_neither_lost_nor_doubled() {
    let database = Database::create();
    let (cluster, network) = first_behind_a_network(&database).await;
    let mut response = cluster.post(0, &ask("/tokens 3 --delay 500ms")).await;
    let stream = stream_of(&response);
    // The next packet is half a second away.
    let mut seen = read_until(&mut response, |seen| seen.contains(":1\n")).await;
    network.turn(Weather::Deaf);
    let is_written = format!(
        "select exists (select from capstan.blocks where stream = '{stream}' and last_seq = 2)"
    );
    while database.sql(&is_written) != "t" {}
    network.clear_up();
    network.cut();
    seen.extend(read_until(&mut response, |_| false).await);
    assert_whole(&packets(&seen), &tokens(3));
    assert_eq!(seen, cluster.replay(1, &stream).await);
    let runs = cluster.servers[1].streams().await;
    assert_eq!((runs.len(), &runs[0]["attempt"]), (1, &1.into()), "{runs:?}");
}

/// A gateway sends other queries before a claim and before an end, and gets their answers. The
/// database holds back the write itself until the gateway's connection is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs PostgreSQL"]
async fn a_claim_and_an_end_whose_answers_are_lost_are_made_once() {
    let database = Database::create();
    let (cluster, network) = first_behind_a_network(&database).await;
    // All connections are open, and their statements are prepared.
    cluster.post(0, &ask("/tokens 1")).await.bytes().await.unwrap();
    let request = ask("/tokens 3 --delay 500ms");
    let held = database.hold("lock table capstan.runs in share mode");
    let url = format!("{}/v1/assist", cluster.servers[0].url);
    let posting = tokio::spawn(http().post(url).json(&request).send());
    let is_claimed =
        format!("select exists (select from capstan.claims where key = '{}')", request.request_id);
    lose_answer(&database, &network, held, "claim_runs", &is_claimed);
    let mut response = posting.await.unwrap().unwrap();
    let stream = stream_of(&response);
    // Its end is a second away.
    let mut seen = read_until(&mut response, |seen| seen.contains(":1\n")).await;
    let run = format!("select from capstan.runs where stream = '{stream}'");
    let held = database.hold(&format!("{run} for no key update"));
    lose_answer(
        &database,
        &network,
        held,
        "change_runs",
        &format!("select exists ({run} and state = 3)"),
    );
    seen.extend(read_until(&mut response, |_| false).await);
    assert_whole(&packets(&seen), &tokens(3));
    assert_eq!(seen, cluster.replay(1, &stream).await);
    let runs = cluster.servers[1].streams().await;
    assert_eq!((runs.len(), &runs[0]["attempt"]), (2, &1.into()), "{runs:?}");
}

/// Lets a waiting write through, and loses its answer.
fn lose_answer(database: &Database, network: &Network, held: Held, write: &str, is_done: &str) {
    let is_waiting = format!(
        "select exists (select from pg_stat_activity where datname = current_database() and \
         wait_event_type = 'Lock' and \
         query like '%capstan.{write}%')"
    );
    while database.sql(&is_waiting) != "t" {}
    network.turn(Weather::Deaf);
    drop(held);
    while database.sql(is_done) != "t" {}
    network.clear_up();
    network.cut();
}
