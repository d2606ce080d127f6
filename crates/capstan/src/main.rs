//! The `capstan` command.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// glibc would keep the memory of ten thousand viewers long after they have left, and grow with
/// each wave. mimalloc runs without huge pages: most of the 2 MB for one viewer would be unused,
/// and the kernel would clear them during a request.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    capstan::run()
}
