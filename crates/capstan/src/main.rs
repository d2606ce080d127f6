//! The `capstan` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// The C library keeps what ten thousand viewers took long after they have left, and takes more with each wave of them.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    capstan::run()
}
