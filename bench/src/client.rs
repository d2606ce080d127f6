//! `client`: packets per second of the whole client, from a socket to typed packets, beside
//! `eventsource-client` with serde and RFC 004's own recipe in Python (httpx and pydantic).
//!
//! One process serves a body that was made before; each consumer is a process of its own, in turns.
//! Every consumer must count every packet, else there is no time to report. The figures end at
//! CLOSE and begin with the first packet.

mod consume;
pub mod serve;

use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::environment;
use crate::rounds::how_many;
use crate::table::Table;

pub use consume::ROLE as CONSUME;
pub use consume::run as consume;

/// A million for the fast ones, since memory must stay flat over them; the slow one says enough
/// with fewer.
const MANY: usize = 1_000_000;
const FEW: usize = 50_000;
/// Odd, so that the median is one of them.
const ROUNDS: usize = 5;

const CRATES: &[&str] = &["capstan-client", "eventsource-client", "reqwest", "serde_json"];

/// What one consumer did in one round.
#[derive(serde::Deserialize, serde::Serialize, Clone)]
struct Round {
    packets: usize,
    seconds: f64,
    /// Resident memory at the first packet and at the last.
    early_kb: u64,
    late_kb: u64,
}

impl Round {
    fn rate(&self) -> f64 {
        self.packets as f64 / self.seconds
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn run() -> io::Result<()> {
    let (many, many_url) = start(MANY)?;
    let (few, few_url) = start(FEW)?;
    let mut results: Vec<(&str, Vec<Round>)> = Vec::new();
    for round in 0..how_many(ROUNDS) {
        for (index, name) in
            ["capstan", "capstan-blocking", "eventsource-client"].into_iter().enumerate()
        {
            let done = rust(name, &many_url, MANY)?;
            if round == 0 {
                results.push((name, Vec::new()));
            }
            results[index].1.push(done);
        }
        if let Some(python) = python() {
            if round == 0 {
                results.push(("httpx + pydantic", Vec::new()));
            }
            results[3].1.push(literal(&python, &few_url)?);
        }
    }
    drop((many, few));
    print(&results);
    save(&results)
}

fn start(packets: usize) -> io::Result<(Server, String)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([serve::ROLE, &packets.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut url = String::new();
    let out = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    BufReader::new(out).read_line(&mut url)?;
    Ok((Server(child), url.trim().to_owned()))
}

fn rust(name: &str, url: &str, packets: usize) -> io::Result<Round> {
    round(Command::new(std::env::current_exe()?).args([CONSUME, name, url]), packets)
}

fn literal(python: &Path, url: &str) -> io::Result<Round> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/count.py");
    round(Command::new(python).args([script, url]), FEW)
}

fn round(command: &mut Command, packets: usize) -> io::Result<Round> {
    let output = command.stderr(Stdio::inherit()).output()?;
    let round: Round = serde_json::from_slice(&output.stdout)?;
    if round.packets != packets {
        return Err(io::Error::other(format!("{} packets of {packets} came", round.packets)));
    }
    Ok(round)
}

/// The Python that `bench/python/run` has filled; without it that peer is left out by name.
fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/.venv/bin/python");
    if !python.exists() {
        eprintln!("left out: httpx + pydantic needs bench/python/.venv; bench/python/run makes it");
        return None;
    }
    Some(python)
}

fn median(rounds: &[Round]) -> f64 {
    let mut rates: Vec<f64> = rounds.iter().map(Round::rate).collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn growth(rounds: &[Round]) -> i64 {
    rounds.iter().map(|round| round.late_kb as i64 - round.early_kb as i64).max().unwrap_or(0)
}

fn print(results: &[(&str, Vec<Round>)]) {
    let ours = median(&results[0].1);
    let mut table =
        Table::new(&["client", "packets/s", "slowest", "fastest", "capstan is", "memory grew by"]);
    for (name, rounds) in results {
        let rates: Vec<f64> = rounds.iter().map(Round::rate).collect();
        let (low, high) = (
            rates.iter().copied().fold(f64::MAX, f64::min),
            rates.iter().copied().fold(0.0, f64::max),
        );
        table.row(vec![
            (*name).to_owned(),
            format!("{:.0}", median(rounds)),
            format!("{low:.0}"),
            format!("{high:.0}"),
            format!("{:.1}x", ours / median(rounds)),
            format!("{} kB", growth(rounds)),
        ]);
    }
    table.print();
}

fn save(results: &[(&str, Vec<Round>)]) -> io::Result<()> {
    let ours = median(&results[0].1);
    let clients: Vec<Value> = results
        .iter()
        .map(|(name, rounds)| {
            json!({ "client": name, "packets_per_second": median(rounds),
            "capstan_is": ours / median(rounds),
                "memory_growth_kb": growth(rounds), "rounds": rounds })
        })
        .collect();
    let result = json!({ "bench": "client", "environment": environment::describe(CRATES),
    "clients": clients });
    environment::save("client", &result)
}
