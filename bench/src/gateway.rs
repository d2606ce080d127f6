//! `gateway`: what the run contract costs beside an endpoint without one.
//!
//! Servers run in processes of their own, clients in this one. The peer is axum's `Sse` over the
//! same packets, without a journal. Contenders take turns, figures are medians, and no figure is
//! asserted; machines differ.

pub mod client;
pub mod fanout;
mod memory;
mod peer;
pub mod process;
mod replay;
mod resume;
pub mod script;
pub mod server;
pub mod writes;

use std::io;
use std::path::Path;

use serde_json::json;

use crate::environment;
use process::Server;

const CRATES: &[&str] = &["axum", "hyper", "tokio", "serde_json"];

/// Who serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Peer,
    Process,
    Power,
    Memory,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Peer => "axum Sse, no journal",
            Self::Process => "capstan disk:, process",
            Self::Power => "capstan disk:, power",
            Self::Memory => "capstan memory:",
        }
    }

    fn start(self, folder: &Path) -> io::Result<Server> {
        let disk = format!("disk:{}", folder.display());
        match self {
            Self::Peer => Server::peer(),
            Self::Process => Server::capstan(&disk, "process"),
            Self::Power => Server::capstan(&disk, "power"),
            Self::Memory => Server::capstan("memory:", "process"),
        }
    }
}

/// All parts, or those that are named.
pub fn run(parts: &[String]) -> io::Result<()> {
    capstan_bench_kit::process::allow_many_files();
    // One thread: the client must leave the machine to the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|name| name == part);
    let mut results = json!({ "bench": "gateway", "environment": environment::describe(CRATES) });
    runtime.block_on(async {
        for part in ["writes", "replay", "fanout", "resume", "memory"]
            .into_iter()
            .filter(|part| is_wanted(part))
        {
            results[part] = match part {
                "writes" => writes::run().await?,
                "replay" => replay::run().await?,
                "fanout" => fanout::run().await?,
                "resume" => resume::run().await?,
                _ => memory::run().await?,
            };
            println!();
        }
        io::Result::Ok(())
    })?;
    // A part alone is for looking at; only a whole run is a result.
    if parts.is_empty() { environment::save("gateway", &results) } else { Ok(()) }
}
