//! 1. Delivered agent writes per second, as the gateway's bench has them, beside a folder in the
//!    same run.

use std::io;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Cluster, Kind};
use crate::gateway::writes::deliver;
use crate::rounds::{Rounds, how_many};
use crate::table::Table;

const ROUNDS: usize = 3;
const RUNS: [(u64, u64); 4] = [(1, 60_000), (16, 8_000), (100, 1_500), (1_000, 100)];
const KINDS: [Kind; 4] = [Kind::Disk, Kind::Process, Kind::Power, Kind::Three];

pub async fn run() -> io::Result<Value> {
    let head = [
        "delivered writes per second",
        "runs",
        "median",
        "spread",
        "to disk:",
        "gateways µs",
        "server µs",
    ];
    let (mut table, mut results) = (Table::new(&head), Vec::new());
    for (runs, count) in RUNS {
        let mut rounds = vec![<[Rounds; 3]>::default(); KINDS.len()];
        for _ in 0..how_many(ROUNDS) {
            for (kind, rounds) in KINDS.iter().zip(&mut rounds) {
                let figures = once(*kind, runs, count).await?;
                rounds.iter_mut().zip(figures).for_each(|(rounds, figure)| rounds.push(figure));
            }
        }
        let disk = rounds[0][0].median();
        for (kind, [rates, gateways, server]) in KINDS.iter().zip(&rounds) {
            let ratio = rates.median() / disk;
            table.row(vec![
                kind.name().into(),
                runs.to_string(),
                format!("{:.0}", rates.median()),
                rates.spread(0),
                format!("{ratio:.2}x"),
                format!("{:.1}", gateways.median()),
                format!("{:.1}", server.median()),
            ]);
            results.push(json!({
                "kind": kind.name(), "runs": runs, "writes_per_run": count, "ratio_to_disk": ratio,
                "writes_per_second": rates.to_json(),
                "gateways_cpu_microseconds_per_write": gateways.to_json(),
                "server_cpu_microseconds_per_write": server.to_json(),
            }));
        }
    }
    table.print();
    Ok(json!({ "results": results }))
}

/// Writes per second, and the processor time of gateways and of the database for each, in
/// microseconds.
async fn once(kind: Kind, runs: u64, count: u64) -> io::Result<[f64; 3]> {
    let cluster = Cluster::start(kind).await?;
    let addresses: Vec<_> = cluster.servers.iter().map(|server| server.address).collect();
    // The first request finds threads, caches and connections unmade.
    deliver(&addresses, addresses.len() as u64, 500).await?;
    let (before, began) = (spent(&cluster).await?, Instant::now());
    deliver(&addresses, runs, count).await?;
    let (seconds, after) = (began.elapsed().as_secs_f64(), spent(&cluster).await?);
    let (writes, micros) = ((runs * count) as f64, |at: usize| (after[at] - before[at]) * 1e6);
    Ok([writes / seconds, micros(0) / writes, micros(1) / writes])
}

async fn spent(cluster: &Cluster) -> io::Result<[f64; 2]> {
    let mut gateways = 0.0;
    for server in &cluster.servers {
        gateways += server.cpu()?.as_secs_f64();
    }
    let server = match &cluster.database {
        Some(database) => database.cpu().await?.as_secs_f64(),
        None => 0.0,
    };
    Ok([gateways, server])
}
