//! The `capstan` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// The C library keeps what ten thousand viewers took long after they have left, and takes more
/// with each wave of them. Without huge pages: of 2 MB that are taken for one viewer most lie idle,
/// and the kernel clears them while somebody waits.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    capstan::run()
}
