//! Measures the capstan binary beside the servers that users would pick in its place; `make bench
//! PEERS=1` runs it.
//!
//! Every server is a process of its own, installed by `bench/peers/install`; the client is the same
//! for all, in this process and on one thread. Contenders take turns, figures are medians, none is
//! asserted. Each part is a file with a `run` and fits into five minutes; its result replaces that
//! part of `bench/results/peers.json`.

mod agent_request;
mod axum_server;
mod contender;
mod deliver;
mod durable;
mod fanout;
mod gateways;
mod held;
mod idle;
mod provider;
mod result;
mod resume;
mod server;
mod stamps;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::process::ExitCode;

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

type Run = fn() -> Pin<Box<dyn Future<Output = io::Result<Value>>>>;

const PARTS: &[(&str, &str, Run)] = &[
    ("deliver", "100 runs of 2,000 tokens, delivered", || Box::pin(deliver::run())),
    ("resume", "to the first byte from the middle of a stream", || Box::pin(resume::run())),
    ("fanout", "one stream to 1,000 viewers", || Box::pin(fanout::run())),
    ("idle", "memory of 10,000 idle viewers", || Box::pin(idle::run())),
    ("gateways", "what is added to a provider's tokens", || Box::pin(gateways::run())),
    ("messages", "the same, as Anthropic's Messages", || Box::pin(gateways::run_messages())),
    ("held", "streams of 50 tokens/s that are held", || Box::pin(held::run())),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        [provider::ROLE, port] => provider::serve(port),
        [axum_server::ROLE, port] => axum_server::serve(port),
        _ => measure(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("capstan-bench-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All parts, or those that are named.
fn measure(names: &[&str]) -> io::Result<()> {
    if let Some(name) = names.iter().find(|name| !PARTS.iter().any(|(part, ..)| part == *name)) {
        let known: Vec<String> =
            PARTS.iter().map(|(part, what, _)| format!("  {part:10} {what}")).collect();
        return Err(io::Error::other(format!("no part is called {name}\n{}", known.join("\n"))));
    }
    capstan_bench_kit::process::allow_many_files();
    contender::print_skipped();
    // One thread: the client must leave the machine to the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for (part, what, run) in
        PARTS.iter().filter(|(part, ..)| names.is_empty() || names.contains(part))
    {
        println!("{part}: {what}");
        let environment = result::environment();
        let outcome = runtime.block_on(unless_stopped(run()))?;
        result::save(part, environment, outcome)?;
        println!();
    }
    Ok(())
}

/// Whoever is stopped leaves no server behind: they end when what measures them is dropped.
async fn unless_stopped(run: impl Future<Output = io::Result<Value>>) -> io::Result<Value> {
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        outcome = run => outcome,
        _ = terminated.recv() => Err(io::Error::other("stopped")),
        _ = tokio::signal::ctrl_c() => Err(io::Error::other("stopped")),
    }
}
