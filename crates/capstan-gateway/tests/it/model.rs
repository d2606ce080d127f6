//! Random schedules against a simple model: whatever happens, every viewer sees the same stream, to
//! its end.
//!
//! A schedule starts runs, cuts readers and resumes them, races duplicates, lets attempts fail,
//! stops runs, lets weeks pass, and kills the process at any point of its dealings with the store.
//! Time is virtual; a seed tells all. `CAPSTAN_SEEDS` is how many schedules are tried,
//! `CAPSTAN_SEED` repeats a single one.

mod agent;
#[cfg(debug_assertions)]
mod bites;
mod body;
mod client;
mod cluster;
mod life;
mod observe;
mod run;
mod script;
mod settle;
mod step;
mod store;
mod stream;
mod truth;
mod world;

use std::str::FromStr;
use std::sync::Arc;

use capstan_stores::{Durability, open};
use fastrand::Rng;
use life::{Fate, Land};
use store::Calendar;
use world::{Shared, Tally};

/// Enough to meet everything in `MET`, few enough to be run at every change; `make soak` tries
/// thousands.
const SEEDS: u64 = 40;

/// What a fair number of schedules must have met, else they test less than they seem to.
const MET: [&str; 10] = [
    "204",
    "409",
    "cancelled",
    "collected",
    "completed",
    "completed after a reset",
    "expired",
    "failed",
    "refused",
    "waiting",
];

fn number<T: FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().map(|value| value.parse().ok().expect("a number"))
}

#[test]
fn every_viewer_sees_the_same_stream_under_any_schedule() {
    let one = number::<u64>("CAPSTAN_SEED");
    let seeds = one.map_or(0..number("CAPSTAN_SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let is_fair = seeds.end - seeds.start >= SEEDS;
    let mut tally = Tally::new();
    for seed in seeds {
        for (what, times) in schedule(seed).unwrap_or_else(|story| panic!("{story}")) {
            *tally.entry(what).or_default() += times;
        }
    }
    for what in MET.iter().filter(|_| is_fair) {
        assert!(tally.contains_key(what), "no schedule met {what}: {tally:?}");
    }
}

/// One seed's schedule, over several lives.
fn schedule(seed: u64) -> Result<Tally, String> {
    let mut rng = Rng::with_seed(seed);
    let truth = open("memory:", Durability::default()).unwrap();
    let land = Land { world: Shared::new(seed), truth, calendar: Arc::new(Calendar::default()) };
    for _ in 0..rng.usize(0..4) {
        let fate = if rng.u32(0..4) == 0 { Fate::Drain } else { Fate::Crash(rng.i64(0..160)) };
        life::live(&land, &mut rng, fate);
        if let Some(story) = land.world.lock().story() {
            return Err(story);
        }
    }
    life::live(&land, &mut rng, Fate::Settle);
    let mut world = land.world.lock();
    world.story().map_or_else(|| Ok(std::mem::take(&mut world.tally)), Err)
}
