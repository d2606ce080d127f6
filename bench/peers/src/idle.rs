//! Ten thousand viewers of a stream that says nothing: the server's memory.

use std::io;
use std::time::Duration;

use capstan_bench_kit::response::Response;
use capstan_bench_kit::rounds::{Rounds, how_many};
use capstan_bench_kit::table::Table;
use serde_json::{Value, json};

use crate::agent_request;
use crate::contender::{Contender, start_provider};

const ROUNDS: usize = 3;
const VIEWERS: usize = 10_000;
/// What is left over of their coming is given back meanwhile.
const SETTLE: Duration = Duration::from_secs(5);

const CONTENDERS: &[Contender] = &[Contender::Node, Contender::Axum, Contender::CapstanDisk];

pub async fn run() -> io::Result<Value> {
    let mut rounds = vec![<[Rounds; 2]>::default(); CONTENDERS.len()];
    for _ in 0..how_many(ROUNDS) {
        for (contender, [before, after]) in CONTENDERS.iter().zip(&mut rounds) {
            let (empty, full) = once(*contender).await?;
            before.push(empty);
            after.push(full);
        }
    }
    let mut table = Table::new(&["10,000 idle viewers", "MB before", "MB", "spread, bytes"]);
    let mut results = Vec::new();
    for (contender, [before, after]) in CONTENDERS.iter().zip(&rounds) {
        let mb = |rounds: &Rounds| format!("{:.0}", rounds.median() / 1e6);
        table.row(vec![contender.name().into(), mb(before), mb(after), after.spread(0)]);
        results.push(json!({ "name": contender.name(), "before_bytes": before.to_json(),
        "after_bytes": after.to_json() }));
    }
    table.print();
    Ok(json!({ "viewers": VIEWERS, "results": results }))
}

/// Its memory without viewers and with them.
async fn once(contender: Contender) -> io::Result<(f64, f64)> {
    let provider = start_provider()?;
    let server = contender.start(provider.address)?;
    let mut first = None;
    let mut path = "/live".to_owned();
    if contender == Contender::CapstanDisk {
        let run = first.insert(agent_request::start(server.address, "demo", "/hang").await?);
        path = agent_request::stream_path(run).await?;
    }
    let before = server.resident()?;
    let mut viewers = Vec::new();
    for _ in 0..VIEWERS {
        let mut viewer = Response::get(server.address, &path, "").await?;
        viewer.until("\r\n\r\n").await?;
        viewer.rest();
        viewers.push(viewer);
    }
    tokio::time::sleep(SETTLE).await;
    Ok((before, server.resident()?))
}
