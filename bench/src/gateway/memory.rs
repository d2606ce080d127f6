//! 5. Memory: a thousand readers that never read, and ten thousand that have nothing to read.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::Kind;
use super::client::{Response, post};
use super::process::Server;
use super::script::Script;
use crate::table::Table;

const STALLED: usize = 1_000;
const STREAMS: usize = 4;
/// About 60 MB of frames, in all.
const PACKETS: u64 = 270_000;
const IDLE: usize = 10_000;
/// How long the idle server is watched.
const WATCH: Duration = Duration::from_secs(20);

pub async fn run() -> io::Result<Value> {
    let (stalled, idle) = (stalled().await?, idle(Kind::Process).await?);
    let peer = idle_peer().await?;
    let mut table =
        Table::new(&["server memory, MB", "before", "after", "growth", "peak", "CPU s in 20 s"]);
    for (name, figures) in [
        ("1,000 stalled readers, 60 MB written", &stalled),
        ("10,000 idle viewers, capstan", &idle),
        ("10,000 idle viewers, axum Sse", &peer),
    ] {
        let mb = |name: &str| format!("{:.0}", figures[name].as_f64().unwrap_or_default() / 1e6);
        let cpu = figures["cpu_seconds"].as_f64().map_or(String::new(), |cpu| format!("{cpu:.2}"));
        table.row(vec![name.into(), mb("before"), mb("after"), mb("growth"), mb("peak"), cpu]);
    }
    table.print();
    Ok(json!({ "stalled": stalled, "idle": idle, "idle_peer": peer }))
}

/// From a server that has written as much twice before, so that what the journal itself holds is
/// not counted.
async fn stalled() -> io::Result<Value> {
    let folder = tempfile::tempdir()?;
    let server = Server::on_disk(folder.path())?;
    let fresh = server.resident()?;
    write(&server, &mut Vec::new(), 0).await?;
    write(&server, &mut Vec::new(), 0).await?;
    let before = server.resident()?;
    let mut readers = Vec::new();
    let bytes = write(&server, &mut readers, STALLED).await?;
    let after = server.resident()?;
    Ok(json!({ "readers": readers.len(), "bytes": bytes, "fresh": fresh, "before": before,
        "after": after,
        "growth": after.saturating_sub(before), "peak": server.peak()? }))
}

/// Writes to some streams while readers attach to them that never read; how much, as one who reads
/// saw it.
async fn write(server: &Server, readers: &mut Vec<Response>, stalled: usize) -> io::Result<u64> {
    let mut writers = Vec::new();
    for _ in 0..STREAMS {
        writers
            .push(post(server.address, "/assist", Script::burst(PACKETS / STREAMS as u64)).await?);
    }
    for number in 0..stalled {
        let stream = writers[number % STREAMS].header("x-stream-id").await?;
        readers.push(Response::get(server.address, &format!("/v1/streams/{stream}"), "").await?);
    }
    let mut bytes = 0;
    for writer in &mut writers {
        bytes += writer.count().await?.bytes;
    }
    Ok(bytes)
}

async fn idle(kind: Kind) -> io::Result<Value> {
    let folder = tempfile::tempdir()?;
    let server = kind.start(folder.path())?;
    let mut first = post(server.address, "/assist", Script::silence()).await?;
    let path = format!("/v1/streams/{}", first.header("x-stream-id").await?);
    hold(&server, &path).await
}

async fn idle_peer() -> io::Result<Value> {
    hold(&Server::peer()?, "/live").await
}

async fn hold(server: &Server, path: &str) -> io::Result<Value> {
    let before = server.resident()?;
    let mut viewers = Vec::new();
    for _ in 0..IDLE {
        let mut viewer = Response::get(server.address, path, "").await?;
        viewer.until("\r\n\r\n").await?;
        viewer.rest();
        viewers.push(viewer);
    }
    let cpu = server.cpu()?;
    tokio::time::sleep(WATCH).await;
    let cpu = (server.cpu()? - cpu).as_secs_f64();
    let after = server.resident()?;
    Ok(json!({ "viewers": viewers.len(), "before": before, "after": after,
        "growth": after.saturating_sub(before),
        "peak": server.peak()?, "bytes_per_viewer": after.saturating_sub(before) / IDLE as u64,
        "cpu_seconds": cpu,
        "watched_seconds": WATCH.as_secs() }))
}
