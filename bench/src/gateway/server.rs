//! The servers, each in a process of its own: this program again, with the role as its argument.
//!
//! It says its address on standard output and serves until it is killed.

use std::io::{self, Write as _};

use capstan_agent::{Agent, Outcome, Turn, Writer, async_trait};
use capstan_gateway::{Gateway, serve};
use capstan_journal::{Journal, Replica, TailLimits};
use capstan_stores::{Durability, Options, connect};
use tokio::net::TcpListener;

use super::peer;
use super::script::Script;

/// The first argument of a server process.
pub const ROLE: &str = "server";

/// `server peer`, or `server capstan <journal> process|power`.
pub fn run(args: &[String]) -> io::Result<()> {
    capstan_bench_kit::process::allow_many_files();
    tokio::runtime::Runtime::new()?.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        io::stdout().flush()?;
        match args {
            [kind] if kind == "peer" => peer::serve(listener).await,
            [_, journal, durability] => capstan(listener, journal, durability).await,
            _ => Err(io::Error::other("an unknown role")),
        }
    })
}

async fn capstan(listener: TcpListener, journal: &str, durability: &str) -> io::Result<()> {
    let durability = if durability == "power" { Durability::Power } else { Durability::Process };
    let options = Options { durability, ..Options::default() };
    let store = connect(journal, options, Replica::default()).await.map_err(io::Error::other)?;
    let gateway =
        Gateway::new(Journal::new(store, TailLimits::default())).agent("speaker", Speaker);
    serve(gateway, vec![listener], std::future::pending()).await?;
    Ok(())
}

/// Says what the message tells it to.
struct Speaker;

#[async_trait]
impl Agent for Speaker {
    async fn run(&self, turn: Turn, out: &mut Writer) -> Outcome {
        let script = Script::parse(&turn.text()).ok_or_else(|| io::Error::other("not a script"))?;
        for n in 0..script.count {
            if !script.pause.is_zero() && n > 0 {
                tokio::time::sleep(script.pause).await;
            }
            out.delta(script.text(n)).await?;
        }
        Ok(())
    }
}
