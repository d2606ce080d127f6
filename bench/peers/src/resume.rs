//! A viewer comes back in the middle of a stream of 2,000 tokens: from its connecting to the first
//! token that it lacks.

use std::io;
use std::time::Instant;

use capstan_bench_kit::response::Response;
use capstan_bench_kit::rounds::{Rounds, how_many};
use capstan_bench_kit::table::Table;
use serde_json::{Value, json};

use crate::agent_request;
use crate::contender::{Contender, start_provider};
use crate::durable::{A_POST, Durable};
use crate::provider::TOKENS;
use crate::server::Server;
use crate::stamps::percentile;

const ROUNDS: usize = 5;
const RESUMES: usize = 200;

const CONTENDERS: &[Contender] =
    &[Contender::CapstanDisk, Contender::DurableRust, Contender::DurableNode];

/// A stream that is there, and how its second half is asked for.
struct Kept {
    contender: Contender,
    server: Server,
    stream: Option<Durable>,
    /// A path, or an offset.
    place: String,
    headers: String,
    p50: Rounds,
    p99: Rounds,
}

pub async fn run() -> io::Result<Value> {
    let provider = start_provider()?;
    let mut kept = Vec::new();
    for contender in Contender::present(CONTENDERS) {
        kept.push(prepare(contender, contender.start(provider.address)?).await?);
    }
    for round in 0..=how_many(ROUNDS) {
        for one in &mut kept {
            let mut times = Vec::new();
            for _ in 0..RESUMES {
                times.push(resume(one).await?);
            }
            // The first round finds caches and compiled code unmade.
            if round > 0 {
                one.p50.push(percentile(&mut times, 0.50));
                one.p99.push(percentile(&mut times, 0.99));
            }
        }
    }
    let mut table = Table::new(&["resume to the first token", "p50 ms", "spread", "p99 ms"]);
    for one in &kept {
        let (p50, p99) = (format!("{:.3}", one.p50.median()), format!("{:.3}", one.p99.median()));
        table.row(vec![one.contender.name().into(), p50, one.p50.spread(3), p99]);
    }
    table.print();
    let row = |one: &Kept| {
        json!({ "name": one.contender.name(), "p50_ms": one.p50.to_json(),
    "p99_ms": one.p99.to_json() })
    };
    Ok(json!({ "tokens": TOKENS, "resumes": RESUMES,
        "results": kept.iter().map(row).collect::<Vec<_>>() }))
}

async fn prepare(contender: Contender, server: Server) -> io::Result<Kept> {
    let (place, headers, stream);
    if contender == Contender::CapstanDisk {
        let mut first =
            agent_request::start(server.address, "demo", &format!("/tokens {TOKENS}")).await?;
        place = agent_request::stream_path(&mut first).await?;
        while !first.read().await?.is_empty() {}
        let id = place.rsplit('/').next().unwrap_or_default();
        headers = format!("last-event-id: {id}:{}\r\n", TOKENS / 2);
        stream = None;
    } else {
        let mut made = Durable::make(contender, server.address).await?;
        for from in (1..=TOKENS / 2).step_by(A_POST) {
            made.append(from, A_POST).await?;
        }
        place = made.offset.clone();
        for from in (TOKENS / 2 + 1..=TOKENS).step_by(A_POST) {
            made.append(from, A_POST).await?;
        }
        (headers, stream) = (String::new(), Some(made));
    }
    Ok(Kept {
        contender,
        server,
        stream,
        place,
        headers,
        p50: Rounds::default(),
        p99: Rounds::default(),
    })
}

/// In microseconds.
async fn resume(kept: &Kept) -> io::Result<u64> {
    let began = Instant::now();
    let mut response = match &kept.stream {
        Some(stream) => stream.read(&kept.place).await?,
        None => Response::get(kept.server.address, &kept.place, &kept.headers).await?,
    };
    response.until("tok1001 ").await?;
    Ok(began.elapsed().as_micros() as u64)
}
