//! The long versions: kills for a minute, rolling restarts, failovers of the server. `make soak` runs them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_client::{CapClient, CapError, Options};
use capstan_protocol::{Cursor, StreamPacket, Transcript};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::balancer::Balancer;
use crate::client::ask;
use crate::network::Network;
use crate::postgres_server::{Database, Engine};
use crate::wordy::Wordy;
use crate::Cluster;

const WORDS: usize = 50;
const PACE: Duration = Duration::from_millis(20);

/// Gateways with the wordy agent: a run may be taken up as often as it is interrupted.
fn config(wordy: &Wordy, lease: f64, durability: &str) -> String {
    format!(
        "durability = \"{durability}\"\n[cluster]\nlease = {lease}\n[timeouts]\nbackoff = 0.001\ndrain = 0.05\n\
         [[agents]]\nname = \"wordy\"\nkind = \"openai\"\nmodel = \"m\"\nurl = \"{}\"\nattempts = 1000\nmax_calls = 1000\n",
        wordy.url
    )
}

fn client(balancer: &Balancer) -> CapClient {
    let options = Options::new()
        .max_retries(1000)
        .backoff(Duration::from_millis(20), Duration::from_millis(200))
        .least_wait(Duration::from_millis(10))
        .strict(true);
    CapClient::with_options(&balancer.url, "", options).unwrap()
}

/// What a client had of a run in the end.
struct Had {
    stream: Uuid,
    text: String,
    /// By whoever only watched.
    watched: Vec<StreamPacket>,
}

/// Starts a run somewhere, watches it elsewhere, to its end.
async fn live_through(client: Arc<CapClient>) -> Result<Had, CapError> {
    let mut packets = client.assist(&ask("say something"));
    let (mut transcript, mut watching) = (Transcript::default(), None);
    while let Some(packet) = packets.next().await? {
        transcript.take(&packet);
        let stream = packet.stream_id;
        let client = Arc::clone(&client);
        watching.get_or_insert_with(|| (stream, tokio::spawn(async move { watch(&client, stream).await })));
    }
    let (stream, watching) = watching.expect("a run has packets");
    let watched = watching.await.unwrap()?;
    Ok(Had { stream, text: transcript.text().to_owned(), watched })
}

async fn watch(client: &CapClient, stream: Uuid) -> Result<Vec<StreamPacket>, CapError> {
    let (mut packets, mut seen) = (client.observe(Cursor::start(stream)), Vec::new());
    while let Some(packet) = packets.next().await? {
        seen.push(packet);
    }
    Ok(seen)
}

/// Runs that begin over a time, and what became of them.
fn rush(balancer: &Balancer, count: u32, over: Duration) -> JoinSet<Result<Had, CapError>> {
    let client = Arc::new(client(balancer));
    let mut runs = JoinSet::new();
    for n in 0..count {
        let client = Arc::clone(&client);
        runs.spawn(async move {
            tokio::time::sleep(over * n / count).await;
            live_through(client).await
        });
    }
    runs
}

/// Each has one whole answer of one call, no two the same; all viewers have the same bytes, live and later, everywhere.
async fn assert_exact(cluster: &Cluster, runs: Vec<Had>) {
    let mut calls = HashSet::new();
    for had in &runs {
        let call = Wordy::call_of(&had.text, WORDS);
        assert!(
            calls.insert(call.unwrap_or_else(|| panic!("{}: {:?}", had.stream, had.text))),
            "call {call:?}"
        );
        let seqs: Vec<_> = had.watched.iter().map(|packet| packet.seq).collect();
        assert_eq!(seqs, (1..=had.watched.len() as u64).collect::<Vec<_>>());
        let mut replays = HashSet::new();
        for server in 0..cluster.servers.len() {
            replays.insert(cluster.replay(server, &had.stream.to_string()).await);
        }
        assert_eq!(replays.len(), 1, "{}: the same bytes everywhere", had.stream);
        let replayed = crate::packets(replays.iter().next().unwrap());
        assert_eq!(replayed, had.watched, "{}: what was seen live is what is kept", had.stream);
    }
    let streams: HashSet<_> = runs.iter().map(|had| had.stream).collect();
    assert_eq!(streams.len(), runs.len(), "one run per key");
}

async fn all(runs: JoinSet<Result<Had, CapError>>) -> Vec<Had> {
    let ended = runs.join_all().await;
    ended
        .into_iter()
        .map(|had| had.unwrap_or_else(|error| panic!("a client saw an error: {error}")))
        .collect()
}

fn lead(balancer: &Balancer, cluster: &Cluster) {
    balancer.lead_to(cluster.servers.iter().map(|server| server.url.clone()));
}

async fn kill_minute(runs: u32, time: Duration) {
    let Some(database) = Database::create() else { return };
    let (wordy, balancer) = (Wordy::start(WORDS, PACE).await, Balancer::start().await);
    let mut cluster = Cluster::over(database.url.clone(), &config(&wordy, 1.0, "process"), None);
    lead(&balancer, &cluster);
    let (began, rush) = (Instant::now(), rush(&balancer, runs, time));
    let (mut kills, mut beat) = (0, tokio::time::interval(Duration::from_secs(1)));
    beat.tick().await;
    while began.elapsed() < time {
        beat.tick().await;
        let victim = fastrand::usize(..cluster.servers.len());
        cluster.servers.remove(victim).kill();
        lead(&balancer, &cluster);
        tokio::task::block_in_place(|| cluster.add());
        lead(&balancer, &cluster);
        kills += 1;
    }
    let had = all(rush).await;
    assert_eq!(database.sql("select count(*) from capstan.runs"), runs.to_string(), "one run per key");
    let calls = wordy.calls();
    assert_exact(&cluster, had).await;
    eprintln!("{runs} of {runs} exact: {kills} kills, {calls} calls of the agent, {:?}", began.elapsed());
    assert!(calls > runs as usize, "nothing was interrupted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a minute of kills"]
async fn soak_a_replica_killed_every_second_is_noticed_by_no_client() {
    kill_minute(200, Duration::from_secs(60)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "half a minute of restarts"]
async fn soak_a_rolling_restart_is_noticed_by_no_client() {
    let Some(database) = Database::create() else { return };
    let (wordy, balancer) = (Wordy::start(WORDS, PACE).await, Balancer::start().await);
    let mut cluster = Cluster::over(database.url.clone(), &config(&wordy, 10.0, "process"), None);
    lead(&balancer, &cluster);
    let rush = rush(&balancer, 60, Duration::from_secs(12));
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        // As a deploy does it: the next is there before one goes, and who goes takes nothing new.
        tokio::task::block_in_place(|| cluster.add());
        let leaving = cluster.servers.remove(0);
        lead(&balancer, &cluster);
        leaving.signal("TERM");
        let (status, log) = tokio::task::block_in_place(|| leaving.wait());
        assert_eq!(status.code(), Some(0), "{log}");
    }
    let had = all(rush).await;
    eprintln!("60 of 60 exact: 6 restarts, {} calls of the agent", wordy.calls());
    assert_exact(&cluster, had).await;
}

/// What becomes of runs while something is done to the server.
async fn through(engine: &mut Engine, durability: &str, act: impl AsyncFnOnce(&mut Engine, &Network)) {
    let (network, url) = Network::before(&engine.url()).await;
    let (wordy, balancer) = (Wordy::start(WORDS, PACE).await, Balancer::start().await);
    let cluster = Cluster::over(url, &config(&wordy, 60.0, durability), None);
    lead(&balancer, &cluster);
    let rush = rush(&balancer, 40, Duration::from_secs(4));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    act(engine, &network).await;
    let had = all(rush).await;
    assert_eq!(wordy.calls(), 40, "no run was interrupted");
    assert_exact(&cluster, had).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "servers of its own"]
async fn soak_a_server_killed_and_restarted_is_noticed_by_no_client() {
    for (durability, signal) in [("process", "KILL"), ("power", "KILL"), ("process", "INT")] {
        let Some(mut engine) = Engine::start(&["wal_writer_delay=10s"]) else { return };
        through(&mut engine, durability, async |engine, _| {
            engine.end(signal);
            tokio::task::block_in_place(|| engine.start_again());
        })
        .await;
    }
}

/// The standby takes over in the middle.
async fn fail_over(engine: &mut Engine, standby: &Engine, network: &Network) {
    engine.end("QUIT");
    network.cut();
    standby.sql("select pg_promote()");
    network.lead_to(standby.host());
    network.cut();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "servers of its own"]
async fn soak_a_failover_to_a_synchronous_standby_is_noticed_by_no_client() {
    let Some(mut engine) = Engine::start(&[]) else { return };
    let standby = engine.standby(&[]);
    engine.sql("alter system set synchronous_standby_names = '*'");
    engine.sql("select pg_reload_conf()");
    through(&mut engine, "power", async |engine, network| fail_over(engine, &standby, network).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "servers of its own"]
async fn soak_after_a_failover_to_an_asynchronous_standby_every_run_is_whole_or_ends_typed() {
    let Some(mut engine) = Engine::start(&[]) else { return };
    let standby = engine.standby(&[]);
    let (network, url) = Network::before(&engine.url()).await;
    let (wordy, balancer) = (Wordy::start(WORDS, PACE).await, Balancer::start().await);
    let cluster = Cluster::over(url, &config(&wordy, 60.0, "process"), None);
    lead(&balancer, &cluster);
    let rush = rush(&balancer, 40, Duration::from_secs(4));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // What it does not hear of is lost.
    let receiver = standby.sql("select pid from pg_stat_wal_receiver");
    let signal = |name: &str| {
        std::process::Command::new("kill").args([&format!("-{name}"), &receiver]).status().unwrap()
    };
    assert!(signal("STOP").success());
    tokio::time::sleep(Duration::from_millis(300)).await;
    engine.end("QUIT");
    network.cut();
    assert!(signal("KILL").success());
    standby.sql("select pg_promote()");
    network.lead_to(standby.host());
    network.cut();
    let (mut whole, mut typed) = (Vec::new(), Vec::new());
    for ended in rush.join_all().await {
        match ended {
            Ok(had) => whole.push(had),
            Err(CapError::Runtime(error)) => typed.push(error.code().to_string()),
            Err(error) => panic!("{error}"),
        }
    }
    eprintln!("40 runs: {} whole, {} lost: {typed:?}", whole.len(), typed.len());
    assert!(whole.len() >= 20, "{typed:?}");
    assert_exact(&cluster, whole).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a server of its own"]
async fn soak_used_up_connections_are_waited_for() {
    // Three gateways want more than there are.
    let Some(mut engine) = Engine::start(&["max_connections=24", "superuser_reserved_connections=1"]) else {
        return;
    };
    through(&mut engine, "process", async |_, _| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a disk of its own"]
async fn soak_a_full_disk_of_the_server_is_waited_for() {
    let Some(mut engine) = Engine::start_small(160) else { return };
    through(&mut engine, "process", async |engine, _| {
        let ballast = engine.fill();
        tokio::time::sleep(Duration::from_secs(3)).await;
        std::fs::remove_file(ballast).unwrap();
    })
    .await;
}
