//! The `capstan` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// glibc keeps the memory of ten thousand viewers long after they have left, and grows with each
/// wave. mimalloc without huge pages: of 2 MB for one viewer most would be unused, and the kernel
/// clears them while somebody waits.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    capstan::run()
}
