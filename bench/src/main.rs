//! Measures Capstan beside its peers. Each subcommand is one file with a `run`; results go to
//! `bench/results`. `LONG=1` asks for more rounds, `SHORT=1` for one, to see whether it works.

mod client;
mod cluster;
mod console;
mod corpus;
mod decode;
mod gateway;
mod lean;
mod reader;
mod stopwatch;
mod upstream;

use std::process::ExitCode;

use capstan_bench_kit::{environment, rounds, table};

struct Bench {
    name: &'static str,
    what: &'static str,
    run: fn(&[String]) -> std::io::Result<()>,
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "decode",
        what: "an SSE body of packets into typed packets",
        run: |_| decode::run(),
    },
    Bench {
        name: "client",
        what: "a socket into typed packets, by the whole client",
        run: |_| client::run(),
    },
    Bench {
        name: "cluster",
        what: "a journal in PostgreSQL, with one gateway and three",
        run: cluster::run,
    },
    Bench { name: "console", what: "a gateway whose console is open", run: |_| console::run() },
    Bench {
        name: "gateway",
        what: "agent writes to viewers, replay, resume, memory",
        run: gateway::run,
    },
    Bench {
        name: "upstream",
        what: "what the gateway adds to a provider's tokens",
        run: |_| upstream::run(),
    },
];

/// Processes that a bench starts for itself.
const ROLES: &[(&str, fn(&[String]) -> std::io::Result<()>)] = &[
    (client::serve::ROLE, client::serve::run),
    (client::CONSUME, client::consume),
    (gateway::server::ROLE, gateway::server::run),
    (upstream::PROVIDER, upstream::provide),
    (upstream::GATEWAY, upstream::stand_between),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (asked, rest) =
        args.split_first().map_or(("", &args[..]), |(name, rest)| (name.as_str(), rest));
    let role = ROLES.iter().find(|(name, _)| *name == asked);
    let outcome = match (BENCHES.iter().find(|bench| bench.name == asked), role) {
        (Some(bench), _) => (bench.run)(rest),
        (None, Some((_, run))) => run(rest),
        (None, None) if asked == "all" => BENCHES.iter().try_for_each(|bench| (bench.run)(&[])),
        (None, None) => return usage(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("capstan-bench {asked}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: [LONG=1|SHORT=1] capstan-bench <bench>|all\n");
    for bench in BENCHES {
        eprintln!("  {:10} {}", bench.name, bench.what);
    }
    ExitCode::from(2)
}
