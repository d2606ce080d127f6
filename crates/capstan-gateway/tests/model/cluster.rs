//! The same model with three gateways over one PostgreSQL, and a clock that the model holds.
//!
//! Each gateway has a thread, a runtime and a lease of its own, so it can die or freeze as a process does. No clock moves by
//! itself: the model moves that of the database and those of the gateways together. What the server does between two steps
//! is not of the seed's choosing; the schedule is. `CAPSTAN_CLUSTER_SEEDS` is how many are tried.

#[cfg(planted_bugs)]
mod bites;
mod replica;
mod schedule;
mod server;
mod settle;
mod town;

use schedule::Schedule;
use server::Server;
use town::Town;

use crate::number;
use crate::world::{Shared, Tally};

/// Few enough to be run at every change: each takes a second of processor time, most of it the server's.
const SEEDS: u64 = 5;
/// So many must have met everything in `MET`.
const FAIR: u64 = 40;

/// What a fair number of schedules must have met.
const MET: [&str; 9] = [
    "409",
    "a crash of the server",
    "a death",
    "a drain",
    "a freeze",
    "cancelled",
    "completed",
    "read elsewhere",
    "taken over",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_becomes_of_gateways_every_viewer_sees_the_same_stream_to_its_end() {
    let one = number::<u64>("CAPSTAN_SEED");
    let seeds = one.map_or(0..number("CAPSTAN_CLUSTER_SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let is_fair = seeds.end - seeds.start >= FAIR;
    let Some(mut server) = Server::start().await else { return };
    let mut tally = Tally::new();
    for seed in seeds {
        for (what, times) in schedule(&mut server, seed).await.unwrap_or_else(|story| panic!("{story}")) {
            *tally.entry(what).or_default() += times;
        }
    }
    for what in MET.iter().filter(|_| is_fair) {
        assert!(tally.contains_key(what), "no schedule met {what}: {tally:?}");
    }
    eprintln!("{tally:?}");
}

/// One seed's schedule, to the end of all runs.
async fn schedule(server: &mut Server, seed: u64) -> Result<Tally, String> {
    let world = Shared::new(seed);
    let town = Town::new(server, world.clone()).await;
    let mut schedule = Schedule::new(town, seed);
    schedule.work().await;
    schedule.settle().await;
    schedule.town.leave().await;
    let mut world = world.lock();
    world.story().map_or_else(|| Ok(std::mem::take(&mut world.tally)), Err)
}
