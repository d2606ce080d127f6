//! 4. What a million packets take: on disk, in the server's log, and in the gateway's memory.

use std::io;
use std::path::Path;
use std::sync::Arc;

use capstan_journal::{Frame, Store};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::database::Database;
use super::delivery::{claimed, store};
use super::{Cluster, Kind, journal};
use crate::gateway::writes::deliver;
use crate::table::Table;

const MILLION: f64 = 1e6;
/// One packet an append, which is the least that an agent can say: a tenth of a million is enough
/// to tell.
const STREAMS: usize = 100;
const SINGLE: u64 = 1_000;
/// As fast as an agent can: many packets an append.
const BURST: u64 = 3_000;
const PACKET: usize = 150;

pub async fn run() -> io::Result<Value> {
    let head =
        ["a million packets of 150 bytes, MB", "on disk", "of it index", "log", "gateway's memory"];
    let (mut table, mut results) = (Table::new(&head), Vec::new());
    for kind in [Kind::Disk, Kind::Process] {
        for (way, taken) in
            [("one at a time", single(kind).await?), ("in bursts", burst(kind).await?)]
        {
            let [disk, index, log, memory] = taken;
            let megabytes = |bytes: Option<f64>| {
                bytes.map_or_else(String::new, |bytes| format!("{:.0}", bytes / 1e6))
            };
            let name = format!("{}, {way}", kind.name());
            table.row(vec![
                name,
                megabytes(disk),
                megabytes(index),
                megabytes(log),
                megabytes(memory),
            ]);
            results.push(json!({ "kind": kind.name(), "way": way, "disk": disk, "index": index,
            "log": log, "memory": memory }));
        }
    }
    table.print();
    Ok(json!({ "results": results }))
}

/// Bytes per million packets: on disk, of it index, log, and memory of the gateway.
type Taken = [Option<f64>; 4];

async fn single(kind: Kind) -> io::Result<Taken> {
    let folder = tempfile::tempdir()?;
    let database = if kind == Kind::Disk { None } else { Some(Database::create().await?) };
    let store = store(kind, &journal(database.as_ref(), folder.path())).await?;
    let before = log(database.as_ref()).await?;
    let mut writers = JoinSet::new();
    for n in 0..STREAMS {
        let stream = claimed(&store, "bench", &n.to_string()).await?;
        writers.spawn(write(Arc::clone(&store), stream));
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    store.close().await.map_err(io::Error::other)?;
    let taken = taken(database.as_ref(), folder.path(), before).await?;
    Ok(scaled(taken, None, STREAMS as u64 * SINGLE))
}

async fn write(store: Arc<dyn Store>, stream: uuid::Uuid) -> io::Result<()> {
    for seq in 1..=SINGLE {
        let frame = Frame::new(seq, "x".repeat(PACKET));
        store.append(stream, 1, vec![frame]).await.map_err(io::Error::other)?;
    }
    Ok(())
}

async fn burst(kind: Kind) -> io::Result<Taken> {
    let cluster = Cluster::start(kind).await?;
    let addresses = [cluster.servers[0].address];
    deliver(&addresses, 1, 500).await?;
    let (log, memory) = (log(cluster.database.as_ref()).await?, cluster.servers[0].resident()?);
    deliver(&addresses, STREAMS as u64, BURST).await?;
    // The most there ever was, whatever is given back afterwards: not a figure that grows with the
    // packets.
    let peak = cluster.servers[0].peak()?.saturating_sub(memory);
    let taken = taken(cluster.database.as_ref(), cluster.folder.path(), log).await?;
    Ok(scaled(taken, Some(peak as f64), STREAMS as u64 * BURST))
}

fn scaled(taken: [Option<f64>; 3], memory: Option<f64>, packets: u64) -> Taken {
    let [disk, index, log] = taken.map(|bytes| bytes.map(|bytes| bytes * MILLION / packets as f64));
    [disk, index, log, memory]
}

async fn log(database: Option<&Database>) -> io::Result<i64> {
    match database {
        Some(database) => database.log().await,
        None => Ok(0),
    }
}

async fn taken(
    database: Option<&Database>,
    folder: &Path,
    before: i64,
) -> io::Result<[Option<f64>; 3]> {
    let Some(database) = database else { return Ok([Some(size(folder)? as f64), None, None]) };
    let disk: i64 = database.ask("select pg_total_relation_size('capstan.blocks')").await?;
    let index: i64 = database.ask("select pg_indexes_size('capstan.blocks')").await?;
    let log = database.log().await? - before;
    Ok([disk, index, log].map(|bytes| Some(bytes as f64)))
}

/// All files of a folder.
fn size(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { size(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}
