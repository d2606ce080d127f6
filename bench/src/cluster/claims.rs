//! 3. Claims per second, each synced, asked of the store itself by so many at once.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::database::Database;
use super::delivery::{claimed, store};
use super::{Kind, journal};
use crate::rounds::{Rounds, how_many};
use crate::table::Table;

const ROUNDS: usize = 3;
const CLIENTS: [usize; 3] = [1, 16, 256];
const TIME: Duration = Duration::from_millis(1_000);
const KINDS: [Kind; 2] = [Kind::Disk, Kind::Process];

/// With as many threads as a gateway has.
pub fn run() -> io::Result<Value> {
    std::thread::spawn(|| tokio::runtime::Runtime::new()?.block_on(measure()))
        .join()
        .map_err(|_| io::Error::other("the bench panicked"))?
}

async fn measure() -> io::Result<Value> {
    let (mut table, mut results) =
        (Table::new(&["claims per second", "at once", "median", "spread"]), Vec::new());
    for clients in CLIENTS {
        let mut rounds = vec![Rounds::default(); KINDS.len()];
        for _ in 0..how_many(ROUNDS) {
            for (kind, rounds) in KINDS.iter().zip(&mut rounds) {
                rounds.push(once(*kind, clients).await?);
            }
        }
        for (kind, rounds) in KINDS.iter().zip(&rounds) {
            let median = format!("{:.0}", rounds.median());
            table.row(vec![kind.name().into(), clients.to_string(), median, rounds.spread(0)]);
            results.push(json!({ "kind": kind.name(), "at_once": clients,
                "claims_per_second": rounds.to_json() }));
        }
    }
    table.print();
    Ok(json!({ "results": results }))
}

async fn once(kind: Kind, clients: usize) -> io::Result<f64> {
    let folder = tempfile::tempdir()?;
    let database = if kind == Kind::Disk { None } else { Some(Database::create().await?) };
    let store = store(kind, &journal(database.as_ref(), folder.path())).await?;
    claimed(&store, "bench", "first").await?;
    let (began, mut claimants) = (Instant::now(), JoinSet::new());
    for n in 0..clients {
        let store = Arc::clone(&store);
        claimants.spawn(async move {
            let mut count = 0_u64;
            while began.elapsed() < TIME {
                claimed(&store, "bench", &format!("{n}/{count}")).await?;
                count += 1;
            }
            io::Result::Ok(count)
        });
    }
    let mut count = 0;
    while let Some(made) = claimants.join_next().await {
        count += made??;
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    store.close().await.map_err(io::Error::other)?;
    Ok(rate)
}
