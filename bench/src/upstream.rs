//! `upstream`: what the gateway adds between a provider and its caller: the head of the response,
//! the first token, every further token; with and without it, in one run.
//!
//! Provider, gateways (journal in memory and on disk) and callers are processes of their own. The
//! load is open: streams of 50 tokens/s, each token sent when it is due, whoever is slow. A token
//! carries the time of its sending, so that its latency is the time until the caller has it; of
//! head and first token it is the time since the caller asked. A few streams show the way itself;
//! many, on a machine that is busy with them, how much of it is waiting in line.

mod call;
mod roles;

use std::io::{self, BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::environment;
use crate::rounds::{Rounds, how_many};
use crate::table::Table;
use call::{call, question};
pub use roles::{provide, stand_between};

const LOADS: [usize; 2] = [10, 200];
const TOKENS: usize = 250;
const PERIOD: Duration = Duration::from_millis(20);
const ROUNDS: usize = 3;

pub const PROVIDER: &str = "upstream-provider";
pub const GATEWAY: &str = "upstream-gateway";

const CRATES: &[&str] =
    &["capstan-gateway", "capstan-upstream", "reqwest", "axum", "tokio"];

const PERCENTILES: [(&str, f64); 2] = [("p50", 0.50), ("p99", 0.99)];

struct Role(Child);

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // A gateway's journal; it was killed before it could.
        let _ = std::fs::remove_dir_all(roles::folder(self.0.id()));
    }
}

/// Latencies of one round in microseconds, by what they are of.
#[derive(Default)]
struct Latencies {
    head: Vec<u64>,
    first: Vec<u64>,
    tokens: Vec<u64>,
}

impl Latencies {
    fn by_name(&mut self) -> [(&'static str, &mut Vec<u64>); 3] {
        [("head", &mut self.head), ("first token", &mut self.first), ("token", &mut self.tokens)]
    }
}

/// One row of the result: a percentile of something under some load, for each way.
struct Figure {
    streams: usize,
    what: &'static str,
    percentile: &'static str,
    ways: [Rounds; 3],
}

impl Figure {
    /// What a way adds to the direct one, by medians, in milliseconds.
    fn added(&self, way: usize) -> f64 {
        self.ways[way].median() - self.ways[0].median()
    }

    fn to_json(&self) -> Value {
        json!({ "streams": self.streams, "what": self.what, "percentile": self.percentile,
            "direct_ms": self.ways[0].to_json(), "memory_ms": self.ways[1].to_json(),
            "disk_ms": self.ways[2].to_json(),
            "memory_adds_ms": self.added(1), "disk_adds_ms": self.added(2) })
    }
}

pub fn run() -> io::Result<()> {
    let (provider, provider_address) = start(&[PROVIDER])?;
    let (memory, memory_address) = start(&[GATEWAY, &provider_address, "memory"])?;
    let (disk, disk_address) = start(&[GATEWAY, &provider_address, "disk"])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut figures = Vec::new();
    for streams in LOADS {
        let from = figures.len();
        for _ in 0..how_many(ROUNDS) {
            for (way, address) in
                [&provider_address, &memory_address, &disk_address].into_iter().enumerate()
            {
                let path = if way == 0 { "/v1/chat/completions" } else { "/v1/assist" };
                let latencies = runtime.block_on(round(address, path, streams))?;
                note(&mut figures, from, streams, way, latencies);
            }
        }
    }
    drop((provider, memory, disk));
    report(&figures)
}

fn start(arguments: &[&str]) -> io::Result<(Role, String)> {
    let mut child =
        Command::new(std::env::current_exe()?).args(arguments).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    let mut address = String::new();
    BufReader::new(out).read_line(&mut address)?;
    Ok((Role(child), address.trim().to_owned()))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// All streams at once, begun over one period each so that their tokens do not fall together.
async fn round(address: &str, path: &'static str, streams: usize) -> io::Result<Latencies> {
    let mut callers = tokio::task::JoinSet::new();
    let began = Instant::now() + Duration::from_millis(200);
    for nth in 0..streams {
        let (address, body) = (address.to_owned(), question(nth));
        let at = began + PERIOD.mul_f64(nth as f64 / streams as f64) + PERIOD * (nth as u32 % 10);
        callers.spawn(async move {
            tokio::time::sleep_until(at).await;
            call(&address, path, &body).await
        });
    }
    let mut latencies = Latencies::default();
    while let Some(done) = callers.join_next().await {
        let seen = done.map_err(io::Error::other)??;
        let &[(_, first), ref further @ ..] = &seen.tokens[..] else { continue };
        if further.len() + 1 != TOKENS {
            return Err(io::Error::other(format!(
                "{} tokens of {TOKENS} came through {path}",
                seen.tokens.len()
            )));
        }
        latencies.head.push(seen.answered.saturating_sub(seen.asked));
        latencies.first.push(first.saturating_sub(seen.asked));
        latencies.tokens.extend(further.iter().map(|(sent, came)| came.saturating_sub(*sent)));
    }
    match latencies.first.len() == streams {
        true => Ok(latencies),
        false => {
            Err(io::Error::other(format!("{} streams of {streams} began", latencies.first.len())))
        }
    }
}

/// Adds a round of one way to the figures of its load, which begin at `from`.
fn note(
    figures: &mut Vec<Figure>,
    from: usize,
    streams: usize,
    way: usize,
    mut latencies: Latencies,
) {
    let mut at = from;
    for (what, latencies) in latencies.by_name() {
        latencies.sort_unstable();
        for (percentile, share) in PERCENTILES {
            if figures.len() == at {
                figures.push(Figure { streams, what, percentile, ways: Default::default() });
            }
            let nth = ((latencies.len() - 1) as f64 * share) as usize;
            figures[at].ways[way].push(latencies[nth] as f64 / 1000.0);
            at += 1;
        }
    }
}

fn report(figures: &[Figure]) -> io::Result<()> {
    let mut table = Table::new(&["latency in ms", "streams", "direct", "memory adds", "disk adds"]);
    for figure in figures {
        let cells = [figure.ways[0].median(), figure.added(1), figure.added(2)]
            .map(|ms| format!("{ms:.3}"));
        let name = format!("{} {}", figure.what, figure.percentile);
        table.row([vec![name, figure.streams.to_string()], cells.to_vec()].concat());
    }
    table.print();
    let result = json!({ "bench": "upstream", "environment": environment::describe(CRATES),
    "tokens_per_stream": TOKENS,
        "tokens_per_second": 1.0 / PERIOD.as_secs_f64(), "rounds": how_many(ROUNDS),
        "results": figures.iter().map(Figure::to_json).collect::<Vec<_>>() });
    environment::save("upstream", &result)
}
