//! `upstream`: what the gateway adds between a provider and its caller: first-token and per-token latency, with and
//! without it, in one run.
//!
//! Provider, gateways (journal in memory and on disk) and callers are processes of their own. The load is open: 200 streams of 50
//! tokens/s, each token sent when it is due, whoever is slow. A token carries the time of its sending, so that its
//! latency is the time until the caller has it; a first token's is the time since the caller asked.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use capstan_gateway::{Gateway, serve};
use capstan_journal::{Durability, Journal, TailLimits, open};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

use crate::environment;
use crate::table::Table;

const STREAMS: usize = 200;
const TOKENS: usize = 250;
const PERIOD: Duration = Duration::from_millis(20);
/// Odd, so that the median is one of them.
const ROUNDS: usize = 3;

pub const PROVIDER: &str = "upstream-provider";
pub const GATEWAY: &str = "upstream-gateway";

const CRATES: &[&str] = &["capstan-gateway", "capstan-upstream", "reqwest", "axum", "tokio"];

struct Role(Child);

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        // A gateway's journal; it was killed before it could.
        let _ = std::fs::remove_dir_all(folder(self.0.id()));
    }
}

/// Latencies of one round, in microseconds, sorted.
struct Round {
    first: Vec<u64>,
    tokens: Vec<u64>,
}

pub fn run() -> io::Result<()> {
    let (provider, provider_address) = start(&[PROVIDER])?;
    let (memory, memory_address) = start(&[GATEWAY, &provider_address, "memory"])?;
    let (disk, disk_address) = start(&[GATEWAY, &provider_address, "disk"])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut rounds: HashMap<&str, Vec<Round>> = HashMap::new();
    for _ in 0..ROUNDS {
        let direct = runtime.block_on(round(&provider_address, "/v1/chat/completions", |_| "{}".into()))?;
        rounds.entry("direct").or_default().push(direct);
        for (name, address) in [("memory", &memory_address), ("disk", &disk_address)] {
            let through = runtime.block_on(round(address, "/v1/assist", question))?;
            rounds.entry(name).or_default().push(through);
        }
    }
    drop((provider, memory, disk));
    report(&rounds)
}

fn start(arguments: &[&str]) -> io::Result<(Role, String)> {
    let mut child = Command::new(std::env::current_exe()?).args(arguments).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or_else(|| io::Error::other("no output"))?;
    let mut address = String::new();
    BufReader::new(out).read_line(&mut address)?;
    Ok((Role(child), address.trim().to_owned()))
}

/// Where a gateway process keeps its journal.
fn folder(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("capstan-bench-{process}"))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn question(nth: usize) -> String {
    let id = uuid::Uuid::now_v7();
    json!({ "request_id": id, "context": { "session_id": id, "agent_id": uuid::Uuid::nil(),
        "user": { "user_id": "u", "tier": "t", "locale": "en" }, "trace": { "trace_id": id, "span_id": id },
        "permissions": [], "created_at": "2026-02-03T10:15:37Z" },
        "payload": { "session_id": id, "payload": { "query": format!("stream {nth}") } } })
    .to_string()
}

/// All streams at once, begun over one period each so that their tokens do not fall together.
async fn round(address: &str, path: &'static str, body: fn(usize) -> String) -> io::Result<Round> {
    let mut callers = tokio::task::JoinSet::new();
    let began = Instant::now() + Duration::from_millis(200);
    for nth in 0..STREAMS {
        let (address, body) = (address.to_owned(), body(nth));
        let at = began + PERIOD.mul_f64(nth as f64 / STREAMS as f64) + PERIOD * (nth as u32 % 10);
        callers.spawn(async move {
            tokio::time::sleep_until(at).await;
            call(&address, path, &body).await
        });
    }
    let (mut first, mut tokens) = (Vec::new(), Vec::new());
    while let Some(done) = callers.join_next().await {
        let (asked, arrivals) = done.map_err(io::Error::other)??;
        if arrivals.len() != TOKENS {
            return Err(io::Error::other(format!(
                "{} tokens of {TOKENS} came through {path}",
                arrivals.len()
            )));
        }
        first.push(arrivals[0].1.saturating_sub(asked));
        tokens.extend(arrivals.iter().skip(1).map(|(sent, came)| came.saturating_sub(*sent)));
    }
    first.sort_unstable();
    tokens.sort_unstable();
    Ok(Round { first, tokens })
}

/// One stream: when it was asked for, and each token's sending and coming.
async fn call(address: &str, path: &str, body: &str) -> io::Result<(u64, Vec<(u64, u64)>)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let asked = now();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\naccept: text/event-stream\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    let (mut arrivals, mut rest, mut buffer) = (Vec::new(), Vec::new(), vec![0; 16 * 1024]);
    while arrivals.len() < TOKENS {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            break;
        }
        let came = now();
        rest.extend_from_slice(&buffer[..n]);
        take(&mut rest, came, &mut arrivals);
    }
    Ok((asked, arrivals))
}

/// Tokens look like `@<microseconds>@` on either wire.
fn take(rest: &mut Vec<u8>, came: u64, arrivals: &mut Vec<(u64, u64)>) {
    let mut done = 0;
    while let Some(start) = rest[done..].iter().position(|byte| *byte == b'@').map(|at| done + at) {
        let Some(len) = rest[start + 1..].iter().position(|byte| *byte == b'@') else {
            done = start;
            break;
        };
        let digits = std::str::from_utf8(&rest[start + 1..start + 1 + len]).unwrap_or_default();
        if let Ok(sent) = digits.parse() {
            arrivals.push((sent, came));
        }
        done = start + len + 2;
    }
    let keep = rest.len().min(rest.len() - done.min(rest.len()));
    rest.drain(..rest.len() - keep);
    if !rest.starts_with(b"@") {
        rest.clear();
    }
}

/// The provider: tokens when they are due.
pub fn provide(_: &[String]) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(answer(stream));
        }
    })
}

async fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut seen = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    // The body is small and comes with the head, or right after it.
    while !seen.windows(4).any(|window| window == b"\r\n\r\n") || !seen.ends_with(b"}") {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(());
        }
        seen.extend_from_slice(&buffer[..n]);
    }
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        .await?;
    let began = Instant::now();
    for nth in 0..TOKENS {
        tokio::time::sleep_until(began + PERIOD * nth as u32).await;
        let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": format!("@{}@", now()) } }] });
        stream.write_all(format!("data: {chunk}\n\n").as_bytes()).await?;
    }
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }], "usage": {} });
    stream.write_all(format!("data: {end}\n\ndata: [DONE]\n\n").as_bytes()).await?;
    stream.shutdown().await
}

/// The gateway, as `capstan serve` has it.
pub fn stand_between(arguments: &[String]) -> io::Result<()> {
    let provider = arguments.first().cloned().unwrap_or_default();
    let folder = folder(std::process::id());
    let is_disk = arguments.get(1).is_some_and(|journal| journal == "disk");
    let journal = if is_disk { format!("disk:{}", folder.display()) } else { "memory:".to_owned() };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let store = open(&journal, Durability::default()).map_err(io::Error::other)?;
        let keys = json!({ "url": format!("http://{provider}/v1"), "model": "m" });
        let keys: Map<String, Value> = keys.as_object().cloned().unwrap_or_default();
        let agent = capstan_upstream::build("openai", keys).map_err(io::Error::other)?;
        let gateway = Gateway::new(Journal::new(store, TailLimits::default())).agent("a", agent);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        serve(gateway, vec![listener], std::future::pending()).await.map(|_| ())
    })
}

fn percentile(sorted: &[u64], share: f64) -> u64 {
    sorted[((sorted.len() - 1) as f64 * share) as usize]
}

/// The median over the rounds, in milliseconds.
fn over(rounds: &[Round], pick: fn(&Round) -> &[u64], share: f64) -> f64 {
    let mut figures: Vec<u64> = rounds.iter().map(|round| percentile(pick(round), share)).collect();
    figures.sort_unstable();
    figures[figures.len() / 2] as f64 / 1000.0
}

fn report(rounds: &HashMap<&str, Vec<Round>>) -> io::Result<()> {
    let mut table = Table::new(&["latency in ms", "direct", "memory adds", "disk adds"]);
    let mut figures = Vec::new();
    let picks: [(&str, fn(&Round) -> &[u64]); 2] = [("first token", |r| &r.first), ("token", |r| &r.tokens)];
    for (what, pick) in picks {
        for (name, share) in [("p50", 0.50), ("p99", 0.99)] {
            let figure = |way: &str| over(&rounds[way], pick, share);
            let direct = figure("direct");
            let added = |way: &str| figure(way) - direct;
            let cell = |figure: f64| format!("{figure:.3}");
            table.row(vec![
                format!("{what} {name}"),
                cell(direct),
                cell(added("memory")),
                cell(added("disk")),
            ]);
            figures.push(json!({ "what": what, "percentile": name, "direct_ms": direct,
                "memory_adds_ms": added("memory"), "disk_adds_ms": added("disk") }));
        }
    }
    table.print();
    let result = json!({ "bench": "upstream", "environment": environment::describe(CRATES),
        "streams": STREAMS, "tokens_per_second": 50, "rounds": ROUNDS, "figures": figures });
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/upstream.json");
    std::fs::write(path, format!("{}\n", serde_json::to_string_pretty(&result)?))
}
