//! 4. Time to the first replayed byte of a resume: a long stream must not cost more than a short
//!    one.

use std::io;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use super::client::{Response, post};
use super::process::Server;
use super::script::Script;
use crate::rounds::{Rounds, how_many};
use crate::table::Table;

const WARM_ROUNDS: usize = 101;
const COLD_ROUNDS: usize = 11;
const LONG: u64 = 100_000;
const SHORT: u64 = 100;

/// A stream and a place in it.
struct Place {
    name: &'static str,
    stream: String,
    after: u64,
}

pub async fn run() -> io::Result<Value> {
    let folder = tempfile::tempdir()?;
    let places = write(folder.path()).await?;
    let cold = measure_cold(folder.path(), &places).await?;
    let warm = measure_warm(folder.path(), &places).await?;
    let mut table = Table::new(&["first replayed byte after a resume", "µs", "spread", "ratio"]);
    let mut results = Vec::new();
    for (state, rounds) in [("cold", cold), ("warm", warm)] {
        for (place, times) in places.iter().zip(&rounds) {
            let ratio = times.median() / rounds[0].median();
            let name = format!("{state}, {}", place.name);
            table.row(vec![
                name,
                format!("{:.0}", times.median()),
                times.spread(0),
                format!("{ratio:.2}x"),
            ]);
            results.push(json!({ "state": state, "place": place.name,
            "microseconds": times.to_json(), "ratio_to_short": ratio }));
        }
    }
    table.print();
    Ok(json!({ "long": LONG, "short": SHORT, "results": results }))
}

async fn write(folder: &Path) -> io::Result<Vec<Place>> {
    let server = Server::on_disk(folder)?;
    let (short, long) = (finished(&server, SHORT).await?, finished(&server, LONG).await?);
    Ok(vec![
        Place { name: "middle of 100", stream: short, after: SHORT / 2 },
        Place { name: "middle of 100,000", stream: long.clone(), after: LONG / 2 },
        Place { name: "end of 100,000", stream: long, after: LONG - 10 },
    ])
}

async fn finished(server: &Server, count: u64) -> io::Result<String> {
    let mut response = post(server.address, "/assist", Script::burst(count)).await?;
    let stream = response.header("x-stream-id").await?;
    response.count().await?;
    Ok(stream)
}

/// The first resume after the journal was opened: nothing of the stream is in the process's memory.
async fn measure_cold(folder: &Path, places: &[Place]) -> io::Result<Vec<Rounds>> {
    let mut rounds = vec![Rounds::default(); places.len()];
    for _ in 0..how_many(COLD_ROUNDS) {
        for (place, times) in places.iter().zip(&mut rounds) {
            let server = Server::on_disk(folder)?;
            Response::get(server.address, "/health", "").await?.count().await?;
            times.push(resume(&server, place).await?);
        }
    }
    Ok(rounds)
}

async fn measure_warm(folder: &Path, places: &[Place]) -> io::Result<Vec<Rounds>> {
    let server = Server::on_disk(folder)?;
    let mut rounds = vec![Rounds::default(); places.len()];
    for round in 0..=how_many(WARM_ROUNDS) {
        for (place, times) in places.iter().zip(&mut rounds) {
            let time = resume(&server, place).await?;
            if round > 0 {
                times.push(time);
            }
        }
    }
    Ok(rounds)
}

/// Microseconds from connecting to the first byte of a packet.
async fn resume(server: &Server, place: &Place) -> io::Result<f64> {
    let cursor = format!("last-event-id: {}:{}\r\n", place.stream, place.after);
    let began = Instant::now();
    let mut response =
        Response::get(server.address, &format!("/v1/streams/{}", place.stream), &cursor).await?;
    response.until("data: ").await?;
    Ok(began.elapsed().as_secs_f64() * 1e6)
}
