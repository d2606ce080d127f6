//! `cargo xtask gen [--check]` writes (or verifies) generated files; `cargo xtask requirements`
//! checks the map of requirements against the tests that it names, `cargo xtask documents` what the
//! documents link to; `cargo xtask sbom PLATFORM` tells what the binary is made of.
#![allow(clippy::print_stdout)]

mod documents;
mod generate;
mod requirements;
mod sbom;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["gen"] => generate::write(&root()),
        ["gen", "--check"] => generate::check(&root()),
        ["requirements"] => requirements::check(&root()),
        ["documents"] => documents::check(&root()),
        ["sbom", platform] => sbom::write(&root(), platform),
        _ => Err("usage: cargo xtask gen [--check] | requirements | documents | sbom PLATFORM"
            .to_owned()),
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
