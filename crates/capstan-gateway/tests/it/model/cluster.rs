//! The same model with three gateways over one PostgreSQL, and a clock that the model holds.
//!
//! Each gateway has a thread, a runtime and a lease of its own, so it can die or freeze as a
//! process does. No clock moves by itself: the model moves that of the database and those of the
//! gateways together. What the server does between two steps is not of the seed's choosing; the
//! schedule is. `CAPSTAN_CLUSTER_SEEDS` is how many are tried.

#[cfg(debug_assertions)]
mod bites;
mod replica;
mod schedule;
mod server;
mod settle;
mod town;

use schedule::Schedule;
use tokio::task::JoinSet;
use town::Town;

use crate::model::number;
use crate::model::world::Tally;

/// Few enough to be run at every change.
const SEEDS: u64 = 20;
/// So many at a time, each with a server of its own: a schedule mostly waits for one answer after
/// the other.
const LANES: usize = 2;
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
#[ignore = "needs PostgreSQL"]
async fn every_viewer_of_a_cluster_sees_the_same_stream() {
    let one = number::<u64>("CAPSTAN_SEED");
    let seeds =
        one.map_or(0..number("CAPSTAN_CLUSTER_SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let is_fair = seeds.end - seeds.start >= FAIR;
    let mut lanes: JoinSet<_> =
        (0..LANES).map(|lane| try_out(seeds.clone().skip(lane).step_by(LANES))).collect();
    let mut tally = Tally::new();
    while let Some(tried) = lanes.join_next().await {
        let met = tried.unwrap().unwrap_or_else(|story| panic!("{story}"));
        met.into_iter().for_each(|(what, times)| *tally.entry(what).or_default() += times);
    }
    for what in MET.iter().filter(|_| is_fair) {
        assert!(tally.contains_key(what), "no schedule met {what}: {tally:?}");
    }
    eprintln!("{tally:?}");
}

/// Schedules one after the other, over one server. What they met, or the story of the first that
/// failed.
async fn try_out(seeds: impl Iterator<Item = u64>) -> Result<Tally, String> {
    let mut town = Town::start().await;
    let mut tally = Tally::new();
    for seed in seeds {
        for (what, times) in schedule(&mut town, seed).await? {
            *tally.entry(what).or_default() += times;
        }
    }
    town.leave();
    Ok(tally)
}

/// One seed's schedule, to the end of all runs.
async fn schedule(town: &mut Town, seed: u64) -> Result<Tally, String> {
    town.renew(seed).await;
    let mut schedule = Schedule::new(town, seed);
    schedule.work().await;
    schedule.settle().await;
    let mut world = town.world.lock();
    world.story().map_or_else(|| Ok(std::mem::take(&mut world.tally)), Err)
}
