//! What a gateway adds to a provider's tokens: ten streams of 50 tokens a second, from the provider
//! itself and through each gateway, as OpenAI's Chat Completions or as Anthropic's Messages.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use capstan_bench_kit::rounds::{Rounds, how_many};
use capstan_bench_kit::table::Table;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::agent_request::post_with;
use crate::contender::{Contender, start_provider};
use crate::provider::{Api, PACED, PACED_TOKENS, PERIOD};
use crate::server::Server;
use crate::stamps::{now, percentile, take};

/// The agent, or the model of a gateway, that asks the provider as Anthropic's Messages.
pub const MESSAGES: &str = "paced-messages";

const ROUNDS: usize = 5;
const STREAMS: usize = 10;
/// One that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

pub const CONTENDERS: &[Contender] = &[
    Contender::Direct,
    Contender::CapstanDisk,
    Contender::CapstanMemory,
    Contender::LiteLlm,
    Contender::Portkey,
];

/// Latencies in microseconds: of the first tokens since they were asked for, of the others since
/// they were sent.
#[derive(Default)]
pub struct Latencies {
    pub first: Vec<u64>,
    pub tokens: Vec<u64>,
}

/// Of them those that translate nothing when a client of Anthropic's asks a server of Anthropic's.
const OF_MESSAGES: &[Contender] =
    &[Contender::Direct, Contender::CapstanDisk, Contender::CapstanMemory, Contender::LiteLlm];

pub async fn run() -> io::Result<Value> {
    measure(CONTENDERS, Api::Chat).await
}

pub async fn run_messages() -> io::Result<Value> {
    measure(OF_MESSAGES, Api::Messages).await
}

async fn measure(contenders: &[Contender], api: Api) -> io::Result<Value> {
    let provider = start_provider()?;
    let mut ways: Vec<(Contender, Server, [Rounds; 5])> = Vec::new();
    for contender in Contender::present(contenders) {
        ways.push((contender, contender.start(provider.address)?, Default::default()));
    }
    for round in 0..=how_many(ROUNDS) {
        for (contender, server, rounds) in &mut ways {
            let cpu = server.cpu()?;
            let (address, provider) = (server.address, provider.address);
            let mut seen = load(*contender, api, address, provider, STREAMS).await?;
            // The first round finds code and connections unmade.
            if round > 0 {
                let figures = [
                    percentile(&mut seen.first, 0.50),
                    percentile(&mut seen.first, 0.99),
                    percentile(&mut seen.tokens, 0.50),
                    percentile(&mut seen.tokens, 0.99),
                    (server.cpu()? - cpu) / (STREAMS * PACED_TOKENS) as f64 * 1e6,
                ];
                rounds.iter_mut().zip(figures).for_each(|(rounds, figure)| rounds.push(figure));
            }
        }
    }
    report(&ways)
}

fn report(ways: &[(Contender, Server, [Rounds; 5])]) -> io::Result<Value> {
    let mut table = Table::new(&[
        "10 streams, ms",
        "first p50",
        "p99",
        "token p50",
        "p99",
        "CPU µs/token",
        "MB",
    ]);
    let mut results = Vec::new();
    for (contender, server, rounds) in ways {
        let resident = server.resident()?;
        let mut row = vec![contender.name().to_owned()];
        row.extend(rounds.iter().map(|rounds| format!("{:.2}", rounds.median())));
        row.push(format!("{:.0}", resident / 1e6));
        table.row(row);
        let [first_p50, first_p99, token_p50, token_p99, cpu] =
            rounds.each_ref().map(Rounds::to_json);
        results.push(json!({ "name": contender.name(), "first_p50_ms": first_p50,
        "first_p99_ms": first_p99,
            "token_p50_ms": token_p50, "token_p99_ms": token_p99, "cpu_seconds_per_million": cpu,
            "resident_bytes": resident }));
    }
    table.print();
    Ok(json!({ "streams": STREAMS, "tokens": PACED_TOKENS,
        "tokens_per_second": 1.0 / PERIOD.as_secs_f64(), "results": results }))
}

/// So many streams at once, begun over ten periods so that their tokens do not fall together.
pub async fn load(
    contender: Contender,
    api: Api,
    address: SocketAddr,
    provider: SocketAddr,
    streams: usize,
) -> io::Result<Latencies> {
    let mut callers = JoinSet::new();
    let began = Instant::now() + Duration::from_millis(50);
    for nth in 0..streams {
        let at = began + PERIOD.mul_f64(nth as f64 / streams as f64) + PERIOD * (nth as u32 % 10);
        callers.spawn(async move {
            tokio::time::sleep_until(at).await;
            let calling = call(contender, api, address, provider);
            let called = tokio::time::timeout(PATIENCE, calling).await;
            called.unwrap_or_else(|_| Err(io::Error::other("it says nothing any more")))
        });
    }
    let mut all = Latencies::default();
    while let Some(seen) = callers.join_next().await {
        let seen =
            seen?.map_err(|error| io::Error::other(format!("{}: {error}", contender.name())))?;
        all.first.extend(seen.first);
        all.tokens.extend(seen.tokens);
    }
    Ok(all)
}

async fn call(
    contender: Contender,
    api: Api,
    address: SocketAddr,
    provider: SocketAddr,
) -> io::Result<Latencies> {
    let model = if api == Api::Messages { MESSAGES } else { PACED };
    let model = if contender == Contender::Direct { PACED } else { model };
    let body = json!({ "model": model, "stream": true, "max_tokens": 1024,
        "messages": [{ "role": "user", "content": "Speak." }] })
    .to_string();
    let mut headers =
        "authorization: Bearer sk-none\r\nanthropic-version: 2023-06-01\r\n".to_owned();
    if contender == Contender::Portkey {
        headers.push_str(&format!(
            "x-portkey-provider: openai\r\nx-portkey-custom-host: http://{provider}/v1\r\n"
        ));
    }
    let asked = now();
    let mut response = post_with(address, api.path(), &headers, &body).await?;
    let (mut seen, mut rest, mut said) = (Latencies::default(), Vec::new(), Vec::new());
    while seen.first.len() + seen.tokens.len() < PACED_TOKENS {
        let bytes = response.read().await?;
        if bytes.is_empty() {
            let said = String::from_utf8_lossy(&said).into_owned();
            let tokens = seen.first.len() + seen.tokens.len();
            return Err(io::Error::other(format!("{tokens} tokens of {PACED_TOKENS}: {said}")));
        }
        let came = now();
        rest.extend_from_slice(bytes);
        if seen.first.is_empty() {
            said.extend_from_slice(bytes);
        }
        take(&mut rest, |sent| match seen.first.is_empty() {
            true => seen.first.push(came.saturating_sub(asked)),
            false => seen.tokens.push(came.saturating_sub(sent)),
        });
    }
    Ok(seen)
}
