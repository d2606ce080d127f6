//! 5. A gateway is killed: how long until a viewer elsewhere is told, with the lease that nobody
//!    has changed.

use std::io;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Cluster, Kind};
use crate::gateway::client::{Response, post};
use crate::gateway::script::Script;
use crate::rounds::{Rounds, how_many};
use crate::table::Table;

const ROUNDS: usize = 3;
const SCRIPT: Script = Script { count: 100_000, pause: Duration::from_millis(20) };

pub async fn run() -> io::Result<Value> {
    let mut times = Rounds::default();
    for _ in 0..how_many(ROUNDS) {
        times.push(once().await?);
    }
    let mut table =
        Table::new(&["from kill -9 to run_interrupted at a viewer", "median s", "spread"]);
    table.row(vec!["lease of 10 s".into(), format!("{:.1}", times.median()), times.spread(1)]);
    table.print();
    Ok(json!({ "lease_seconds": 10, "seconds": times.to_json() }))
}

async fn once() -> io::Result<f64> {
    let mut cluster = Cluster::start(Kind::Three).await?;
    let mut first = post(cluster.servers[0].address, "/assist", SCRIPT).await?;
    let path = format!("/v1/streams/{}", first.header("x-stream-id").await?);
    let mut viewer = Response::get(cluster.servers[1].address, &path, "").await?;
    viewer.until("\"seq\":20,").await?;
    // Whoever takes over must have been steady for a whole lease, as the living usually are.
    tokio::time::sleep(Duration::from_secs(11)).await;
    drop(cluster.servers.remove(0));
    let began = Instant::now();
    viewer.until("run_interrupted").await?;
    Ok(began.elapsed().as_secs_f64())
}
