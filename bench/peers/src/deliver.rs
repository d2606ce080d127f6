//! 100 runs of 2,000 tokens, all at once, delivered to a viewer each: tokens per second, processor
//! time, memory.
//!
//! Capstan sends each token as a packet with its stream, number and time (some 170 bytes), the
//! others a small object (60).

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use capstan_bench_kit::response::Response;
use capstan_bench_kit::rounds::{Rounds, how_many};
use capstan_bench_kit::table::Table;
use memchr::memmem;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::agent_request;
use crate::contender::{Contender, start_provider};
use crate::durable::{A_POST, Durable};
use crate::provider::TOKENS;
use crate::server::Server;

const ROUNDS: usize = 5;
const RUNS: usize = 100;

/// Who delivers, and which of its agents speaks.
const WAYS: &[(Contender, &str)] = &[
    (Contender::CapstanDisk, "demo"),
    (Contender::CapstanDisk, "burst"),
    (Contender::Node, ""),
    (Contender::FastApi, ""),
    (Contender::Resumable, ""),
    (Contender::DurableNode, ""),
    (Contender::DurableRust, ""),
];

struct Way {
    contender: Contender,
    agent: &'static str,
    server: Server,
    rate: Rounds,
    cpu: Rounds,
    resident: Rounds,
}

impl Way {
    fn name(&self) -> String {
        match self.agent {
            "" => self.contender.name().to_owned(),
            "demo" => format!("{}, an agent in it", self.contender.name()),
            _ => format!("{}, `openai` agent", self.contender.name()),
        }
    }

    fn to_json(&self) -> Value {
        json!({ "name": self.name(), "tokens_per_second": self.rate.to_json(),
            "cpu_seconds_per_million": self.cpu.to_json(),
            "resident_bytes": self.resident.to_json() })
    }
}

pub async fn run() -> io::Result<Value> {
    let provider = start_provider()?;
    let mut ways = Vec::new();
    for &(contender, agent) in WAYS.iter().filter(|(contender, _)| contender.skipped().is_none()) {
        let server = contender.start(provider.address)?;
        let [rate, cpu, resident] = <[Rounds; 3]>::default();
        ways.push(Way { contender, agent, server, rate, cpu, resident });
    }
    for way in &ways {
        // The first runs find threads, caches, compiled code and files unmade.
        all(way).await?;
    }
    for _ in 0..how_many(ROUNDS) {
        for way in &mut ways {
            once(way).await?;
        }
    }
    print(&ways);
    Ok(json!({ "runs": RUNS, "tokens": TOKENS, "tokens_per_post": A_POST,
        "results": ways.iter().map(Way::to_json).collect::<Vec<_>>() }))
}

async fn once(way: &mut Way) -> io::Result<()> {
    let (began, cpu) = (Instant::now(), way.server.cpu()?);
    all(way).await?;
    let tokens = (RUNS * TOKENS) as f64;
    way.rate.push(tokens / began.elapsed().as_secs_f64());
    way.cpu.push((way.server.cpu()? - cpu) / tokens * 1e6);
    way.resident.push(way.server.resident()?);
    Ok(())
}

async fn all(way: &Way) -> io::Result<()> {
    let mut viewers = JoinSet::new();
    for _ in 0..RUNS {
        viewers.spawn(view(way.contender, way.agent, way.server.address));
    }
    while let Some(seen) = viewers.join_next().await {
        let seen = seen??;
        if seen != TOKENS {
            return Err(io::Error::other(format!("{}: {seen} tokens of {TOKENS}", way.name())));
        }
    }
    Ok(())
}

/// One run; how many tokens of it came.
async fn view(contender: Contender, agent: &'static str, address: SocketAddr) -> io::Result<usize> {
    match contender {
        Contender::CapstanDisk | Contender::CapstanMemory => {
            let mut response =
                agent_request::start(address, agent, &format!("/tokens {TOKENS}")).await?;
            count(&mut response, "\"op\":\"DELTA\"", usize::MAX).await
        }
        Contender::DurableNode | Contender::DurableRust => {
            let mut stream = Durable::make(contender, address).await?;
            let mut response = stream.read("-1").await?;
            // Its end is not told by the end of the body.
            let (seen, fed) =
                tokio::join!(count(&mut response, "text-delta", TOKENS), feed(&mut stream));
            fed.and(seen)
        }
        _ => {
            let mut response =
                agent_request::post(address, &format!("/run/{TOKENS}"), "{}").await?;
            count(&mut response, "text-delta", usize::MAX).await
        }
    }
}

async fn feed(stream: &mut Durable) -> io::Result<()> {
    for from in (1..=TOKENS).step_by(A_POST) {
        stream.append(from, A_POST).await?;
    }
    Ok(())
}

/// Counts a word until the body ends, or it has come so often.
async fn count(response: &mut Response, word: &str, enough: usize) -> io::Result<usize> {
    let finder = memmem::Finder::new(word);
    let (mut seen, mut rest) = (0, Vec::new());
    while seen < enough {
        let bytes = response.read().await?;
        if bytes.is_empty() {
            break;
        }
        rest.extend_from_slice(bytes);
        seen += finder.find_iter(&rest).count();
        // A word may be cut by the end of what was read.
        let keep = rest.len().min(word.len() - 1);
        rest.drain(..rest.len() - keep);
    }
    Ok(seen)
}

fn print(ways: &[Way]) {
    let mut table =
        Table::new(&["100 runs x 2,000 tokens", "tokens/s", "spread", "CPU s / million", "MB"]);
    for way in ways {
        table.row(vec![
            way.name(),
            format!("{:.0}", way.rate.median()),
            way.rate.spread(0),
            format!("{:.2}", way.cpu.median()),
            format!("{:.0}", way.resident.median() / 1e6),
        ]);
    }
    table.print();
}
