//! Measures Capstan beside its peers. Each subcommand is one file with a `run`; results go to `bench/results`.

mod corpus;
mod decode;
mod environment;
mod reader;
mod stopwatch;
mod table;

use std::process::ExitCode;

/// Name, what it measures, how to run it.
const BENCHES: &[(&str, &str, fn() -> std::io::Result<()>)] =
    &[("decode", "an SSE body of packets into typed packets", decode::run)];

fn main() -> ExitCode {
    let asked = std::env::args().nth(1).unwrap_or_default();
    let Some((_, _, run)) = BENCHES.iter().find(|(name, ..)| *name == asked) else {
        eprintln!("usage: capstan-bench <bench>\n");
        for (name, what, _) in BENCHES {
            eprintln!("  {name:10} {what}");
        }
        return ExitCode::from(2);
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("capstan-bench {asked}: {error}");
            ExitCode::FAILURE
        }
    }
}
