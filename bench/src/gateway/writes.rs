//! 1. Delivered agent writes per second: from the agent's write to the viewer's socket, journal
//!    included.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use serde_json::{Value, json};

use super::Kind;
use super::client::post;
use super::script::Script;
use crate::rounds::{Rounds, how_many};
use crate::table::Table;

const ROUNDS: usize = 5;
/// How many runs at once, and how much each writes: enough that starting and ending, which sync, do
/// not decide.
const RUNS: [(u64, u64); 3] = [(1, 300_000), (16, 25_000), (100, 5_000)];
const KINDS: [Kind; 4] = [Kind::Peer, Kind::Process, Kind::Power, Kind::Memory];

pub async fn run() -> io::Result<Value> {
    let mut table = Table::new(&[
        "delivered writes per second",
        "runs",
        "median",
        "spread",
        "ratio",
        "server µs/write",
    ]);
    let mut results = Vec::new();
    for (runs, count) in RUNS {
        let rounds = measure(runs, count).await?;
        let peer = rounds[0].0.median();
        for (kind, (rounds, cpu)) in KINDS.iter().zip(&rounds) {
            let ratio = rounds.median() / peer;
            table.row(vec![
                kind.name().to_owned(),
                runs.to_string(),
                format!("{:.0}", rounds.median()),
                rounds.spread(0),
                if *kind == Kind::Peer { String::new() } else { format!("{ratio:.2}x") },
                format!("{:.2}", cpu.median()),
            ]);
            results.push(json!({
                "kind": kind.name(), "runs": runs, "writes_per_run": count, "ratio_to_peer": ratio,
                "writes_per_second": rounds.to_json(),
                "server_cpu_microseconds_per_write": cpu.to_json(),
            }));
        }
    }
    table.print();
    Ok(json!({ "results": results }))
}

/// A, B, C, D, A, B, …: a slow moment of the machine hits all of them. Writes per second, and the
/// server's processor time for each, which depends less on what else the machine does.
async fn measure(runs: u64, count: u64) -> io::Result<Vec<(Rounds, Rounds)>> {
    let mut rounds = vec![<(Rounds, Rounds)>::default(); KINDS.len()];
    for _ in 0..how_many(ROUNDS) {
        for (kind, (rates, cpu)) in KINDS.iter().zip(&mut rounds) {
            let (rate, micros) = once(*kind, runs, count).await?;
            rates.push(rate);
            cpu.push(micros);
        }
    }
    Ok(rounds)
}

async fn once(kind: Kind, runs: u64, count: u64) -> io::Result<(f64, f64)> {
    let folder = tempfile::tempdir()?;
    let server = kind.start(folder.path())?;
    // The first request finds threads, caches and files unmade.
    deliver(&[server.address], 1, 1_000).await?;
    let (began, cpu, writes) = (Instant::now(), server.cpu()?, (runs * count) as f64);
    deliver(&[server.address], runs, count).await?;
    let rate = writes / began.elapsed().as_secs_f64();
    Ok((rate, (server.cpu()? - cpu).as_secs_f64() * 1e6 / writes))
}

/// So many runs at once, one server after the other.
pub async fn deliver(servers: &[SocketAddr], runs: u64, count: u64) -> io::Result<()> {
    let viewers: Vec<_> = (0..runs)
        .zip(servers.iter().copied().cycle())
        .map(|(_, address)| {
            tokio::spawn(async move {
                let mut response = post(address, "/assist", Script::burst(count)).await?;
                response.count().await
            })
        })
        .collect();
    for viewer in viewers {
        let tally = viewer.await??;
        // The writes and CLOSE; ours opens with a frame that holds the cursor.
        if tally.frames < count + 1 || tally.frames > count + 2 {
            return Err(io::Error::other(format!("{} frames for {count} writes", tally.frames)));
        }
    }
    Ok(())
}
