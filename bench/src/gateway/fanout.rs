//! 3. One live stream to a thousand viewers: from the agent's write to each viewer's receipt.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use memchr::memmem;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::Kind;
use super::client::{Response, post};
use super::process::Server;
use super::script::{STAMP, Script, nanos};
use crate::rounds::{Rounds, how_many};
use crate::table::Table;

const ROUNDS: usize = 3;
const VIEWERS: usize = 1_000;
/// Longer than anybody listens, because viewers need time to come.
const SCRIPT: Script = Script { count: 3_000, pause: Duration::from_millis(20) };
/// What is said within this time of the last viewer's coming is counted.
const LISTEN: Duration = Duration::from_secs(4);

pub async fn run() -> io::Result<Value> {
    let mut table = Table::new(&[
        "write to receipt, 1,000 viewers",
        "p50 ms",
        "spread",
        "p99 ms",
        "spread",
        "CPU s",
    ]);
    let mut results = Vec::new();
    let kinds = [Kind::Peer, Kind::Process];
    let mut rounds = vec![[Rounds::default(), Rounds::default(), Rounds::default()]; kinds.len()];
    for _ in 0..how_many(ROUNDS) {
        for (kind, rounds) in kinds.iter().zip(&mut rounds) {
            let figures = once(*kind).await?;
            rounds.iter_mut().zip(figures).for_each(|(rounds, figure)| rounds.push(figure));
        }
    }
    for (kind, [p50, p99, cpu]) in kinds.iter().zip(&rounds) {
        let figure = |rounds: &Rounds| format!("{:.2}", rounds.median());
        table.row(vec![
            kind.name().into(),
            figure(p50),
            p50.spread(2),
            figure(p99),
            p99.spread(2),
            figure(cpu),
        ]);
        results
            .push(json!({ "kind": kind.name(), "p50_ms": p50.to_json(), "p99_ms": p99.to_json(),
        "server_cpu_seconds": cpu.to_json() }));
    }
    table.print();
    Ok(json!({ "viewers": VIEWERS, "seconds": LISTEN.as_secs(),
        "pause_ms": SCRIPT.pause.as_millis() as u64, "results": results }))
}

/// p50 and p99 in milliseconds, and the server's processor time for all of it.
async fn once(kind: Kind) -> io::Result<[f64; 3]> {
    let folder = tempfile::tempdir()?;
    let server = kind.start(folder.path())?;
    let (first, path) = begin(kind, &server).await?;
    let (mut viewers, end) = (JoinSet::new(), Arc::new(AtomicU64::new(u64::MAX)));
    for _ in 0..VIEWERS {
        let mut viewer = Response::get(server.address, &path, "").await?;
        viewer.until("\r\n\r\n").await?;
        viewers.spawn(listen(viewer, Arc::clone(&end)));
    }
    // Packets that were said while viewers still came are not counted.
    let (all_here, cpu) = (nanos(), server.cpu()?);
    end.store(all_here + LISTEN.as_nanos() as u64, Ordering::Relaxed);
    if kind == Kind::Peer {
        let path = format!("POST /live/{}", SCRIPT.to_text().replace(' ', "_"));
        Response::send(server.address, &path, "content-length: 0\r\n", "")
            .await?
            .until("\r\n\r\n")
            .await?;
    }
    let mut delays = Vec::new();
    while let Some(heard) = viewers.join_next().await {
        delays.extend(
            heard??.into_iter().filter(|(said, _)| *said >= all_here).map(|(said, at)| at - said),
        );
    }
    drop(first);
    delays.sort_unstable();
    let percentile = |share: f64| delays[(delays.len() as f64 * share) as usize] as f64 / 1e6;
    if delays.len() < VIEWERS * 100 {
        return Err(io::Error::other(format!("only {} receipts", delays.len())));
    }
    Ok([percentile(0.5), percentile(0.99), (server.cpu()? - cpu).as_secs_f64()])
}

/// Starts the run, if viewers need one to attach to, and says where they do.
async fn begin(kind: Kind, server: &Server) -> io::Result<(Option<Response>, String)> {
    if kind == Kind::Peer {
        return Ok((None, "/live".to_owned()));
    }
    let mut first = post(server.address, "/assist", SCRIPT).await?;
    let path = format!("/v1/streams/{}", first.header("x-stream-id").await?);
    Ok((Some(first), path))
}

/// When each packet was said and when it came, until one was said after the end.
pub async fn listen(mut viewer: Response, end: Arc<AtomicU64>) -> io::Result<Vec<(u64, u64)>> {
    let finder = memmem::Finder::new("\"p\":\"");
    let mut heard = Vec::new();
    let mut rest = std::mem::take(&mut viewer.unread);
    loop {
        rest.extend_from_slice(viewer.read_some().await?);
        let now = nanos();
        let mut done = 0;
        for at in finder.find_iter(&rest) {
            let start = at + finder.needle().len();
            let Some(stamp) = rest.get(start..start + STAMP) else { break };
            done = start + STAMP;
            let said = std::str::from_utf8(stamp).ok().and_then(|text| text.parse().ok());
            let said = said.ok_or_else(|| io::Error::other("a delta without a stamp"))?;
            if said > end.load(Ordering::Relaxed) {
                return Ok(heard);
            }
            heard.push((said, now));
        }
        rest.drain(..done);
    }
}
