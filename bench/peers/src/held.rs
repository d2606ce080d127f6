//! How many streams of 50 tokens a second a gateway holds: the largest load of a ladder at which it
//! adds at most 50 ms to 99 of 100 tokens, whoever else waits for the same cores: provider and
//! callers are on them too.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;

use capstan_bench_kit::table::Table;
use serde_json::{Value, json};

use crate::contender::{Contender, start_provider};
use crate::gateways::{CONTENDERS, load};
use crate::provider::Api;
use crate::stamps::percentile;

const LADDER: &[usize] =
    &[5, 10, 20, 40, 60, 80, 100, 150, 200, 300, 400, 600, 800, 1_000, 1_200, 1_500];
const MOST_MS: f64 = 50.0;
/// A load is held if it is in most of so many tries.
const TRIES: usize = 3;

/// What was seen of one load: p99 in milliseconds by try; a failure is none.
type Steps = BTreeMap<usize, Vec<Option<f64>>>;

pub async fn run() -> io::Result<Value> {
    let provider = start_provider()?;
    let mut alone = BTreeMap::new();
    let (mut table, mut results) = (Table::new(&["p99 within 50 ms", "streams"]), Vec::new());
    let gateways = CONTENDERS.iter().copied().filter(|contender| *contender != Contender::Direct);
    for contender in gateways.filter(|contender| contender.skipped().is_none()) {
        let server = contender.start(provider.address)?;
        // Its first streams find code and connections unmade.
        let _ = load(contender, Api::Chat, server.address, provider.address, 5).await;
        let mut steps = Steps::new();
        // Whoever holds a load holds the lower ones: halving finds the last that is held.
        let (mut held, mut missed) = (0, LADDER.len());
        while held < missed {
            let middle = held + (missed - held) / 2;
            let streams = LADDER[middle];
            let base = base(provider.address, streams, &mut alone).await?;
            let tries = climb(contender, server.address, provider.address, streams, base).await;
            if tries.iter().flatten().filter(|p99| **p99 - base <= MOST_MS).count() * 2 > TRIES {
                held = middle + 1;
            } else {
                missed = middle;
            }
            steps.insert(streams, tries);
        }
        let held = held.checked_sub(1).map_or(0, |step| LADDER[step]);
        table.row(vec![contender.name().into(), held.to_string()]);
        results.push(json!({ "name": contender.name(), "held": held, "p99_ms": steps }));
    }
    table.print();
    Ok(json!({ "most_ms": MOST_MS, "ladder": LADDER, "provider_p99_ms": alone,
        "results": results }))
}

/// The provider's own p99 at a load, measured once.
async fn base(
    provider: SocketAddr,
    streams: usize,
    alone: &mut BTreeMap<usize, f64>,
) -> io::Result<f64> {
    if let Some(p99) = alone.get(&streams) {
        return Ok(*p99);
    }
    let mut seen = load(Contender::Direct, Api::Chat, provider, provider, streams).await?;
    let p99 = percentile(&mut seen.tokens, 0.99);
    alone.insert(streams, p99);
    Ok(p99)
}

/// Tries a load until it is decided.
async fn climb(
    contender: Contender,
    address: SocketAddr,
    provider: SocketAddr,
    streams: usize,
    base: f64,
) -> Vec<Option<f64>> {
    let mut tries = Vec::new();
    let (mut held, mut missed) = (0, 0);
    while held.max(missed) * 2 < TRIES {
        let seen = load(contender, Api::Chat, address, provider, streams).await.ok();
        let p99 = seen.map(|mut seen| percentile(&mut seen.tokens, 0.99));
        match p99.is_some_and(|p99| p99 - base <= MOST_MS) {
            true => held += 1,
            false => missed += 1,
        }
        tries.push(p99);
    }
    tries
}
