//! 1. Packets per second, and runs started per second, with a console open and without.

use std::io;
use std::time::Instant;

use serde_json::{Value, json};

use super::onlooker::Onlooker;
use crate::gateway::client::post;
use crate::gateway::process::Server;
use crate::gateway::script::Script;
use crate::rounds::{Rounds, how_many};
use crate::table::Table;

const ROUNDS: usize = 11;
const WARM_UP: u64 = 2_000;

/// So many clients at once, each starting so many runs one after the other, of so many packets each.
struct Load {
    what: &'static str,
    clients: u64,
    runs: u64,
    packets: u64,
}

const LOADS: [Load; 2] = [
    Load { what: "packets per second, 16 runs at once", clients: 16, runs: 1, packets: 40_000 },
    Load { what: "runs started per second, 16 clients", clients: 16, runs: 250, packets: 1 },
];

impl Load {
    /// What is counted.
    fn amount(&self) -> f64 {
        (self.clients * self.runs * self.packets) as f64
    }

    async fn put_on(&self, server: &Server) -> io::Result<()> {
        let (address, runs, packets) = (server.address, self.runs, self.packets);
        let client = || async move {
            for _ in 0..runs {
                let mut response = post(address, "/assist", Script::burst(packets)).await?;
                let frames = response.count().await?.frames;
                if frames < packets + 1 {
                    return Err(io::Error::other(format!("{frames} frames for {packets} writes")));
                }
            }
            Ok(())
        };
        let clients: Vec<_> = (0..self.clients).map(|_| tokio::spawn(client())).collect();
        for client in clients {
            client.await??;
        }
        Ok(())
    }

    /// Per second, and the server's processor time for each in microseconds.
    async fn once(&self, server: &Server, is_watched: bool) -> io::Result<(f64, f64)> {
        let onlooker = if is_watched { Some(Onlooker::open(server.address).await?) } else { None };
        let (began, cpu) = (Instant::now(), server.cpu()?);
        self.put_on(server).await?;
        let rate = self.amount() / began.elapsed().as_secs_f64();
        let cost = (server.cpu()? - cpu).as_secs_f64() * 1e6 / self.amount();
        onlooker.map(Onlooker::close).transpose()?;
        Ok((rate, cost))
    }
}

pub async fn run() -> io::Result<Value> {
    let mut table =
        Table::new(&["with a console open", "closed", "open", "ratio", "closed µs", "open µs", "ratio"]);
    let mut results = Vec::new();
    for load in &LOADS {
        let folder = tempfile::tempdir()?;
        let server = Server::on_disk(folder.path())?;
        post(server.address, "/assist", Script::burst(WARM_UP)).await?.count().await?;
        // The first round of all finds threads, caches and files unmade.
        load.once(&server, true).await?;
        let mut rounds = <[(Rounds, Rounds); 2]>::default();
        for round in 0..how_many(ROUNDS) {
            // By turns, and each as often first: whatever the machine does hits both.
            let order = if round % 2 == 0 { [false, true] } else { [true, false] };
            for is_watched in order {
                let (rate, cost) = load.once(&server, is_watched).await?;
                let (rates, costs) = &mut rounds[usize::from(is_watched)];
                rates.push(rate);
                costs.push(cost);
            }
        }
        let [closed, open] = &rounds;
        let (ratio, cost) = (open.0.median() / closed.0.median(), open.1.median() / closed.1.median());
        table.row(vec![
            load.what.to_owned(),
            format!("{:.0}", closed.0.median()),
            format!("{:.0}", open.0.median()),
            format!("{ratio:.3}x"),
            format!("{:.2}", closed.1.median()),
            format!("{:.2}", open.1.median()),
            format!("{cost:.3}x"),
        ]);
        results.push(json!({
            "what": load.what, "ratio": ratio, "cpu_ratio": cost,
            "closed_per_second": closed.0.to_json(), "open_per_second": open.0.to_json(),
            "closed_cpu_microseconds": closed.1.to_json(), "open_cpu_microseconds": open.1.to_json(),
        }));
    }
    table.print();
    Ok(json!({ "results": results }))
}
