//! 2. Replay of a finished stream of 100,000 packets, beside one ready-made body of the same size.

use std::io;
use std::time::Instant;

use serde_json::{Value, json};

use super::Kind;
use super::client::{Response, post};
use super::process::Server;
use super::script::Script;
use crate::rounds::{Rounds, how_many};
use crate::table::Table;

const ROUNDS: usize = 9;
const PACKETS: u64 = 100_000;

pub async fn run() -> io::Result<Value> {
    let folder = tempfile::tempdir()?;
    let (ours, peer) = (Kind::Process.start(folder.path())?, Server::peer()?);
    let mut first = post(ours.address, "/assist", Script::burst(PACKETS)).await?;
    let stream = first.header("x-stream-id").await?;
    let bytes = first.count().await?.bytes;
    let (path, body) = (format!("/v1/streams/{stream}"), format!("/static/{bytes}"));
    let (mut replayed, mut ready_made) = (Rounds::default(), Rounds::default());
    for _ in 0..how_many(ROUNDS) {
        replayed.push(rate(&ours, &path).await?);
        ready_made.push(rate(&peer, &body).await?);
    }
    let ratio = replayed.median() / ready_made.median();
    let mut table = Table::new(&["replay of 100,000 packets, MB/s", "median", "spread", "ratio"]);
    table.row(vec![
        "static body, axum".into(),
        whole(&ready_made),
        ready_made.spread(0),
        String::new(),
    ]);
    table.row(vec![
        Kind::Process.name().into(),
        whole(&replayed),
        replayed.spread(0),
        format!("{ratio:.2}x"),
    ]);
    table.print();
    Ok(json!({
        "packets": PACKETS, "bytes": bytes, "ratio_to_static": ratio,
        "packets_per_second": replayed.median() * 1e6 / bytes as f64 * PACKETS as f64,
        "replay_mb_per_second": replayed.to_json(), "static_mb_per_second": ready_made.to_json(),
    }))
}

fn whole(rounds: &Rounds) -> String {
    format!("{:.0}", rounds.median())
}

/// Megabytes per second.
async fn rate(server: &Server, path: &str) -> io::Result<f64> {
    let began = Instant::now();
    let tally = Response::get(server.address, path, "").await?.count().await?;
    Ok(tally.bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
}
