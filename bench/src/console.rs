//! `console`: what it costs a gateway that somebody has the console open: packets delivered and runs started per second, with nobody
//! who looks and with three pages open.
//!
//! A browser would take the cores that are measured, so its questions are asked without one, as often as the pages ask them: the feed
//! of each, the health every five seconds, the overview and a run once a second. Both cases take turns.

mod page;
mod starts;

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use serde_json::json;
use tokio::task::JoinSet;

use crate::gateway::process::Server;
use crate::gateway::writes::deliver;
use crate::rounds::{Rounds, how_many};
use crate::table::Table;
use crate::{environment, gateway};

const CRATES: &[&str] = &["axum", "hyper", "tokio"];
/// Many, because the difference is small.
const ROUNDS: usize = 15;
const RUNS: u64 = 100;
const WRITES: u64 = 3_000;

/// Figures of one case: packets per second, processor time of one, the same of starts.
type Figures = [Rounds; 4];

pub fn run() -> io::Result<()> {
    capstan_bench_kit::process::allow_many_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let environment = environment::describe(CRATES);
    let mut cases = [Figures::default(), Figures::default()];
    runtime.block_on(async {
        for round in 0..how_many(ROUNDS) {
            // Who comes first changes from round to round.
            for case in if round % 2 == 0 { [0, 1] } else { [1, 0] } {
                let figures = once(case == 1).await?;
                cases[case].iter_mut().zip(figures).for_each(|(rounds, figure)| rounds.push(figure));
            }
        }
        io::Result::Ok(())
    })?;
    print(&cases);
    let told = |[packets, packet, starts, start]: &Figures| {
        json!({
            "packets_per_second": packets.to_json(), "cpu_microseconds_per_packet": packet.to_json(),
            "starts_per_second": starts.to_json(), "cpu_microseconds_per_start": start.to_json(),
        })
    };
    let [closed, open] = cases.each_ref().map(told);
    let result = json!({ "bench": "console", "environment": environment, "runs": RUNS, "closed": closed, "open": open });
    environment::save("console", &result)
}

fn print([closed, open]: &[Figures; 2]) {
    let names =
        ["packets per second", "processor µs a packet", "runs started per second", "processor µs a start"];
    let mut table = Table::new(&["", "nobody looks", "spread", "three pages open", "spread", "ratio"]);
    for ((name, closed), open) in names.iter().zip(closed).zip(open) {
        let figure = |rounds: &Rounds| format!("{:.1}", rounds.median());
        let ratio = format!("{:.3}", open.median() / closed.median());
        let row = [(*name).to_owned(), figure(closed), closed.spread(1), figure(open), open.spread(1), ratio];
        table.row(row.into());
    }
    table.print();
}

async fn once(is_open: bool) -> io::Result<[f64; 4]> {
    let folder = tempfile::tempdir()?;
    let server = Server::on_disk(folder.path())?;
    // The first request finds threads, caches and files unmade.
    deliver(&[server.address], 1, 1_000).await?;
    let mut pages = if is_open { open(server.address).await? } else { JoinSet::new() };
    let (began, cpu) = (Instant::now(), server.cpu()?);
    deliver(&[server.address], RUNS, WRITES).await?;
    let packets = (RUNS * WRITES) as f64;
    let rate = packets / began.elapsed().as_secs_f64();
    let micros = (server.cpu()? - cpu).as_secs_f64() * 1e6 / packets;
    let (began, cpu) = (Instant::now(), server.cpu()?);
    let started = starts::many(server.address).await? as f64;
    let start = (server.cpu()? - cpu).as_secs_f64() * 1e6 / started;
    let rates = [rate, micros, started / began.elapsed().as_secs_f64(), start];
    // A page that has lost the gateway has cost nothing.
    while let Some(ended) = pages.try_join_next() {
        ended??;
    }
    Ok(rates)
}

/// The list, the overview, and the page of a run that goes on. They stay open as long as this is held.
async fn open(address: SocketAddr) -> io::Result<JoinSet<io::Result<()>>> {
    let mut first = gateway::client::post(address, "/assist", gateway::script::Script::silence()).await?;
    let run = format!("/v1/console/runs/{}", first.header("x-stream-id").await?);
    let mut pages = JoinSet::new();
    for path in ["/v1/console/runs?limit=100", "/v1/console/overview", run.as_str()] {
        page::open(&mut pages, address, path.to_owned()).await?;
    }
    Ok(pages)
}
