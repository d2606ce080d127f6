//! The `capstan` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    capstan::run()
}
