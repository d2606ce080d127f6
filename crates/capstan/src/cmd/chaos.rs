//! `capstan chaos`: a proxy that breaks streams on purpose, to test a client.

mod flags;
mod status;
mod values;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use capstan_chaos::{Chaos, Faults, Upstream};
use tokio::net::TcpListener;

use super::Failure;

/// Break streams on purpose: a proxy that cuts, stalls, delays, repeats and refuses
///
/// Point a client at the proxy instead of its server. Each fault has a rate: 0 is never, 1 is
/// always; a flag without a number means always. The faults of the n-th stream depend only on the
/// seed and n.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address to listen on; port 0 takes a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8788")]
    listen: String,

    /// The server to forward to; plain http
    #[arg(long, value_name = "[http://]HOST:PORT")]
    to: Upstream,

    /// The seed of an earlier run causes the same faults again; by default a new one each time
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    #[command(flatten)]
    faults: flags::Flags,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let seed = self.seed.unwrap_or_else(any_seed);
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(run(&self.listen, self.to, self.faults.settle(), seed))?;
        Ok(ExitCode::SUCCESS)
    }
}

async fn run(listen: &str, to: Upstream, faults: Faults, seed: u64) -> Result<(), Failure> {
    let listener = TcpListener::bind(listen).await.map_err(|error| refused(listen, &error))?;
    let address = listener.local_addr()?;
    // Not `println!`: a closed pipe must not cause a panic.
    writeln!(io::stdout().lock(), "chaos listening on http://{address} → {to}, seed {seed}")?;
    let is_terminal = io::stderr().is_terminal();
    if is_terminal && faults == Faults::none() {
        anstream::eprintln!("no faults are chosen, so everything passes; try --brutal");
    }
    let chaos = Chaos::new(to, faults, seed);
    let handle = chaos.handle();
    tokio::select! {
        () = chaos.serve(listener, super::serve::terminated()?) => {}
        () = status::follow(&handle), if is_terminal => {}
    }
    status::sum_up(&handle.tally(), seed, is_terminal);
    Ok(())
}

pub(super) fn refused(listen: &str, error: &io::Error) -> Failure {
    let is_taken = error.kind() == io::ErrorKind::AddrInUse;
    let reason = if is_taken { "the port is already in use".to_owned() } else { error.to_string() };
    let message = format!("--listen {listen}: {reason}");
    Failure::usage(message).with_help("--listen takes HOST:PORT, e.g. 127.0.0.1:0 for a free port")
}

/// A random seed that is short enough to type.
fn any_seed() -> u64 {
    RandomState::new().build_hasher().finish() % 1_000_000
}
