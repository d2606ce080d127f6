//! Measures Capstan beside its peers. Each subcommand is one file with a `run`; results go to `bench/results`.

mod corpus;
mod decode;
mod environment;
mod lean;
mod reader;
mod stopwatch;
mod table;

use std::process::ExitCode;

struct Bench {
    name: &'static str,
    what: &'static str,
    run: fn() -> std::io::Result<()>,
}

const BENCHES: &[Bench] =
    &[Bench { name: "decode", what: "an SSE body of packets into typed packets", run: decode::run }];

fn main() -> ExitCode {
    let asked = std::env::args().nth(1).unwrap_or_default();
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == asked) else {
        eprintln!("usage: capstan-bench <bench>\n");
        for bench in BENCHES {
            eprintln!("  {:10} {}", bench.name, bench.what);
        }
        return ExitCode::from(2);
    };
    match (bench.run)() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("capstan-bench {asked}: {error}");
            ExitCode::FAILURE
        }
    }
}
