//! One live stream of 50 tokens a second to a thousand viewers: from a token's sending to each
//! receipt.
//!
//! The others tell the time themselves; behind capstan a provider does, whose way to it is counted
//! as well.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use capstan_bench_kit::response::Response;
use capstan_bench_kit::rounds::{Rounds, how_many};
use capstan_bench_kit::table::Table;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::agent_request;
use crate::contender::{Contender, start_provider};
use crate::provider::PERIOD;
use crate::server::Server;
use crate::stamps::{now, percentile, take};

const ROUNDS: usize = 3;
const VIEWERS: usize = 1_000;
const LISTEN: Duration = Duration::from_secs(4);

const CONTENDERS: &[Contender] = &[Contender::Node, Contender::Axum, Contender::CapstanDisk];

pub async fn run() -> io::Result<Value> {
    let mut rounds = vec![<[Rounds; 3]>::default(); CONTENDERS.len()];
    for _ in 0..how_many(ROUNDS) {
        for (contender, rounds) in CONTENDERS.iter().zip(&mut rounds) {
            let figures = once(*contender).await?;
            rounds.iter_mut().zip(figures).for_each(|(rounds, figure)| rounds.push(figure));
        }
    }
    let mut table = Table::new(&["1,000 viewers", "p50 ms", "p99 ms", "spread", "CPU s"]);
    let mut results = Vec::new();
    for (contender, [p50, p99, cpu]) in CONTENDERS.iter().zip(&rounds) {
        let figure = |rounds: &Rounds| format!("{:.2}", rounds.median());
        table.row(vec![
            contender.name().into(),
            figure(p50),
            figure(p99),
            p99.spread(2),
            figure(cpu),
        ]);
        results.push(json!({ "name": contender.name(), "p50_ms": p50.to_json(),
        "p99_ms": p99.to_json(), "cpu_seconds": cpu.to_json() }));
    }
    table.print();
    Ok(json!({ "viewers": VIEWERS, "seconds": LISTEN.as_secs(), "results": results }))
}

/// p50 and p99 in milliseconds, and the server's processor seconds.
async fn once(contender: Contender) -> io::Result<[f64; 3]> {
    let provider = start_provider()?;
    let server = contender.start(provider.address)?;
    let mut first = None;
    let mut path = "/live".to_owned();
    if contender == Contender::CapstanDisk {
        let run = first.insert(agent_request::start(server.address, "endless", "speak").await?);
        path = agent_request::stream_path(run).await?;
    }
    let (mut viewers, end) = (JoinSet::new(), Arc::new(AtomicU64::new(u64::MAX)));
    for _ in 0..VIEWERS {
        let mut viewer = Response::get(server.address, &path, "").await?;
        viewer.until("\r\n\r\n").await?;
        viewers.spawn(listen(viewer, Arc::clone(&end)));
    }
    if first.is_none() {
        speak(&server).await?;
    }
    // What was said while viewers still came is not counted.
    let (all_here, cpu) = (now(), server.cpu()?);
    end.store(all_here + LISTEN.as_micros() as u64, Ordering::Relaxed);
    let mut delays = Vec::new();
    while let Some(heard) = viewers.join_next().await {
        delays.extend(
            heard??
                .into_iter()
                .filter(|(said, _)| *said >= all_here)
                .map(|(said, at)| at.saturating_sub(said)),
        );
    }
    let cpu = server.cpu()? - cpu;
    if delays.len() < VIEWERS * 100 {
        return Err(io::Error::other(format!(
            "{}: only {} receipts",
            contender.name(),
            delays.len()
        )));
    }
    Ok([percentile(&mut delays, 0.50), percentile(&mut delays, 0.99), cpu])
}

async fn speak(server: &Server) -> io::Result<()> {
    let path = format!("/speak/{}", PERIOD.as_micros());
    agent_request::post(server.address, &path, "").await?.until("\r\n\r\n").await
}

/// When each token was said and when it came, until one was said after the end.
async fn listen(mut viewer: Response, end: Arc<AtomicU64>) -> io::Result<Vec<(u64, u64)>> {
    let (mut heard, mut rest, mut is_over) = (Vec::new(), Vec::new(), false);
    while !is_over {
        rest.extend_from_slice(viewer.read_some().await?);
        let at = now();
        take(&mut rest, |said| {
            is_over |= said > end.load(Ordering::Relaxed);
            heard.push((said, at));
        });
    }
    heard.retain(|(said, _)| *said <= end.load(Ordering::Relaxed));
    Ok(heard)
}
