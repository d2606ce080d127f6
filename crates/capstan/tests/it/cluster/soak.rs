//! The long versions: kills for a minute, rolling restarts, failovers of the server. `make soak`
//! runs them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_client::{CapClient, CapError, Options};
use capstan_protocol::{Cursor, Payload, ServiceRequest, StreamPacket, Transcript};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::cluster::balancer::Balancer;
use crate::cluster::network::{Network, Weather};
use crate::cluster::postgres_server::{Database, Engine};
use crate::cluster::wordy::Wordy;
use crate::serve::client::ask;

/// Each is to have the machine for itself.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

const WORDS: usize = 50;
const PACE: Duration = Duration::from_millis(20);

/// Gateways with the wordy agent, with as many attempts as there are interruptions.
fn config(wordy: &Wordy, lease: f64, durability: &str) -> String {
    format!(
        "durability = \"{durability}\"\n[cluster]\nlease = {lease}\n[timeouts]\nbackoff = \
         0.001\ndrain = 0.05\n\
         [[agents]]\nname = \"wordy\"\nkind = \"openai\"\nmodel = \"m\"\nurl = \"{}\"\nattempts = \
         1000\nmax_calls = 1000\n",
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

/// What a client received of a run.
struct Had {
    stream: Uuid,
    text: String,
    /// The packets of the viewer.
    watched: Vec<StreamPacket>,
    /// The number of refusals before the run began.
    refusals: usize,
}

impl Had {
    /// The history of the run, without its text.
    fn story(&self) -> String {
        let is_told = |packet: &&StreamPacket| !matches!(packet.payload, Payload::Delta(_));
        let told: Vec<_> = self
            .watched
            .iter()
            .filter(is_told)
            .map(|packet| format!("{}: {:?}", packet.seq, packet.payload))
            .collect();
        format!("{} has {:?}\n{}", self.stream, self.text, told.join("\n"))
    }
}

/// Starts a run somewhere, watches it elsewhere, to its end.
async fn live_through(client: Arc<CapClient>) -> Result<Had, CapError> {
    let request = ask("say something");
    let mut refusals = 0;
    loop {
        match try_to_live_through(&client, &request).await {
            // A gateway without a lease refused the request before the run began. The client
            // repeats it; a load balancer that checks /readyz would do the same.
            Err(CapError::Runtime(error)) if error.code() == "journal_unavailable" => refusals += 1,
            had => return had.map(|had| Had { refusals, ..had }),
        }
    }
}

async fn try_to_live_through(
    client: &Arc<CapClient>,
    request: &ServiceRequest,
) -> Result<Had, CapError> {
    let mut packets = client.assist(request);
    let (mut transcript, mut watching) = (Transcript::default(), None);
    while let Some(packet) = packets.next().await? {
        transcript.take(&packet);
        let stream = packet.stream_id;
        let client = Arc::clone(client);
        watching.get_or_insert_with(|| {
            (stream, tokio::spawn(async move { watch(&client, stream).await }))
        });
    }
    let (stream, watching) = watching.expect("a run has packets");
    let watched =
        watching.await.unwrap().unwrap_or_else(|error| panic!("a viewer saw an error: {error:?}"));
    Ok(Had { stream, text: transcript.text().to_owned(), watched, refusals: 0 })
}

/// Watches a stream. A viewer that is refused at first tries again, like the client that starts.
async fn watch(client: &CapClient, stream: Uuid) -> Result<Vec<StreamPacket>, CapError> {
    let mut seen = Vec::new();
    loop {
        match try_to_watch(client, stream, &mut seen).await {
            Err(CapError::Runtime(error))
                if error.code() == "journal_unavailable" && seen.is_empty() => {}
            watched => return watched.map(|()| seen),
        }
    }
}

async fn try_to_watch(
    client: &CapClient,
    stream: Uuid,
    seen: &mut Vec<StreamPacket>,
) -> Result<(), CapError> {
    let mut packets = client.observe(Cursor::start(stream));
    while let Some(packet) = packets.next().await? {
        seen.push(packet);
    }
    Ok(())
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

/// Each run has one complete answer of one call, and no two share a call. All viewers have the same
/// bytes, live and later, at every gateway.
async fn assert_exact(cluster: &Cluster, runs: Vec<Had>) {
    assert_kept(cluster, runs, false).await;
}

/// The same, but for what a server may lose of it afterwards.
async fn assert_kept(cluster: &Cluster, runs: Vec<Had>, may_lose: bool) {
    let mut calls = HashSet::new();
    for had in &runs {
        let call = Wordy::call_of(&had.text, WORDS).unwrap_or_else(|| panic!("{}", had.story()));
        assert!(calls.insert(call), "call {call} answered twice");
        let seqs: Vec<_> = had.watched.iter().map(|packet| packet.seq).collect();
        assert_eq!(seqs, (1..=had.watched.len() as u64).collect::<Vec<_>>());
        let mut replays = HashSet::new();
        for server in 0..cluster.servers.len() {
            replays.insert(cluster.replay(server, &had.stream.to_string()).await);
        }
        assert_eq!(replays.len(), 1, "{}: the same bytes everywhere", had.stream);
        let replayed = crate::cluster::packets(replays.iter().next().unwrap());
        let seen =
            replayed.iter().zip(&had.watched).take_while(|(kept, seen)| kept == seen).count();
        let is_kept = seen == replayed.len() && seen == had.watched.len();
        // The stream reports the rest as lost, after the gap in seq.
        let is_said = replayed.get(seen).is_some_and(|packet| {
            packet.seq > 1 << 20
                && matches!(&packet.payload, Payload::Error(error) if error.code == "stream_lost")
        });
        assert!(
            is_kept || may_lose && is_said,
            "{}: what was seen live is what is kept",
            had.stream
        );
    }
    let streams: HashSet<_> = runs.iter().map(|had| had.stream).collect();
    assert_eq!(streams.len(), runs.len(), "one run per key");
}

async fn all(runs: JoinSet<Result<Had, CapError>>) -> Vec<Had> {
    let ended = runs.join_all().await;
    ended
        .into_iter()
        .map(|had| had.unwrap_or_else(|error| panic!("a client saw an error: {error:?}")))
        .collect()
}

fn lead(balancer: &Balancer, cluster: &Cluster) {
    balancer.lead_to(cluster.servers.iter().map(|server| server.url.clone()));
}

/// Front ends that speak AG-UI over a fetch that resumes, as the page and `resumableFetch` do: what
/// each shows in the end.
fn front_ends(balancer: &Balancer, count: u32, over: Duration) -> JoinSet<String> {
    let mut pages = JoinSet::new();
    for n in 0..count {
        let url = balancer.url.clone();
        pages.spawn(async move {
            tokio::time::sleep(over * n / count).await;
            FrontEnd::default().show(&url).await
        });
    }
    pages
}

#[derive(Default)]
struct FrontEnd {
    cursor: Option<String>,
    text: String,
}

impl FrontEnd {
    async fn show(mut self, url: &str) -> String {
        let input = serde_json::json!({ "threadId": Uuid::now_v7().to_string(),
        "runId": Uuid::now_v7().to_string(), "state": {},
            "messages": [{ "id": "u", "role": "user", "content": "say something" }], "tools": [],
            "context": [] });
        loop {
            let mut request =
                crate::serve::client::http().post(format!("{url}/v1/ag-ui")).json(&input);
            if let Some(cursor) = &self.cursor {
                request = request.header("last-event-id", cursor);
            }
            // A connection that breaks, and a gateway that is about to leave, are what a resuming
            // fetch hides.
            let Ok(mut response) = request.send().await else { continue };
            assert!(matches!(response.status().as_u16(), 200 | 503), "{response:?}");
            let (mut seen, mut read) = (Vec::new(), 0);
            while let Ok(Some(piece)) = response.chunk().await {
                seen.extend_from_slice(&piece);
                let whole = crate::cluster::whole_frames(&seen).len();
                let frames = String::from_utf8(seen[read..whole].to_vec()).unwrap();
                read = whole;
                for frame in frames.split("\n\n") {
                    match self.take(frame) {
                        Some(true) => return self.text,
                        // Interrupted: it waits for its client.
                        Some(false) => break,
                        None => {}
                    }
                }
            }
        }
    }

    /// Returns whether the run is over; false if it is only interrupted.
    fn take(&mut self, frame: &str) -> Option<bool> {
        let line = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name));
        let event: serde_json::Value = serde_json::from_str(line("data: ")?).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        match event["type"].as_str().unwrap() {
            "RUN_ERROR" => {
                assert!(
                    event.to_string().to_lowercase().contains("run_interrupted"),
                    "a front end saw {event}"
                );
                return Some(false);
            }
            "TEXT_MESSAGE_START" if self.text.is_empty() => {}
            "TEXT_MESSAGE_CONTENT" => self.text += &text(&event["delta"]),
            "MESSAGES_SNAPSHOT" => {
                let said = event["messages"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|message| message["role"] == "assistant");
                self.text = said.map(|message| text(&message["content"])).collect();
            }
            "RUN_FINISHED" => return Some(true),
            _ => {}
        }
        self.cursor = line("id: ").map(str::to_owned).or(self.cursor.take());
        None
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: half a minute of kills; needs PostgreSQL"]
async fn soak_clocks_five_seconds_apart_are_noticed_by_no_client() {
    let _alone = ALONE.lock().await;
    let database = Database::create();
    let (wordy, balancer) = (Wordy::start(WORDS, PACE).await, Balancer::start().await);
    let mut cluster = crate::cluster::sharing::skewed(&database, &config(&wordy, 4.0, "process"));
    lead(&balancer, &cluster);
    // Enough runs that each killed gateway owns some.
    let rush = rush(&balancer, 150, Duration::from_secs(15));
    for offset in ["+5s", "+0s", "-5s"] {
        tokio::time::sleep(Duration::from_secs(4)).await;
        cluster.servers.pop().unwrap().kill();
        tokio::task::block_in_place(|| crate::cluster::sharing::add_skewed(&mut cluster, offset));
        // Each in its turn: the next to go is the one that was before it.
        cluster.servers.rotate_right(1);
        lead(&balancer, &cluster);
    }
    let had = all(rush).await;
    let interrupted = wordy.calls() - 150;
    eprintln!("150 of 150 exact: 3 kills, clocks 5 s apart, {interrupted} runs taken over");
    assert!(interrupted > 0, "nothing was interrupted");
    assert_exact(&cluster, had).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: half a minute of partitions; needs PostgreSQL"]
async fn soak_a_gateway_that_is_cut_off_from_the_server_in_one_direction_is_noticed_by_no_client() {
    let _alone = ALONE.lock().await;
    let database = Database::create();
    let (wordy, balancer) = (Wordy::start(WORDS, PACE).await, Balancer::start().await);
    let config = config(&wordy, 4.0, "process");
    let mut cluster = Cluster::empty(database.url.clone(), &config);
    (0..2).for_each(|_| cluster.add());
    // The third gateway reaches the server through a network of its own.
    let (network, url) = Network::before(&database.url).await;
    let direct = std::mem::replace(&mut cluster.url, url);
    cluster.add();
    cluster.url = direct;
    lead(&balancer, &cluster);
    // Enough runs that the isolated gateway owns some.
    let rush = rush(&balancer, 120, Duration::from_secs(24));
    for weather in [Weather::Deaf, Weather::Still] {
        tokio::time::sleep(Duration::from_secs(3)).await;
        // Longer than its lease: the others take over what it had, and it can write nothing more.
        network.turn(weather);
        tokio::time::sleep(Duration::from_secs(8)).await;
        network.turn(Weather::Fair);
    }
    let had = all(rush).await;
    let interrupted = wordy.calls() - 120;
    eprintln!("120 of 120 exact: 2 partitions of 8 s, {interrupted} runs taken over");
    assert!(interrupted > 0, "nothing was interrupted");
    assert_exact(&cluster, had).await;
}

async fn kill_minute(runs: u32, time: Duration) {
    let database = Database::create();
    let (wordy, balancer) = (Wordy::start(WORDS, PACE).await, Balancer::start().await);
    // Shorter than the default, so that more is taken over; on a machine too busy for a sign of
    // life in a second, longer.
    let lease = std::env::var("CAPSTAN_SOAK_LEASE").map_or(4.0, |lease| lease.parse().unwrap());
    let mut cluster = Cluster::over(database.url.clone(), &config(&wordy, lease, "process"), None);
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
    assert_eq!(
        database.sql("select count(*) from capstan.runs"),
        runs.to_string(),
        "one run per key"
    );
    let (calls, refusals) = (wordy.calls(), had.iter().map(|had| had.refusals).sum::<usize>());
    assert_exact(&cluster, had).await;
    let time = began.elapsed();
    eprintln!(
        "{runs} of {runs} exact: {kills} kills, {calls} calls of the agent, {refusals} refusals, \
         {time:?}"
    );
    assert!(calls > runs as usize, "nothing was interrupted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a minute of kills; needs PostgreSQL"]
async fn soak_a_replica_killed_every_second_is_noticed_by_no_client() {
    let _alone = ALONE.lock().await;
    let seconds =
        std::env::var("CAPSTAN_SOAK_SECONDS").map_or(60, |seconds| seconds.parse().unwrap());
    kill_minute(seconds * 10 / 3, Duration::from_secs(seconds.into())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: half a minute of restarts; needs PostgreSQL"]
async fn soak_a_rolling_restart_is_noticed_by_no_client() {
    let _alone = ALONE.lock().await;
    let database = Database::create();
    let (wordy, balancer) = (Wordy::start(WORDS, PACE).await, Balancer::start().await);
    let mut cluster = Cluster::over(database.url.clone(), &config(&wordy, 10.0, "process"), None);
    lead(&balancer, &cluster);
    let rush = rush(&balancer, 60, Duration::from_secs(12));
    let pages = front_ends(&balancer, 30, Duration::from_secs(12));
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        // Like a deploy: the next gateway starts before one stops, and a stopping one accepts no
        // new runs.
        tokio::task::block_in_place(|| cluster.add());
        let leaving = cluster.servers.remove(0);
        lead(&balancer, &cluster);
        leaving.signal("TERM");
        let (status, log) = tokio::task::block_in_place(|| leaving.wait());
        assert_eq!(status.code(), Some(0), "{log}");
    }
    let had = all(rush).await;
    assert!(had.iter().all(|had| had.refusals == 0), "nobody is refused");
    for text in pages.join_all().await {
        assert!(Wordy::call_of(&text, WORDS).is_some(), "a front end shows {text:?}");
    }
    eprintln!(
        "60 of 60 exact, and 30 of 30 in AG-UI: 6 restarts, {} calls of the agent",
        wordy.calls()
    );
    assert_exact(&cluster, had).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: half a minute of lost leases; needs PostgreSQL"]
async fn soak_leases_that_are_lost_again_and_again_cancel_no_run() {
    let _alone = ALONE.lock().await;
    let database = Database::create();
    let (wordy, balancer) = (Wordy::start(WORDS, PACE).await, Balancer::start().await);
    let cluster = Cluster::over(database.url.clone(), &config(&wordy, 4.0, "process"), None);
    lead(&balancer, &cluster);
    let rush = rush(&balancer, 60, Duration::from_secs(12));
    for _ in 0..24 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Like a gateway that declared it dead. It is alive, and takes over its own runs.
        database.sql(
            "select capstan.end_lease(id) from capstan.replicas where state < 3 order by random() \
             limit 1",
        );
    }
    let had = all(rush).await;
    eprintln!("60 of 60 exact: 24 leases lost, {} calls of the agent", wordy.calls());
    assert_exact(&cluster, had).await;
}

/// Runs many runs while something happens to the server.
async fn through(
    engine: &mut Engine,
    durability: &str,
    act: impl AsyncFnOnce(&mut Engine, &Network),
) {
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
#[ignore = "soak: servers of its own; needs PostgreSQL"]
async fn soak_a_server_killed_and_restarted_is_noticed_by_no_client() {
    let _alone = ALONE.lock().await;
    for (durability, signal) in [("process", "KILL"), ("power", "KILL"), ("process", "INT")] {
        let mut engine = Engine::start(&["wal_writer_delay=10s"]);
        through(&mut engine, durability, async |engine, _| {
            engine.end(signal);
            tokio::task::block_in_place(|| engine.start_again());
        })
        .await;
    }
}

/// The standby takes over in the middle.
pub(crate) async fn fail_over(engine: &mut Engine, standby: &Engine, network: &Network) {
    engine.end("QUIT");
    network.cut();
    standby.sql("select pg_promote()");
    network.lead_to(standby.host());
    network.cut();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: servers of its own; needs PostgreSQL"]
async fn soak_a_failover_to_a_synchronous_standby_is_noticed_by_no_client() {
    let _alone = ALONE.lock().await;
    let mut engine = Engine::start(&[]);
    let standby = engine.standby(&[]);
    engine.sql("alter system set synchronous_standby_names = '*'");
    engine.sql("select pg_reload_conf()");
    through(&mut engine, "power", async |engine, network| {
        fail_over(engine, &standby, network).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: servers of its own; needs PostgreSQL"]
async fn soak_after_a_failover_to_an_asynchronous_standby_every_run_is_whole_or_ends_typed() {
    let _alone = ALONE.lock().await;
    let mut engine = Engine::start(&[]);
    let standby = engine.standby(&[]);
    let (network, url) = Network::before(&engine.url()).await;
    let (wordy, balancer) = (Wordy::start(WORDS, PACE).await, Balancer::start().await);
    let cluster = Cluster::over(url, &config(&wordy, 60.0, "process"), None);
    lead(&balancer, &cluster);
    let rush = rush(&balancer, 40, Duration::from_secs(4));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // Packets that the standby does not receive are lost.
    let receiver = standby.sql("select pid from pg_stat_wal_receiver");
    let signal = |name: &str| {
        std::process::Command::new("kill").args([&format!("-{name}"), &receiver]).status().unwrap()
    };
    assert!(signal("STOP").success());
    tokio::time::sleep(Duration::from_millis(300)).await;
    engine.end("QUIT");
    network.cut();
    // It ends before it reads what the kernel still holds for it.
    assert!(signal("TERM").success() && signal("CONT").success());
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
    assert_kept(&cluster, whole, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a server of its own; needs PostgreSQL"]
async fn soak_used_up_connections_are_waited_for() {
    let _alone = ALONE.lock().await;
    let mut engine = Engine::start(&["max_connections=60", "superuser_reserved_connections=0"]);
    through(&mut engine, "process", async |engine, network| {
        // Others take all that are free, then all that the gateways had.
        let take = || engine.ask_in_the_background("select pg_sleep(4)");
        let mut others: Vec<_> = (0..60).map(|_| take()).collect();
        network.cut();
        others.extend((0..60).map(|_| take()));
        tokio::task::block_in_place(|| others.iter_mut().for_each(|other| drop(other.wait())));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: a disk of its own; needs PostgreSQL and the right to mount"]
async fn soak_a_full_disk_of_the_server_is_waited_for() {
    let _alone = ALONE.lock().await;
    let mut engine = Engine::start_small(160);
    through(&mut engine, "process", async |engine, _| {
        let ballast = engine.fill();
        tokio::time::sleep(Duration::from_secs(3)).await;
        std::fs::remove_file(ballast).unwrap();
    })
    .await;
}
