//! 2. Pages of the list, of a journal with 100,000 runs: every page of every question to its end.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use capstan_journal::{Durability, open};
use serde_json::{Value, json};

use super::filled::Filling;
use crate::gateway::client::Response;
use crate::gateway::process::Server;
use crate::table::Table;

const RUNS: usize = 100_000;
const QUESTIONS: [(&str, &str); 7] = [
    ("everything", ""),
    ("one state, one in ten", "state=failed"),
    ("one state, none", "state=running"),
    ("a fault, one in ten", "fault=upstream_timeout"),
    ("a fault, one in a thousand", "fault=content_refused"),
    ("an agent and a state, one in twenty", "agent=steady&state=healed"),
    ("an agent that has no run", "agent=nobody"),
];

pub async fn run() -> io::Result<Value> {
    let folder = tempfile::tempdir()?;
    let store =
        open(&format!("disk:{}", folder.path().display()), Durability::Process).map_err(io::Error::other)?;
    Filling::new(&["local"], RUNS).fill(&store).await;
    store.close().await.map_err(io::Error::other)?;
    drop(store);
    let server = Server::on_disk(folder.path())?;
    let mut table =
        Table::new(&["a page of 100 of 100,000 runs, ms", "pages", "p50", "p95", "most", "kB at most"]);
    let (mut results, mut all) = (Vec::new(), Vec::new());
    for (what, query) in QUESTIONS {
        let mut pages = ask(server.address, query).await?;
        all.extend(pages.iter().map(|page| page.0));
        let bytes = pages.iter().map(|page| page.1).max().unwrap_or(0);
        pages.sort_by(|a, b| a.0.total_cmp(&b.0));
        let times: Vec<f64> = pages.iter().map(|page| page.0).collect();
        let [p50, p95, most] = [0.5, 0.95, 1.0].map(|share| percentile(&times, share));
        table.row(vec![
            what.to_owned(),
            times.len().to_string(),
            format!("{p50:.1}"),
            format!("{p95:.1}"),
            format!("{most:.1}"),
            format!("{:.0}", bytes as f64 / 1e3),
        ]);
        results.push(json!({ "what": what, "query": query, "pages": times.len(), "p50_ms": p50, "p95_ms": p95, "most_ms": most, "most_bytes": bytes }));
    }
    table.print();
    all.sort_by(f64::total_cmp);
    Ok(
        json!({ "runs": RUNS, "pages": all.len(), "p50_ms": percentile(&all, 0.5), "p95_ms": percentile(&all, 0.95), "results": results }),
    )
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// How long each page took, in milliseconds, and how large it was.
async fn ask(address: SocketAddr, query: &str) -> io::Result<Vec<(f64, usize)>> {
    let (mut pages, mut before) = (Vec::new(), String::new());
    loop {
        let began = Instant::now();
        let path = format!("/v1/console/runs?limit=100&{query}{before}");
        let body = Response::get(address, &path, "").await?.body().await?;
        pages.push((began.elapsed().as_secs_f64() * 1e3, body.len()));
        let page: Value = serde_json::from_slice(&body)?;
        let Some(next) = page["next"].as_str() else { return Ok(pages) };
        before = format!("&before={next}");
    }
}
