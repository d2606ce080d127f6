//! 2. 200 streams of 50 tokens a second: how long an append takes, and from the agent's write to a
//!    viewer's receipt, at the gateway that writes and at another.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use capstan_journal::{Claim, Frame, Quota, Replica, Store};
use capstan_protocol::Timestamp;
use capstan_stores::{Durability, Options, connect};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use super::database::Database;
use super::{Cluster, Kind, journal};
use crate::gateway::client::{Response, post};
use crate::gateway::fanout::listen;
use crate::gateway::script::{Script, nanos};
use crate::rounds::{Rounds, how_many};
use crate::table::Table;

const ROUNDS: usize = 3;
const STREAMS: usize = 200;
const PAUSE: Duration = Duration::from_millis(20);
/// Longer than anybody listens.
const SCRIPT: Script = Script { count: 3_000, pause: PAUSE };
const LISTEN: Duration = Duration::from_secs(3);
/// As long as a token's packet is.
const PACKET: usize = 150;

/// What is measured, of whom.
const CASES: [(&str, Kind, Case); 6] = [
    ("append", Kind::Disk, Case::Append),
    ("append", Kind::Process, Case::Append),
    ("append", Kind::Power, Case::Append),
    ("write to receipt, same gateway", Kind::Disk, Case::Here),
    ("write to receipt, same gateway", Kind::Process, Case::Here),
    ("write to receipt, another gateway", Kind::Three, Case::Elsewhere),
];

#[derive(Debug, Clone, Copy)]
enum Case {
    Append,
    Here,
    Elsewhere,
}

pub async fn run() -> io::Result<Value> {
    let mut rounds = vec![<[Rounds; 2]>::default(); CASES.len()];
    for _ in 0..how_many(ROUNDS) {
        for ((_, kind, case), rounds) in CASES.iter().zip(&mut rounds) {
            let mut delays = match case {
                Case::Append => append(*kind).await?,
                Case::Here | Case::Elsewhere => receive(*kind, *case).await?,
            };
            delays.sort_unstable();
            for (rounds, share) in rounds.iter_mut().zip([0.5, 0.99]) {
                rounds.push(delays[(delays.len() as f64 * share) as usize] as f64 / 1e6);
            }
        }
    }
    let (mut table, mut results) = (
        Table::new(&["200 streams x 50 tokens/s", "p50 ms", "spread", "p99 ms", "spread"]),
        Vec::new(),
    );
    for ((what, kind, _), [p50, p99]) in CASES.iter().zip(&rounds) {
        let figure = |rounds: &Rounds| format!("{:.2}", rounds.median());
        let name = format!("{what}, {}", kind.name());
        table.row(vec![name, figure(p50), p50.spread(2), figure(p99), p99.spread(2)]);
        results.push(json!({ "what": what, "kind": kind.name(), "p50_ms": p50.to_json(),
            "p99_ms": p99.to_json() }));
    }
    table.print();
    Ok(json!({ "streams": STREAMS, "tokens_per_second": 50, "seconds": LISTEN.as_secs(),
        "results": results }))
}

/// Nanoseconds from the agent's write to the receipt of each packet.
async fn receive(kind: Kind, case: Case) -> io::Result<Vec<u64>> {
    let cluster = Cluster::start(kind).await?;
    let here = cluster.servers[0].address;
    let elsewhere = if let Case::Elsewhere = case { cluster.servers[1].address } else { here };
    let (mut viewers, end) = (JoinSet::new(), Arc::new(AtomicU64::new(u64::MAX)));
    for _ in 0..STREAMS {
        let mut first = post(here, "/assist", SCRIPT).await?;
        let path = format!("/v1/streams/{}", first.header("x-stream-id").await?);
        // A run goes on without whoever began it, who would only take processor time.
        drop(first);
        let mut viewer = Response::get(elsewhere, &path, "").await?;
        viewer.until("\r\n\r\n").await?;
        viewers.spawn(listen(viewer, Arc::clone(&end)));
    }
    let all_here = nanos();
    end.store(all_here + LISTEN.as_nanos() as u64, Ordering::Relaxed);
    let mut delays = Vec::new();
    while let Some(heard) = viewers.join_next().await {
        delays.extend(
            heard??.into_iter().filter(|(said, _)| *said >= all_here).map(|(said, at)| at - said),
        );
    }
    let expected = STREAMS as u128 * LISTEN.as_millis() / PAUSE.as_millis();
    if (delays.len() as u128) < expected / 2 {
        return Err(io::Error::other(format!("only {} receipts of {expected}", delays.len())));
    }
    Ok(delays)
}

/// Nanoseconds that each append of one packet takes, asked of the store itself.
async fn append(kind: Kind) -> io::Result<Vec<u64>> {
    let folder = tempfile::tempdir()?;
    let database = if kind == Kind::Disk { None } else { Some(Database::create().await?) };
    let store = store(kind, &journal(database.as_ref(), folder.path())).await?;
    let mut writers = JoinSet::new();
    for n in 0..STREAMS {
        let stream = claimed(&store, "bench", &format!("k{n}")).await?;
        writers.spawn(write(Arc::clone(&store), stream, PAUSE * n as u32 / STREAMS as u32));
    }
    let mut delays = Vec::new();
    while let Some(taken) = writers.join_next().await {
        delays.extend(taken??);
    }
    store.close().await.map_err(io::Error::other)?;
    Ok(delays)
}

pub async fn store(kind: Kind, journal: &str) -> io::Result<Arc<dyn Store>> {
    let durability = if kind == Kind::Power { Durability::Power } else { Durability::Process };
    let options = Options { durability, ..Options::default() };
    connect(journal, options, Replica::default()).await.map_err(io::Error::other)
}

pub async fn claimed(store: &Arc<dyn Store>, tenant: &str, key: &str) -> io::Result<Uuid> {
    let claim = Claim::new(tenant, key, Uuid::now_v7(), Timestamp::now());
    let claimed = store.claim(claim, &Quota::UNLIMITED).await.map_err(io::Error::other)?;
    Ok(claimed.run.stream_id)
}

async fn write(store: Arc<dyn Store>, stream: Uuid, offset: Duration) -> io::Result<Vec<u64>> {
    tokio::time::sleep(offset).await;
    let mut beat = tokio::time::interval(PAUSE);
    let mut taken = Vec::new();
    for seq in 1..=(LISTEN.as_millis() / PAUSE.as_millis()) as u64 {
        beat.tick().await;
        let (began, frame) = (Instant::now(), Frame::new(seq, "x".repeat(PACKET)));
        store.append(stream, 1, vec![frame]).await.map_err(io::Error::other)?;
        taken.push(began.elapsed().as_nanos() as u64);
    }
    Ok(taken)
}
