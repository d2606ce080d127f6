//! `cluster`: what a journal in PostgreSQL costs beside one in a folder, with one gateway and with
//! three.
//!
//! The server is a real one of its own, on a unix socket, with its defaults and `fsync` on;
//! gateways are processes of their own. All of it shares the machine with the clients. Contenders
//! take turns, figures are medians, and no figure is asserted.

mod claims;
mod database;
mod death;
mod delivery;
mod room;
mod writes;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::environment;
use crate::gateway::process::Server;
use database::Database;

const PARTS: [&str; 5] = ["writes", "delivery", "claims", "room", "death"];
const CRATES: &[&str] = &["axum", "hyper", "tokio", "tokio-postgres"];
/// Set by `scripts/postgres`.
const SERVER: &str = "CAPSTAN_TEST_POSTGRES";

/// Where packets are kept, and by how many gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Disk,
    Process,
    Power,
    Three,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk:, process",
            Self::Process => "postgres:, process",
            Self::Power => "postgres:, power",
            Self::Three => "postgres:, process, three gateways",
        }
    }
}

/// The gateways of a kind, and what they keep their packets in.
struct Cluster {
    servers: Vec<Server>,
    // After the gateways, which use them.
    database: Option<Database>,
    folder: tempfile::TempDir,
}

impl Cluster {
    async fn start(kind: Kind) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let durability = if kind == Kind::Power { "power" } else { "process" };
        let database = if kind == Kind::Disk { None } else { Some(Database::create().await?) };
        let journal = journal(database.as_ref(), folder.path());
        let count = if kind == Kind::Three { 3 } else { 1 };
        let servers =
            (0..count).map(|_| Server::capstan(&journal, durability)).collect::<io::Result<_>>()?;
        Ok(Self { servers, database, folder })
    }
}

fn journal(database: Option<&Database>, folder: &Path) -> String {
    database.map_or_else(|| format!("disk:{}", folder.display()), |database| database.url.clone())
}

/// All parts, or those that are named. Each is kept as soon as it is done: together they take half
/// an hour.
pub fn run(parts: &[String]) -> io::Result<()> {
    if std::env::var_os(SERVER).is_none() {
        return with_a_server(parts);
    }
    capstan_bench_kit::process::allow_many_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let is_wanted = |part: &str| parts.is_empty() || parts.iter().any(|name| name == part);
    runtime.block_on(async {
        let version = database::version().await?;
        for part in PARTS.into_iter().filter(|part| is_wanted(part)) {
            let mut environment = environment::describe(CRATES);
            environment["postgresql"] = version.clone().into();
            let result = match part {
                "writes" => writes::run().await?,
                "delivery" => delivery::run().await?,
                "claims" => claims::run()?,
                "room" => room::run().await?,
                _ => death::run().await?,
            };
            println!();
            environment::save_part("cluster", part, environment, result)?;
        }
        Ok(())
    })
}

/// This program again, with a server that is ended after it.
fn with_a_server(parts: &[String]) -> io::Result<()> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres");
    let mut again = Command::new(script);
    again.env("FSYNC", "on").arg(std::env::current_exe()?).arg("cluster").args(parts);
    let status = again.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("it ended with {status}"))) }
}
