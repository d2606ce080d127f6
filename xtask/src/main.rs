//! Writes and checks what is generated from the code, and checks what no compiler checks:
//!
//! - `gen [--check]` writes (or verifies) generated files;
//! - `dependencies [--show]` checks which crates and modules depend on which;
//! - `documents` checks what the documents link to;
//! - `line-length [ENDING...]` checks that lines fit into 100 columns;
//! - `requirements` checks the map of requirements against the tests that it names;
//! - `sbom PLATFORM` lists what the binary is made of.
#![allow(clippy::print_stdout)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod dependencies;
mod documents;
mod generate;
mod line_length;
mod requirements;
mod sbom;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask gen [--check] | dependencies [--show] | documents | \
                     line-length [ENDING...] | requirements | sbom PLATFORM";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["dependencies"] => dependencies::check(&root()),
        ["dependencies", "--show"] => dependencies::show(&root()),
        ["line-length", endings @ ..] => line_length::check(&root(), endings),
        ["gen"] => generate::write(&root()),
        ["gen", "--check"] => generate::check(&root()),
        ["requirements"] => requirements::check(&root()),
        ["documents"] => documents::check(&root()),
        ["sbom", platform] => sbom::write(&root(), platform),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            println!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The repository, wherever cargo was called.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}
