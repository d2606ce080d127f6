//! `console`: what it costs a gateway that somebody has the console open: packets delivered and
//! runs started per second, with nobody who looks and with three pages open.
//!
//! A browser would take the cores that are measured, so its questions are asked without one, as
//! often as the pages ask them: the feed of each, the health every five seconds, the overview and a
//! run once a second. Both cases are stretches of one process's life, a few seconds each and side
//! by side: what the host does to one of a pair it does to the other, and each pair is a ratio.

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
const PAIRS: usize = 31;
const RUNS: u64 = 100;
const WRITES: u64 = 3_000;

/// Packets per second, processor time of one, the same of starts.
const NAMES: [(&str, &str); 4] = [
    ("packets_per_second", "packets per second"),
    ("cpu_microseconds_per_packet", "processor µs a packet"),
    ("starts_per_second", "runs started per second"),
    ("cpu_microseconds_per_start", "processor µs a start"),
];

/// A figure with nobody who looks, with pages open, and of each pair the ratio.
type Figures = [Rounds; 3];

pub fn run() -> io::Result<()> {
    capstan_bench_kit::process::allow_many_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let environment = environment::describe(CRATES);
    let figures = runtime.block_on(pairs())?;
    print(&figures);
    let told = NAMES.iter().zip(&figures).map(|((name, _), [closed, open, ratio])| {
        let told = json!({ "closed": closed.to_json(), "open": open.to_json(),
        "ratio": ratio.to_json(), "middle_half": ratio.middle_half() });
        ((*name).to_owned(), told)
    });
    let figures: serde_json::Map<_, _> = told.collect();
    let result =
        json!({ "bench": "console", "environment": environment, "runs": RUNS, "figures": figures });
    environment::save("console", &result)
}

fn print(figures: &[Figures; 4]) {
    let mut table = Table::new(&[
        "",
        "nobody looks",
        "three pages open",
        "ratio of a pair",
        "of the middle half",
    ]);
    for ((_, name), [closed, open, ratio]) in NAMES.iter().zip(figures) {
        let figure = |rounds: &Rounds| format!("{:.1}", rounds.median());
        let [low, high] = ratio.middle_half();
        let row = [
            (*name).to_owned(),
            figure(closed),
            figure(open),
            format!("{:.3}", ratio.median()),
            format!("{low:.3}..{high:.3}"),
        ];
        table.row(row.into());
    }
    table.print();
}

async fn pairs() -> io::Result<[Figures; 4]> {
    let folder = tempfile::tempdir()?;
    let server = Server::on_disk(folder.path())?;
    // The first requests find threads, caches and files unmade.
    stretch(&server).await?;
    let mut going_on =
        gateway::client::post(server.address, "/assist", gateway::script::Script::silence())
            .await?;
    let run = format!("/v1/console/runs/{}", going_on.header("x-stream-id").await?);
    let mut figures = <[Figures; 4]>::default();
    for pair in 0..how_many(PAIRS) {
        let mut cases = [[0.0; 4]; 2];
        // Who comes first changes from pair to pair.
        for case in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let mut pages =
                if case == 1 { open(server.address, &run).await? } else { JoinSet::new() };
            cases[case] = stretch(&server).await?;
            // A page that has lost the gateway has cost nothing.
            while let Some(ended) = pages.try_join_next() {
                ended??;
            }
            pages.shutdown().await;
        }
        let [closed, open] = cases;
        for ((figures, closed), open) in figures.iter_mut().zip(closed).zip(open) {
            figures
                .iter_mut()
                .zip([closed, open, open / closed])
                .for_each(|(rounds, figure)| rounds.push(figure));
        }
    }
    Ok(figures)
}

/// Packets, then starts.
async fn stretch(server: &Server) -> io::Result<[f64; 4]> {
    let (began, cpu) = (Instant::now(), server.cpu()?);
    deliver(&[server.address], RUNS, WRITES).await?;
    let packets = (RUNS * WRITES) as f64;
    let rate = packets / began.elapsed().as_secs_f64();
    let micros = (server.cpu()? - cpu).as_secs_f64() * 1e6 / packets;
    let (began, cpu) = (Instant::now(), server.cpu()?);
    let started = starts::many(server.address).await? as f64;
    let start = (server.cpu()? - cpu).as_secs_f64() * 1e6 / started;
    Ok([rate, micros, started / began.elapsed().as_secs_f64(), start])
}

/// The list, the overview, and the page of a run that goes on. They stay open as long as this is
/// held.
async fn open(address: SocketAddr, run: &str) -> io::Result<JoinSet<io::Result<()>>> {
    let mut pages = JoinSet::new();
    for path in ["/v1/console/runs?limit=100", "/v1/console/overview", run] {
        page::open(&mut pages, address, path.to_owned()).await?;
    }
    Ok(pages)
}
